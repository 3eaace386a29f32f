"""Models behind one signature, the ledger of their calls, and answers from an index."""

import logging

# A retry that succeeds is nobody's concern; one that fails is told as a UserError.
logging.getLogger("stamina").addHandler(logging.NullHandler())

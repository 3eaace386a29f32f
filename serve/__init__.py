"""Models behind one interface, the ledger of their calls, answers from an index, and the server."""

import logging

# A retry that succeeds needs no log line; one that fails becomes a UserError.
logging.getLogger("stamina").addHandler(logging.NullHandler())

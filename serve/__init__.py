import logging

# A retry that succeeds is nobody's concern; one that fails is told as a UserError.
logging.getLogger("stamina").addHandler(logging.NullHandler())

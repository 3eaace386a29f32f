"""Why a question finds a passage, or does not: where it stands in each mode, and what leads to it."""

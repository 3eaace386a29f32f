"""The names of the retrieval modes, and the defaults that all interfaces share."""

from typing import Literal, get_args

Mode = Literal[
    "dense",
    "lexical",
    "hybrid",
    "naive",
    "hierarchy",
    "hops",
    "paths",
    "local",
    "global",
    "statements",
    "topics",
    "plan",
    "auto",
]
"""How evidence is retrieved (graph/retrieve/)."""
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT_MODE: Mode = "auto"
"""The mode if the user names none: on the command line, in training data, on the server, in MCP and Python."""
ABSTAIN_AT = 0.9
"""By default, `ask` and servers answer “not in the documents”, without calling a model, if the probability that the documents do not cover the
question is at least this (graph/retrieve/absence.py)."""

"""The ways to retrieve, by name."""

from typing import Literal

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
"""How evidence is looked for (graph/retrieve/)."""
DEFAULT_MODE: Mode = "auto"
"""Wherever a user does not say how: the command line, training data, the server, MCP, Python."""

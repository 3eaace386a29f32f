"""What a message tells of the citations in it: the rule itself is graph/prompt/citations.py."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from graph.shared.types import Excerpt


def citation(number: int, excerpt: Excerpt) -> dict[str, Any]:
    """An excerpt as a client reads it: its number, title, source, start, end, page and text; of a summary its members."""
    return {"number": number, **asdict(excerpt)}

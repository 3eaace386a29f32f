"""Progress is shown only to who asks for it; otherwise lines go to the logger "modegraph"."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from graph.shared.console import quiet


def showing(progress: bool) -> AbstractContextManager[None]:
    """Within the block the functions below talk as they do to a person at a terminal, or not at all."""
    return nullcontext() if progress else quiet()

"""Small indexes whose edits are written as patches of their base arrays, as those of large ones are."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import graph.build.build


@contextmanager
def edits_as_patches(most: float = 1e9) -> Iterator[None]:
    """Write edits as patches while the changed documents are at most `most` times those of the base arrays."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(graph.build.build, "PATCHED_FROM_PASSAGES", 0)
        patched.setattr(graph.build.build, "MAX_PATCHED_SHARE", most)
        yield

"""Makes small indexes write edits as patches of their base arrays, as large indexes do."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import graph.build.build


@contextmanager
def edits_as_patches(max_share: float = 1e9) -> Iterator[None]:
    """Write edits as patches while the number of changed documents is at most `max_share` times that of the documents in the base arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph.build.build, "PATCHED_FROM_PASSAGES", 0)
        patch.setattr(graph.build.build, "MAX_PATCHED_SHARE", max_share)
        yield

"""The hierarchy of the last generation: what of it stays where documents come and go.

Legend: X nodes (passages, then summaries), S summaries, L nodes of one layer, P passages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.layers.similarity import KnownGraph
from graph.shared.types import Ints
from graph.store.columns.merge import Merge
from graph.store.columns.moved import Block
from graph.store.columns.strings import Strings

MOST_CHANGED_MEMBERS = 0.1
"""Of a carried community: when more have come and gone in one edit, it is summarised again."""


@dataclass(frozen=True)
class LastHierarchy:
    """The hierarchy of the last generation, to start from: its X nodes are passages, then S summaries by layer.

    With `carry`, its communities stay as they are (graph/layers/communities.py), and their summaries while few members come or go; else
    they are found again. With `extractive`, a summary stays where its members do: passages that stay have the propositions that they
    had, and no model was or is asked.
    """

    last_P: Ints
    """The row that each passage had, −1 for a new one."""
    passages: int
    """How many there were."""
    summary_ids: Strings
    summary_texts: Strings
    layer_S: Ints
    member_SX: sp.csr_array
    edges: Block | None
    """None: all nodes are searched again."""
    carry: bool
    extractive: bool
    gone: Sequence[str] = ()
    """The propositions that stand nowhere any more: no summary that has one stays."""

    def known_graph(self, last_L: Ints, layer: int) -> KnownGraph | None:
        """What it knows of the similarity graph of a layer of nodes that had these numbers."""
        if self.edges is None:
            return None
        first, end = np.searchsorted(self.layer_S, [layer, layer + 1]) + self.passages
        first = first if layer else 0
        merge = Merge.of_last(np.where(last_L < 0, -1, last_L - first), int(end - first))
        return KnownGraph(self.edges, merge, int(first))

    def summaries_of(self, last_L: Ints, layer: int) -> Ints:
        """The summary of that layer over each node that had these numbers, −1 where there is none."""
        summaries = np.flatnonzero(self.layer_S == layer)
        rows = self.member_SX[summaries, :]
        above_X = np.full(self.passages + len(self.layer_S) + 1, -1, np.int64)
        above_X[rows.indices] = np.repeat(summaries, np.diff(rows.indptr))
        return above_X[last_L]

    def communities(self, last_L: Ints, layer: int) -> Ints:
        """The community of each node of a layer that had these numbers; −1 for a new one."""
        above_L = self.summaries_of(last_L, layer + 1)
        return np.where(above_L < 0, np.where(last_L < 0, -1, len(self.layer_S) + last_L), above_L)

    def same_summaries(self, groups: Sequence[Ints], last_X: Ints, layer: int) -> Ints:
        """The summary of that layer that stays for each group: it has just these members, or, with `carry`, nearly. −1 where none does.

        `last_X` are the numbers that nodes had.
        """
        if not self.extractive or not groups:
            return np.full(len(groups), -1, np.int64)
        lengths = np.array([len(group) for group in groups], np.int64)
        starts = np.cumsum(lengths) - lengths
        last_Y = last_X[np.concatenate(groups)]
        above_Y = self.summaries_of(last_Y, layer)
        summary = np.maximum.reduceat(above_Y, starts)
        of_it = np.add.reduceat(above_Y == np.repeat(summary, lengths), starts)
        new = np.add.reduceat(last_Y < 0, starts)
        members = np.append(np.diff(self.member_SX.indptr), -1)[summary]
        stays = (summary >= 0) & (of_it + new == lengths) & (members - of_it + new <= members * self._most_changed)
        # Above layer 1 a summary may have a sentence of a document whose own summary lost it and stayed.
        for place in np.flatnonzero(stays & ((of_it < members) | (layer > 1))).tolist() if self.gone else ():
            text = self.summary_texts[int(summary[place])]
            stays[place] = not any(sentence in text for sentence in self.gone)
        return np.where(stays, summary, -1)

    @property
    def _most_changed(self) -> float:
        """Of a summary's members, the share that may come and go while it stays."""
        return MOST_CHANGED_MEMBERS if self.carry else 0.0

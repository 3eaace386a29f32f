"""The hierarchical similarity graph (GraphMPA §3.1, Algorithm 1): layers of summaries, each with fewer and broader summaries than the one below.

Layer 0 contains the passages and a summary of each large chunk; layer ℓ + 1 contains a summary of each community of two or more nodes of layer ℓ.
A node represents propositions (its "pool"), and an extractive summary selects from its members' pools; a model, if there is one, writes the
summary from its members' texts instead.
Legend: X nodes (passages, then summaries), S summaries, L nodes of one layer, Y members of groups, P passages."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from graph.hierarchy.communities import carry_communities, find_communities, groups_of
from graph.hierarchy.similarity import GraphEdit, KnownGraph, edit_graph, similarity_graph
from graph.hierarchy.summaries import WriteSummaries, choose_sentences, join_sentences
from graph.shared.ids import content_id
from graph.store.columns.blocks import Entries
from graph.store.columns.moved import Block, moved_block, rows_with_numbers, take_rows
from graph.store.columns.row_map import RowMap, in_order
from graph.store.columns.strings import Ids, Strings, id_bytes, ids_at, rows_among
from graph.store.data import PropositionColumns
from graph.store.index_settings import IndexSettings
from graph.store.vectors import Matrix, Vectors
from graph.types import Floats, IdBytes, Ints

MAX_CHANGED_SHARE = 0.1
"""If one edit adds and removes, in total, more than this share of a carried community's members, the community is summarised again."""


@dataclass(frozen=True)
class LastHierarchy:
    """The hierarchy of the last generation, to start from: its X nodes are passages, then S summaries by layer.

    With `carry`, its communities are carried over (graph/hierarchy/communities.py); otherwise they are detected again. With `extractive`
    (no model wrote or will write summaries, and the propositions of the remaining passages are unchanged), a summary is reused if its members
    are unchanged or, with `carry`, if few of them changed.
    """

    last_P: Ints
    """The row of each passage in the last generation, −1 for a new passage."""
    passages: int
    """The number of passages of the last generation."""
    summary_ids: Strings
    summary_texts: Strings
    layer_S: Ints
    member_SX: sp.csr_array
    edges: Block | None
    """The similarity graph; None: the neighbours of all nodes are searched for again."""
    carry: bool
    extractive: bool
    maybe_lost: Sequence[str] = ()
    """The propositions of deleted passages, which may remain in other passages: a summary that contains one is not reused if its members may have lost it."""

    def known_graph(self, last_L: Ints, layer: int) -> KnownGraph | None:
        """The known similarity graph of a layer, from the nodes' numbers in the last generation; None if no edges are known."""
        if self.edges is None:
            return None
        first, end = np.searchsorted(self.layer_S, [layer, layer + 1]) + self.passages
        first = first if layer else 0
        merge = RowMap.of_previous(np.where(last_L < 0, -1, last_L - first), int(end - first))
        return KnownGraph(self.edges, merge, int(first))

    def summaries_of(self, last_L: Ints, layer: int) -> Ints:
        """The summary of this layer that covers each node, from the nodes' numbers in the last generation; −1 where there is none."""
        summaries = np.flatnonzero(self.layer_S == layer)
        rows = self.member_SX[summaries, :]
        summary_X = np.full(self.passages + len(self.layer_S) + 1, -1, np.int64)
        summary_X[rows.indices] = np.repeat(summaries, np.diff(rows.indptr))
        return summary_X[last_L]

    def communities(self, last_L: Ints, layer: int) -> Ints:
        """The community of each node of a layer, from the nodes' numbers in the last generation; −1 for a new node."""
        summary_L = self.summaries_of(last_L, layer + 1)
        return np.where(summary_L < 0, np.where(last_L < 0, -1, len(self.layer_S) + last_L), summary_L)

    def reusable_summaries(self, groups: Sequence[Ints], last_X: Ints, layer: int) -> Ints:
        """The reusable summary of each group: one with the same members or, with `carry`, nearly the same; −1 where there is none.

        Without `extractive`, none is reusable; nor is one with a sentence that its members may have lost. `last_X` are the numbers of the nodes in the last
        generation.
        """
        if not self.extractive or not groups:
            return np.full(len(groups), -1, np.int64)
        lengths = np.array([len(group) for group in groups], np.int64)
        starts = np.cumsum(lengths) - lengths
        last_Y = last_X[np.concatenate(groups)]
        summary_Y = self.summaries_of(last_Y, layer)
        summary = np.maximum.reduceat(summary_Y, starts)
        shared = np.add.reduceat(summary_Y == np.repeat(summary, lengths), starts)
        new = np.add.reduceat(last_Y < 0, starts)
        members = np.append(np.diff(self.member_SX.indptr), -1)[summary]
        max_changed = MAX_CHANGED_SHARE if self.carry else 0.0
        reusable = (summary >= 0) & (shared + new == lengths) & (members - shared + new <= members * max_changed)
        # Above layer 1, a summary may contain a lost sentence even if its members are the same: one of them may have lost the
        # passage with the sentence and still been reused.
        for group in np.flatnonzero(reusable & ((shared < members) | (layer > 1))).tolist() if self.maybe_lost else ():
            text = self.summary_texts[int(summary[group])]
            reusable[group] = not any(sentence in text for sentence in self.maybe_lost)
        return np.where(reusable, summary, -1)


MAX_VECTORS_READ = 8_192
"""How many sentence vectors to read from files before their memory is released: reading one vector loads whole memory pages."""
EncodeByIds = Callable[[Sequence[str], Sequence[str]], Vectors]
"""Ids and texts to unit vectors [N, D]; texts already encoded under the same id are not encoded again."""


@dataclass(frozen=True)
class Passages:
    """The passages among the nodes of layer 0: ids, texts (read only when a model summarises), and the occurrences of propositions in them."""

    ids: Ids
    texts: Sequence[str]
    occurrences: PropositionColumns

    def pools(self, rows: Ints) -> dict[int, list[int]]:
        """The propositions of each of these passages, in reading order, with repetitions."""
        columns = self.occurrences
        propositions = np.unique(take_rows(columns.passage_proposition_PN, rows).indices).astype(np.int64)
        found = rows_with_numbers(columns.occurrence_proposition_M, propositions)
        found = found[np.isin(columns.occurrence_passage_M[found], rows)]
        passage_M, proposition_M = columns.occurrence_passage_M[found], columns.occurrence_proposition_M[found]
        order = np.lexsort((columns.occurrence_end_M[found], columns.occurrence_start_M[found], passage_M))
        pools: dict[int, list[int]] = {row: [] for row in rows.tolist()}
        for row, proposition in zip(passage_M[order].tolist(), proposition_M[order].tolist(), strict=True):
            pools[row].append(proposition)
        return pools


@dataclass
class SummaryNode:
    """A summary: id, text, layer, direct members (node numbers, ascending), and the propositions (rows, in reading order) that it
    represents; None for a reused summary until they are needed.
    """

    id: str
    text: str
    layer: int
    members: Ints
    pool: tuple[int, ...] | None


@dataclass(frozen=True)
class Hierarchy:
    """All summaries in order of layer, their vectors, and the edges of every layer (node numbers: passages, then summaries)."""

    summaries: tuple[SummaryNode, ...]
    vectors_SD: Vectors
    edges: Block


@dataclass(frozen=True)
class Sentences:
    """The propositions from which summaries are composed."""

    vectors_ND: Matrix
    text: Callable[[int], str]
    count_tokens: Callable[[str], int]

    def release_memory(self) -> None:
        """Release the memory that was needed to read vectors from files."""
        if isinstance(self.vectors_ND, Vectors):
            self.vectors_ND.release_memory()

    def read(self, pool: Sequence[int]) -> Floats:
        """The vectors of a pool, read in batches so that a large pool does not load whole files into memory."""
        if len(pool) <= MAX_VECTORS_READ:
            return self.vectors_ND[list(pool)]
        vectors_RD = np.empty((len(pool), self.vectors_ND.shape[1]), np.float32)
        for start in range(0, len(pool), MAX_VECTORS_READ):
            part = slice(start, start + MAX_VECTORS_READ)
            vectors_RD[part] = self.vectors_ND[list(pool[part])]
            self.release_memory()
        return vectors_RD

    def summarise(self, pool: Sequence[int], max_tokens: int) -> tuple[str, tuple[int, ...]]:
        """The summary of a pool and the proposition rows chosen for it."""
        chosen = choose_sentences(self.read(pool), lambda row: self.count_tokens(self.text(pool[row])), max_tokens)
        rows = tuple(pool[row] for row in chosen)
        return join_sentences([self.text(row) for row in rows]), rows


@dataclass
class _Builder:
    passages: Passages
    sentences: Sentences
    max_tokens: int
    vectors: list[Vectors]
    last_X: Ints
    """The number of each node in the last generation, ascending; −1 for a node that is new or out of that order."""
    summaries: list[SummaryNode] = field(default_factory=list)
    edges: list["_Edges"] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.passages.ids) + len(self.summaries)

    def summary(self, number: int) -> SummaryNode | None:
        """The summary of this number; None for a passage."""
        position = number - len(self.passages.ids)
        return self.summaries[position] if position >= 0 else None

    def text(self, number: int) -> str:
        summary = self.summary(number)
        return self.passages.texts[number] if summary is None else summary.text

    def ids(self, numbers: Ints) -> IdBytes:
        """The ids of nodes, passages first."""
        passages = len(self.passages.ids)
        summary_ids = [self.summaries[number - passages].id for number in numbers[numbers >= passages].tolist()]
        return np.concatenate([ids_at(self.passages.ids, numbers[numbers < passages]), id_bytes(summary_ids)])

    def pools(self, groups: Sequence[Ints]) -> list[tuple[int, ...]]:
        """The propositions of all members of each group, each once."""
        rows = [row for group in groups for row in self._passages_under(group)]
        known = self.passages.pools(np.unique(np.array(rows, np.int64)))
        return [self._pool(group, known) for group in groups]

    def _passages_under(self, numbers: Ints) -> Iterator[int]:
        """The passages whose propositions are needed for the pools of these nodes."""
        for number in numbers.tolist():
            summary = self.summary(number)
            if summary is None:
                yield number
            elif summary.pool is None:
                yield from self._passages_under(summary.members)

    def _pool(self, numbers: Ints, known: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
        pool: dict[int, None] = {}
        for number in numbers.tolist():
            summary = self.summary(number)
            if summary is not None and summary.pool is None:
                summary.pool = self.sentences.summarise(self._pool(summary.members, known), self.max_tokens)[1]
            pool |= dict.fromkeys(known[number] if summary is None else summary.pool or ())
        return tuple(pool)


def build_hierarchy(
    passages: Passages,
    chunks: Sequence[Ints],
    passage_vectors_PD: Vectors,
    sentences: Sentences,
    encode: EncodeByIds,
    settings: IndexSettings,
    write: WriteSummaries | None = None,
    last: LastHierarchy | None = None,
) -> Hierarchy:
    """Build up to `settings.layers` layers; the passages are in layer 0.

    `chunks` are the large chunks: runs of at least two passage numbers. A community of one node is not summarised.
    """
    last_P = np.full(len(passages.ids), -1, np.int64) if last is None else last.last_P
    builder = _Builder(passages, sentences, settings.max_summary_tokens, [passage_vectors_PD], last_P)
    _add_summaries(builder, chunks, 0, encode, write, last)
    first, end = 0, len(builder)
    for layer in range(settings.layers):
        vectors_LD = builder.vectors[-1] if layer or len(builder.vectors) == 1 else Vectors.join(builder.vectors)
        last_L = builder.last_X[first:end]
        known = None if last is None else last.known_graph(last_L, layer)
        edges = _Edges.of(vectors_LD, settings, first, known)
        builder.edges.append(edges)
        if layer + 1 == settings.layers or end - first < 2:
            break
        if last is not None and last.carry:
            community_L = carry_communities(edges.of_new, last.communities(last_L, layer))
        else:
            community_L = find_communities(edges.graph, settings.communities, settings.seed)
        groups = [first + group for group in groups_of(community_L) if len(group) > 1]
        _add_summaries(builder, groups, layer + 1, encode, write, last)
        first, end = end, len(builder)
        if first == end:
            break
    vectors_SD = encode([summary.id for summary in builder.summaries], [summary.text for summary in builder.summaries])
    joined = _join_edges(builder.edges, builder.last_X, None if last is None else last.edges)
    return Hierarchy(tuple(builder.summaries), vectors_SD, joined)


def _add_summaries(
    builder: _Builder,
    groups: Sequence[Ints],
    layer: int,
    encode: EncodeByIds,
    write: WriteSummaries | None,
    last: LastHierarchy | None,
) -> None:
    """Summarise each group that has propositions, reusing summaries of the last hierarchy where possible."""
    same = np.full(len(groups), -1) if last is None else last.reusable_summaries(groups, builder.last_X, layer)
    pools = iter(builder.pools([group for group, summary in zip(groups, same.tolist(), strict=True) if summary < 0]))
    added: list[SummaryNode] = []
    new: list[SummaryNode] = []
    for group, summary in zip(groups, same.tolist(), strict=True):
        if last is not None and summary >= 0:
            added.append(SummaryNode(last.summary_ids[summary], last.summary_texts[summary], layer, group, None))
        elif pool := next(pools):
            new.append(SummaryNode("", "", layer, group, pool))
            added.append(new[-1])
    texts = [[builder.text(member) for member in summary.members.tolist()] for summary in new] if write else []
    model_texts = write(texts) if write and texts else [""] * len(new)
    vectors_read = 0
    for node, by_model in zip(new, model_texts, strict=True):
        vectors_read += len(node.pool or ())
        extract, node.pool = builder.sentences.summarise(node.pool or (), builder.max_tokens)
        if vectors_read > MAX_VECTORS_READ or node is new[-1]:
            builder.sentences.release_memory()
            vectors_read = 0
        node.text = by_model or extract
        members = sorted(identity.decode() for identity in builder.ids(node.members).tolist())
        node.id = content_id("summary", str(layer), node.text, *members)
    if added:
        ids = [summary.id for summary in added]
        builder.vectors.append(encode(ids, [summary.text for summary in added]))
        builder.summaries += added
        last_S = np.full(len(added), -1, np.int64) if last is None else rows_among(last.summary_ids, ids)
        builder.last_X = np.concatenate(
            [builder.last_X, in_order(np.where(last_S < 0, -1, last_S + (last.passages if last else 0)))]
        )


@dataclass(frozen=True)
class _Edges:
    """The similarity graph of a layer whose first node has the number `first`: a known graph and its edit, or a full graph."""

    first: int
    known: KnownGraph | None
    edit: GraphEdit | None
    full: sp.csr_array | None

    @classmethod
    def of(cls, vectors_LD: Vectors, settings: IndexSettings, first: int, known: KnownGraph | None) -> "_Edges":
        nearest = settings.neighbours, settings.min_similarity
        edit = None if known is None else edit_graph(vectors_LD, *nearest, known)
        return cls(first, known, edit, similarity_graph(vectors_LD, *nearest) if edit is None else None)

    @cached_property
    def graph(self) -> sp.csr_array:
        return self.full if self.edit is None or self.known is None else self.known.after(self.edit)

    @property
    def of_new(self) -> sp.csr_array:
        """A graph with at least all edges of the new nodes."""
        if self.edit is None:
            return self.graph
        count, added = self.edit.nodes, self.edit.added
        return sp.csr_array(sp.coo_array((added.value_X, (added.row_X, added.column_X)), shape=(count, count)))


def _join_edges(layers: Sequence[_Edges], last_X: Ints, last: Block | None) -> Block:
    """The graphs of all layers as one."""
    edits = [(layer.first, layer.edit) for layer in layers if layer.edit is not None]
    if last is not None and len(edits) == len(layers):
        return _edited_edges(edits, last_X, last)
    indices = np.concatenate([layer.graph.indices + layer.first for layer in layers])
    degrees = np.concatenate([np.diff(layer.graph.indptr) for layer in layers])
    starts = np.concatenate([[0], np.cumsum(degrees)])
    cosines = np.concatenate([layer.graph.data for layer in layers]).astype(np.float32, copy=False)
    return sp.csr_array((cosines, indices, starts.astype(indices.dtype)), shape=(len(last_X), len(last_X)))


def _edited_edges(edits: Sequence[tuple[int, GraphEdit]], last_X: Ints, last: Block) -> Block:
    """The known edges with the edit of each layer applied; `edits` are pairs (first node of the layer, edit)."""
    moves, added = RowMap.of_previous(last_X, last.shape[0]), Entries.none()
    for first, edit in edits:
        new = edit.added
        added = added.followed_by(Entries(new.row_X + first, new.column_X + first, new.value_X))
    replaced = np.concatenate([edit.replaced_R + first for first, edit in edits])
    return moved_block(last, moves, moves, added, replaced, both_ways=True)

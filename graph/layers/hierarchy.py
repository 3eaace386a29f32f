"""The hierarchical similarity graph (GraphMPA §3.1, Algorithm 1): layers of ever fewer, ever wider summaries.

Layer 0 holds the passages and a summary of each large chunk; layer ℓ + 1 holds a summary of each community of layer ℓ.
A node stands for propositions (its "pool"), and an extractive summary chooses among its members' pools; a model, if there is
one, writes the summary from its members' texts instead, and where it cannot the extractive one stands in.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from graph.layers.communities import carry_communities, find_communities
from graph.layers.model_summaries import WriteSummaries
from graph.layers.similarity import KnownGraph, similarity_graph
from graph.layers.summarise import choose_sentences, join_sentences
from graph.shared.ids import content_id
from graph.shared.types import Ints
from graph.store.arrays import id_bytes, rows_among
from graph.store.segments import IdBytes, Rows, Vectors
from graph.store.settings import IndexSettings

EncodeByIds = Callable[[Sequence[str], Sequence[str]], Vectors]
"""Ids and texts to unit vectors [N, D]; what was encoded before under the same id is not encoded again."""


@dataclass(frozen=True)
class Node:
    """A summary as a node of the graph: its id, its text and the propositions (rows, in reading order) that it stands for."""

    id: str
    text: str
    pool: tuple[int, ...]


@dataclass(frozen=True)
class Passages:
    """The nodes of layer 0 that are passages: ids, texts (asked for when a model summarises), and each one's propositions in reading
    order, end to end.
    """

    ids: IdBytes
    texts: Sequence[str]
    propositions: Ints
    starts: Ints
    """Where the propositions of each passage begin, and where the last one's end."""

    def pool(self, row: int) -> Sequence[int]:
        """The propositions of one of them; what stands in it twice is there twice."""
        pool: list[int] = self.propositions[self.starts[row] : self.starts[row + 1]].tolist()
        return pool


@dataclass(frozen=True)
class SummaryNode:
    """A summary: its node, its layer and its direct members (node numbers)."""

    node: Node
    layer: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Hierarchy:
    """All summaries in order of layer, their vectors, and the edges of every layer (node numbers: passages, then summaries)."""

    summaries: tuple[SummaryNode, ...]
    vectors_SD: Vectors
    edges: sp.csr_array


@dataclass(frozen=True)
class LastHierarchy:
    """The hierarchy of the last generation, to start from: `ids` of all its nodes (X: passages, then S summaries), its edges and members.

    With `carry`, its communities stay as they are (graph/layers/communities.py); else they are found again.
    """

    ids: IdBytes
    edges: sp.csr_array
    layer_S: Ints
    member_SX: sp.csr_array
    carry: bool

    def edges_among(self, ids: IdBytes) -> KnownGraph:
        """What it knows of the similarity graph of the nodes with these ids."""
        return KnownGraph(self.edges, rows_among(ids, self.ids))

    def communities(self, ids: IdBytes, layer: int) -> Ints:
        """The community of each of these nodes of a layer; −1 for nodes that it does not know."""
        summary_Y, member_Y = self.member_SX.tocoo().coords
        of_layer_Y = self.layer_S[summary_Y] == layer + 1
        community_X = len(self.layer_S) + np.arange(len(self.ids))
        community_X[member_Y[of_layer_Y]] = summary_Y[of_layer_Y]
        rows = rows_among(self.ids, ids)
        return np.where(rows >= 0, community_X[rows], -1)


@dataclass(frozen=True)
class Sentences:
    """The propositions that summaries choose from."""

    vectors_ND: Rows
    text: Callable[[int], str]
    count_tokens: Callable[[str], int]

    def summarise(self, pool: Sequence[int], max_tokens: int) -> tuple[str, tuple[int, ...]]:
        """The summary of a pool and the proposition rows chosen for it."""
        chosen = choose_sentences(
            self.vectors_ND[list(pool)], lambda row: self.count_tokens(self.text(pool[row])), max_tokens
        )
        rows = tuple(pool[row] for row in chosen)
        return join_sentences([self.text(row) for row in rows]), rows


@dataclass
class _Builder:
    passages: Passages
    vectors: list[Vectors]
    summaries: list[SummaryNode] = field(default_factory=list)
    edges: list[tuple[Ints, sp.coo_array]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.passages.ids) + len(self.summaries)

    def pool(self, number: int) -> Sequence[int]:
        """The propositions of a passage or, numbered behind these, of a summary."""
        above = number - len(self.passages.ids)
        return self.passages.pool(number) if above < 0 else self.summaries[above].node.pool

    def text(self, number: int) -> str:
        """The text of a node."""
        above = number - len(self.passages.ids)
        return self.passages.texts[number] if above < 0 else self.summaries[above].node.text

    def ids(self, numbers: Ints) -> IdBytes:
        """The ids of nodes, passages first."""
        passages = len(self.passages.ids)
        above = [self.summaries[number - passages].node.id for number in numbers[numbers >= passages].tolist()]
        return np.concatenate([self.passages.ids[numbers[numbers < passages]], id_bytes(above)])


def build_hierarchy(
    passages: Passages,
    chunks: Sequence[Sequence[int]],
    passage_vectors_PD: Vectors,
    sentences: Sentences,
    encode: EncodeByIds,
    settings: IndexSettings,
    write: WriteSummaries | None = None,
    last: LastHierarchy | None = None,
) -> Hierarchy:
    """Build `settings.layers` layers over the passages.

    `chunks` are runs of passage numbers that make one large chunk each, of two passages at least. A community
    of one node is not summarised either: the node itself says it all.
    """
    building = _Builder(passages, [passage_vectors_PD])
    _add_summaries(building, chunks, 0, sentences, encode, settings, write)
    members = np.arange(len(building))
    for layer in range(settings.layers):
        vectors_LD = building.vectors[-1] if layer or len(building.vectors) == 1 else Vectors.join(building.vectors)
        ids = building.ids(members)
        known = None if last is None else last.edges_among(ids)
        graph = similarity_graph(vectors_LD, settings.neighbours, settings.min_similarity, known)
        building.edges.append((members, graph.tocoo()))
        if layer + 1 == settings.layers or len(members) < 2:
            break
        if last is not None and last.carry:
            community_L = carry_communities(graph, last.communities(ids, layer))
        else:
            community_L = find_communities(graph, settings.communities, settings.seed)
        before = len(building)
        groups = [members[group].tolist() for group in _groups(community_L) if len(group) > 1]
        _add_summaries(building, groups, layer + 1, sentences, encode, settings, write)
        members = np.arange(before, len(building))
        if len(members) == 0:
            break
    nodes = [summary.node for summary in building.summaries]
    vectors_SD = encode([node.id for node in nodes], [node.text for node in nodes])
    return Hierarchy(tuple(building.summaries), vectors_SD, _join_edges(building.edges, len(building)))


def _add_summaries(
    building: _Builder,
    groups: Sequence[Sequence[int]],
    layer: int,
    sentences: Sentences,
    encode: EncodeByIds,
    settings: IndexSettings,
    write: WriteSummaries | None,
) -> None:
    pools = [tuple(dict.fromkeys(row for member in group for row in building.pool(member))) for group in groups]
    filled = [(group, pool) for group, pool in zip(groups, pools, strict=True) if pool]
    texts = [[building.text(member) for member in group] for group, _ in filled] if write else []
    written = write(texts) if write and texts else [""] * len(filled)
    added = []
    for (group, pool), by_model in zip(filled, written, strict=True):
        extract, chosen = sentences.summarise(pool, settings.max_summary_tokens)
        text = by_model or extract
        members = sorted(each.decode() for each in building.ids(np.array(group)).tolist())
        identity = content_id("summary", str(layer), text, *members)
        added.append(SummaryNode(Node(identity, text, chosen), layer, tuple(group)))
    if added:
        building.vectors.append(encode([new.node.id for new in added], [new.node.text for new in added]))
        building.summaries += added


def _groups(membership_N: Ints) -> Iterator[Ints]:
    order = np.argsort(membership_N, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(membership_N[order])) + 1)


def _join_edges(layers: Sequence[tuple[Ints, sp.coo_array]], count: int) -> sp.csr_array:
    rows = np.concatenate([members[graph.coords[0]] for members, graph in layers])
    columns = np.concatenate([members[graph.coords[1]] for members, graph in layers])
    cosines = np.concatenate([graph.data for _, graph in layers]).astype(np.float32)
    return sp.csr_array(sp.coo_array((cosines, (rows, columns)), shape=(count, count)))

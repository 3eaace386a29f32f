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
from graph.store.arrays import rows_among
from graph.store.segments import IdBytes, Rows, Vectors
from graph.store.settings import IndexSettings

EncodeByIds = Callable[[Sequence[str], Sequence[str]], Vectors]
"""Ids and texts to unit vectors [N, D]; what was encoded before under the same id is not encoded again."""


@dataclass(frozen=True)
class Node:
    """A node of the graph: its id, its text and the propositions (rows, in reading order) that it stands for."""

    id: str
    text: str
    pool: tuple[int, ...]


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

    def edges_among(self, ids: Sequence[str]) -> KnownGraph:
        """What it knows of the similarity graph of the nodes with these ids."""
        return KnownGraph(self.edges, rows_among(ids, self.ids))

    def communities(self, ids: Sequence[str], layer: int) -> Ints:
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
    nodes: list[Node]
    vectors: list[Vectors]
    summaries: list[SummaryNode] = field(default_factory=list)
    edges: list[tuple[Ints, sp.coo_array]] = field(default_factory=list)


def build_hierarchy(
    passages: Sequence[Node],
    chunks: Sequence[Sequence[int]],
    passage_vectors_PD: Vectors,
    sentences: Sentences,
    encode: EncodeByIds,
    settings: IndexSettings,
    write: WriteSummaries | None = None,
    last: LastHierarchy | None = None,
) -> Hierarchy:
    """Build `settings.layers` layers over the passages.

    `chunks` are runs of passage numbers that make one large chunk each; a chunk of one passage needs no summary. A community
    of one node is not summarised either: the node itself says it all.
    """
    building = _Builder(list(passages), [passage_vectors_PD])
    _add_summaries(building, [chunk for chunk in chunks if len(chunk) > 1], 0, sentences, encode, settings, write)
    members = np.arange(len(building.nodes))
    for layer in range(settings.layers):
        vectors_LD = building.vectors[-1] if layer or len(building.vectors) == 1 else Vectors.join(building.vectors)
        ids = [building.nodes[member].id for member in members.tolist()]
        known = None if last is None else last.edges_among(ids)
        graph = similarity_graph(vectors_LD, settings.neighbours, settings.min_similarity, known)
        building.edges.append((members, graph.tocoo()))
        if layer + 1 == settings.layers or len(members) < 2:
            break
        if last is not None and last.carry:
            community_L = carry_communities(graph, last.communities(ids, layer))
        else:
            community_L = find_communities(graph, settings.communities, settings.seed)
        before = len(building.nodes)
        groups = [members[group].tolist() for group in _groups(community_L) if len(group) > 1]
        _add_summaries(building, groups, layer + 1, sentences, encode, settings, write)
        members = np.arange(before, len(building.nodes))
        if len(members) == 0:
            break
    nodes = [summary.node for summary in building.summaries]
    vectors_SD = encode([node.id for node in nodes], [node.text for node in nodes])
    return Hierarchy(tuple(building.summaries), vectors_SD, _join_edges(building.edges, len(building.nodes)))


def _add_summaries(
    building: _Builder,
    groups: Sequence[Sequence[int]],
    layer: int,
    sentences: Sentences,
    encode: EncodeByIds,
    settings: IndexSettings,
    write: WriteSummaries | None,
) -> None:
    pools = [tuple(dict.fromkeys(row for member in group for row in building.nodes[member].pool)) for group in groups]
    filled = [(group, pool) for group, pool in zip(groups, pools, strict=True) if pool]
    texts = [[building.nodes[member].text for member in group] for group, _ in filled] if write else []
    written = write(texts) if write and texts else [""] * len(filled)
    added = []
    for (group, pool), by_model in zip(filled, written, strict=True):
        extract, chosen = sentences.summarise(pool, settings.max_summary_tokens)
        text = by_model or extract
        identity = content_id("summary", str(layer), text, *sorted(building.nodes[member].id for member in group))
        added.append(SummaryNode(Node(identity, text, chosen), layer, tuple(group)))
    if added:
        building.vectors.append(encode([new.node.id for new in added], [new.node.text for new in added]))
        building.summaries += added
        building.nodes += [new.node for new in added]


def _groups(membership_N: Ints) -> Iterator[Ints]:
    order = np.argsort(membership_N, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(membership_N[order])) + 1)


def _join_edges(layers: Sequence[tuple[Ints, sp.coo_array]], count: int) -> sp.csr_array:
    rows = np.concatenate([members[graph.coords[0]] for members, graph in layers])
    columns = np.concatenate([members[graph.coords[1]] for members, graph in layers])
    cosines = np.concatenate([graph.data for _, graph in layers]).astype(np.float32)
    return sp.csr_array(sp.coo_array((cosines, (rows, columns)), shape=(count, count)))

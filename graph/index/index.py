"""The reader's view of an index: arrays in memory, objects on demand, and the encoder that made its vectors.

An Index is read-only, so any number of threads may share it. This file also contains the lookup of rows by name, BM25 over all passages,
which caches the scores of frequent terms, and an index that is reopened after each write.
Legend: P passages, W terms."""

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.config import parse_settings
from graph.errors import UserError
from graph.hierarchy.communities import find_communities
from graph.index.filters import (
    Condition,
    allowed_documents,
    arrays_of,
    conceal_other_documents,
    documents_meeting,
    restrict,
    unshared_arrays,
)
from graph.models.encoder import check_encoder, open_encoder, unit_rows
from graph.random_walk import Chain, bipartite_transition, make_chain, row_normalised
from graph.shared.ids import content_id, is_id
from graph.store.arrays import load_arrays
from graph.store.columns.moved import Block, find_ids, take_rows
from graph.store.columns.strings import rows_among, rows_among_sorted
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.store.manifest import MANIFEST, Manifest, read_manifest
from graph.text.bm25 import bm25
from graph.text.sentences import Cells, headers_at
from graph.text.word_forms import MARKS, UNSPACED
from graph.types import Encoder, Floats, Ints, OpenEncoder, Passage, Proposition, Span, Summary

PROPOSITIONS_SEARCHED = 4
"""How many propositions of an entity are searched for the spelling of its name."""
NodeKind: TypeAlias = Literal["document", "passage", "proposition", "entity", "summary"]


def row_of(data: IndexData, kind: NodeKind, name: str) -> int | None:
    """The row of a document by its source, or of another node by its id; None if it is not in the index."""
    if kind == "document":
        row = bisect_left(data.document_sources, name)
        return row if row < len(data.document_sources) and data.document_sources[row] == name else None
    if not is_id(name):
        return None
    column, find = {
        "passage": (data.passage_ids, rows_among),
        "summary": (data.summary_ids, rows_among),
        "proposition": (data.proposition_ids, rows_among_sorted),
        "entity": (data.entity_ids, rows_among_sorted),
    }[kind]
    (row,) = find_ids(column, [name], find).tolist()
    return None if row < 0 else int(row)


FREQUENT_SHARE = 1 / 8
"""A term is frequent if at least this share of the passages contain it."""
MAX_CACHED_BYTES = 128 << 20
"""Size limit of the cached scores of frequent terms; the least recently used are evicted first."""


class TermScores:
    """BM25 scores of one index; thread-safe."""

    def __init__(self, count_WP: Block, passages_W: Ints, idf_W: Floats, norm_P: NDArray[np.float64]) -> None:
        def add(row: int, scores_P: Floats) -> None:
            """Add a term's scores to those of the passages that contain it."""
            counts = take_rows(count_WP, np.array([row]))
            scores_P[counts.indices] += bm25(counts.data, idf_W[row], norm_P[counts.indices])

        @lru_cache(max(1, MAX_CACHED_BYTES // max(1, 4 * len(norm_P))))
        def frequent(row: int) -> Floats:
            """A frequent term's scores for all passages: float32[P]."""
            scores_P = np.zeros(len(norm_P), np.float32)
            add(row, scores_P)
            return scores_P

        self._passages, self._passages_W = len(norm_P), passages_W
        self._add, self._frequent = add, frequent

    @property
    def cached_bytes(self) -> int:
        """The size of the cached scores."""
        return self._frequent.cache_info().currsize * 4 * self._passages

    def sum(self, rows: Sequence[int]) -> Floats:
        """BM25 of every passage for the terms in `rows`, each counted as often as it occurs there: float32[P]."""
        scores_P = np.zeros(self._passages, np.float32)
        for row in rows:
            if self._passages_W[row] >= FREQUENT_SHARE * len(scores_P):
                scores_P += self._frequent(row)
            else:
                self._add(row, scores_P)
        return scores_P


MAX_CLIQUE_ENTITIES = 8
LEIDEN_ITERATIONS = 2
"""For communities detected at query time: a tenth of the time, .004 less modularity than at convergence (8k passages)."""
SAMPLED_PROPOSITIONS = 1_000
MAX_RESTRICTED_BYTES = 256 << 20
"""Size limit of cached filtered indexes (copies and computed data); the least recently used are evicted first."""


@dataclass(frozen=True)
class Index:
    """One generation of an index, as `manifest` describes it. Rows are those of `data` (see graph/store/data.py for the legend)."""

    folder: Path
    manifest: Manifest
    settings: IndexSettings
    data: IndexData
    encoder_source: "EncoderSource"
    copied_bytes: int = field(default=0, repr=False, compare=False)
    """The memory of `data` that a restricted index does not share with the whole one."""
    _restricted: "OrderedDict[tuple[Condition, ...], Index]" = field(
        default_factory=OrderedDict, init=False, repr=False, compare=False
    )
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """The unit vectors [Q, D] of queries, from the index's encoder (loaded on the first call)."""
        return unit_rows(self.encoder_source.get().encode_queries(texts))

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        """The unit vectors [N, D] of texts, encoded like those of the index."""
        return unit_rows(self.encoder_source.get().encode(texts))

    def count_tokens(self, text: str) -> int:
        """The number of a text's tokens, as the index's encoder counts them."""
        return self.encoder_source.get().count_tokens(text)

    def where(self, conditions: tuple[Condition, ...]) -> "Index":
        """The index restricted to the documents that meet all conditions; this index itself if there are no conditions.

        The most recently used restricted indexes are cached, as many as fit into MAX_RESTRICTED_BYTES. UserError as in graph/index/filters.py.
        """
        if not conditions:
            return self
        with self._lock:
            part = self._restricted.pop(conditions, None)
            if part is None:
                data = restrict(self.data, allowed_documents(self.data, conditions))
                copied = sum(array.nbytes for array in unshared_arrays(data, self.data))
                part = replace(self, data=data, copied_bytes=copied)
            self._restricted[conditions] = part
            size = sum(each.extra_bytes for each in self._restricted.values())
            while self._restricted and size > MAX_RESTRICTED_BYTES:
                size -= self._restricted.popitem(last=False)[1].extra_bytes
            return part

    def only(self, conditions: tuple[Condition, ...]) -> "Index":
        """The index for a reader with access only to the documents that meet all conditions; empty if none does.

        Unlike the index that `where` returns, it contains no name, term or weight from other documents (graph/index/filters.py), and is not cached.
        """
        part = restrict(self.data, documents_meeting(self.data, conditions))
        return self if part is self.data else replace(self, data=conceal_other_documents(self.data, part))

    @property
    def extra_bytes(self) -> int:
        """The memory that a restricted index needs in addition to the whole: copies, and data computed from them."""
        computed = [value for name, value in list(self.__dict__.items()) if name not in self.__dataclass_fields__]
        scores = sum(value.cached_bytes for value in computed if isinstance(value, TermScores))
        return self.copied_bytes + scores + sum(array.nbytes for value in computed for array in arrays_of(value))

    def passage(self, row: int) -> Passage:
        data, document = self.data, int(self.data.passage_document_P[row])
        return Passage(
            id=data.passage_ids[row],
            source=data.document_sources[document],
            title=data.document_titles[document],
            order=int(data.passage_order_P[row]),
            start=int(data.passage_start_P[row]),
            end=int(data.passage_end_P[row]),
            text=data.passage_texts[row],
            header=self._table_header(row),
        )

    def _table_header(self, row: int) -> Cells:
        """The header of the table in which a passage begins; () outside a table. It is found for all passages of the table at once."""
        known, data = self._table_headers, self.data
        if row not in known:
            first, end = row, row + 1
            while self._may_continue_table(first):
                first -= 1
            while end < len(data.passage_order_P) and self._may_continue_table(end):
                end += 1
            text, starts = join_passages(
                [data.passage_texts[each] for each in range(first, end)],
                self._gaps(first, end),
                self._break_width(int(data.passage_document_P[row])),
            )
            known.update(zip(range(first, end), headers_at(text, starts), strict=True))
        return known[row]

    def _may_continue_table(self, row: int) -> bool:
        """Whether a passage may continue a table or a row of the passage before it, and not begin with prose on a new line."""
        if not self.data.passage_order_P[row]:
            return False
        before, text = self.data.passage_texts[row - 1], self.data.passage_texts[row]
        if "\n" in before + text or ("|" not in before and self._gaps(row, row + 1)[0] > 1):
            return text.lstrip().startswith("|")
        return True

    def _gaps(self, first: int, end: int) -> list[int]:
        """The width of the white space before each of these passages."""
        starts, ends = self.data.passage_start_P[first:end], self.data.passage_end_P
        return [int(start - ends[row - 1]) for row, start in enumerate(starts.tolist(), first)]

    def _break_width(self, document: int) -> int:
        """The width of a document's line breaks: 2 (CRLF) or 1, by the first passage that contains one."""
        known, data = self._break_widths, self.data
        if document not in known:
            first, end = np.searchsorted(data.passage_document_P, [document, document + 1]).tolist()
            texts = (data.passage_texts[row] for row in range(first, end))
            known[document] = 2 if "\r\n" in next((text for text in texts if "\n" in text), "") else 1
        return known[document]

    @cached_property
    def _break_widths(self) -> dict[int, int]:
        """The widths found so far, by document."""
        return {}

    @cached_property
    def _table_headers(self) -> dict[int, Cells]:
        """The headers found so far, by passage."""
        return {}

    def proposition(self, row: int) -> Proposition:
        """The proposition in a row, with its entities and the spans of all its occurrences."""
        data = self.data
        entities = data.proposition_entity_NE[[row], :].indices
        first, last = np.searchsorted(data.occurrence_proposition_M, [row, row + 1])
        return Proposition(
            id=data.proposition_ids[row],
            text=data.proposition_texts[row],
            entities=tuple(sorted((self.entity_name(entity, [row]) for entity in entities), key=str.casefold)),
            spans=tuple(self._span(occurrence) for occurrence in range(first, last)),
        )

    def entity_name(self, row: int, propositions: Iterable[int] | None = None) -> str:
        """An entity's name as spelt in the first of `propositions` that contains it (None: the first few that mention it), else its key, in lower case."""
        key = self.data.entity_texts[row]
        if propositions is None:
            start, end = self.entity_proposition_EN.indptr[row : row + 2]
            propositions = self.entity_proposition_EN.indices[start:end][:PROPOSITIONS_SEARCHED]
        for proposition in propositions:
            text = self.data.proposition_texts[int(proposition)]
            at = _find_words(text.lower(), key)
            if at >= 0 and len(text.lower()) == len(text):
                return text[at : at + len(key)]
        return key

    def rows_of(self, passages: Sequence[Passage]) -> Ints:
        """The rows of passages that `passage` returned: int64[R]."""
        documents = [row_of(self.data, "document", each.source) or 0 for each in passages]
        first_R = np.searchsorted(self.data.passage_document_P, documents)
        return first_R + np.array([each.order for each in passages], np.int64)

    def summary(self, row: int) -> Summary:
        """The summary in a row, with the ids of all passages below it."""
        data = self.data
        below = sorted(self._passages_below(len(data.passage_ids) + row))
        members = tuple(data.passage_ids[passage] for passage in below)
        return Summary(data.summary_ids[row], int(data.summary_layer_S[row]), data.summary_texts[row], members)

    def sources(self) -> tuple[str, ...]:
        """The sources of all documents, sorted."""
        return tuple(self.data.document_sources)

    def passages_of(self, source: str) -> tuple[Passage, ...]:
        """The passages of one document in order; none if the index has no such document."""
        document = row_of(self.data, "document", source)
        if document is None:
            return ()
        first, end = np.searchsorted(self.data.passage_document_P, [document, document + 1]).tolist()
        return tuple(self.passage(row) for row in range(first, end))

    @cached_property
    def term_scores(self) -> TermScores:
        data = self.data
        return TermScores(data.term_count_WP, data.term_passages_W, data.term_idf_W, data.term_norm_P)

    def entity_rows(self, keys: Sequence[str]) -> Ints:
        """The row of the entity with each key (an entity's id is the hash of its key), −1 if it is not in the index: int64[K]."""
        return find_ids(self.data.entity_ids, [content_id("entity", key) for key in keys])

    @cached_property
    def sample_SD(self) -> Floats:
        """The vectors of at most SAMPLED_PROPOSITIONS evenly spaced propositions, to estimate how similar a question is to most propositions."""
        count = len(self.data.proposition_ids)
        rows = np.arange(0, count, max(1, -(-count // SAMPLED_PROPOSITIONS)))
        return np.asarray(self.data.proposition_vectors_ND[rows], np.float32)

    @cached_property
    def entity_proposition_EN(self) -> sp.csr_array:
        return sp.csr_array(self.data.proposition_entity_NE.T)

    @cached_property
    def proposition_passage_NP(self) -> sp.csr_array:
        return sp.csr_array(self.data.passage_proposition_PN.T)

    @cached_property
    def incidence_NB(self) -> sp.csr_array:
        """ToPG's A: 1 where a proposition (row) has a hub (column); the columns are entities, then passages."""
        incidence = sp.hstack([self.data.proposition_entity_NE, self.proposition_passage_NP], format="csr")
        incidence.data = np.ones_like(incidence.data)
        return incidence

    @cached_property
    def bipartite_chain(self) -> Chain:
        """The walk between propositions and their hubs: N + B vertices, propositions first."""
        return make_chain(bipartite_transition(self.incidence_NB))

    @cached_property
    def association_VV(self) -> sp.csr_array:
        """PropRAG's graph as a walk: edges between entities of one proposition, between synonyms, and between entities and passages.

        Transition CSR[E + P, E + P], entities first. Every edge weighs 1 before rows are scaled, even if it belongs to several of these kinds;
        a proposition with more than MAX_CLIQUE_ENTITIES entities links them to its passages only.
        """
        data = self.data
        entities_N = np.diff(data.proposition_entity_NE.indptr)
        small_NE = data.proposition_entity_NE[np.flatnonzero(entities_N <= MAX_CLIQUE_ENTITIES), :]
        adjacent_EE = sp.csr_array(small_NE.T @ small_NE + data.synonym_EE)
        adjacent_EE.setdiag(0)
        adjacent_EE.eliminate_zeros()
        mentions_PE = data.passage_proposition_PN @ data.proposition_entity_NE
        graph = sp.block_array([[adjacent_EE, mentions_PE.T], [mentions_PE, None]], format="csr")
        graph.data[:] = 1
        return row_normalised(graph)

    @cached_property
    def association_chain(self) -> Chain:
        return make_chain(self.association_VV)

    @cached_property
    def hub_graph_VV(self) -> sp.csr_array:
        """Propositions linked to their hubs: symmetric CSR[V, V] of ones, with the rows of `bipartite_chain`."""
        incidence_NB = self.incidence_NB
        return sp.block_array([[None, incidence_NB], [incidence_NB.T, None]], format="csr")

    @cached_property
    def communities_V(self) -> Ints:
        """The community of every vertex of `hub_graph_VV`: int64[V]."""
        return find_communities(self.hub_graph_VV, "igraph", self.settings.seed, LEIDEN_ITERATIONS)

    def _span(self, occurrence: int) -> Span:
        data, passage = self.data, int(self.data.occurrence_passage_M[occurrence])
        return Span(
            passage_id=data.passage_ids[passage],
            source=data.document_sources[int(data.passage_document_P[passage])],
            start=int(data.occurrence_start_M[occurrence]),
            end=int(data.occurrence_end_M[occurrence]),
        )

    def _passages_below(self, node: int) -> set[int]:
        passages = len(self.data.passage_ids)
        if node < passages:
            return {node}
        members: Sequence[int] = self.data.summary_member_SX[[node - passages], :].indices.tolist()
        return set().union(*(self._passages_below(member) for member in members))


def join_passages(texts: Sequence[str], gaps: Sequence[int], break_width: int = 1) -> tuple[str, list[int]]:
    """The text of consecutive passages, and the offset of each. `gaps` are the widths of the white space before them, which is not known: line breaks
    of `break_width` characters, or the blanks at which a row was cut.

    Only a row that is longer than a passage is cut, and not before a bar (graph/documents/split.py). So none of its parts contains a line break, only the
    first begins with a bar, and the last is assumed to end with one.

    >>> join_passages(["| Quay |", "3 |", "| Mill | 4", "pence |", "End."], [0, 1, 1, 1, 1])
    ('| Quay | 3 |\\n| Mill | 4 pence |\\nEnd.', [0, 9, 13, 24, 32])
    """
    lines = list[list[int]]()
    for number, text in enumerate(texts):
        if not number or "\n" in texts[number - 1] + text or text.lstrip().startswith("|"):
            lines.append([])
        lines[-1].append(number)
    joined, starts = "", list[int]()
    for line in lines:
        closed = [number for number in line if texts[number].rstrip().endswith("|")]
        row_end = (closed or line)[-1] if texts[line[0]].lstrip().startswith("|") else line[0]
        for number in line:
            if number:
                is_cut = line[0] < number <= row_end
                joined += " " * gaps[number] if is_cut else "\n" * -(-gaps[number] // break_width)
            starts.append(len(joined))
            joined += texts[number]
    return joined, starts


_INSIDE_WORD = re.compile(rf"(?:[^\W{UNSPACED}]|[{MARKS}]){{2}}")


def _find_words(text: str, words: str) -> int:
    """The offset of `words` in a text, −1 if absent; in scripts with spaces, they neither begin nor end inside a word of the text.

    >>> _find_words("mario said that ai helps.", "ai"), _find_words("古い灯台の鐘", "灯台"), _find_words("said", "ai")
    (16, 2, -1)
    """
    at = text.find(words)
    while at >= 0 and any(_INSIDE_WORD.match(text[max(0, end - 1) : end + 1]) for end in (at, at + len(words))):
        at = text.find(words, at + 1)
    return at


class EncoderSource:
    """Loads the encoder once, on first use, and refuses one whose fingerprint is not the index's."""

    def __init__(self, spec: str, manifest: Manifest, folder: Path, open_by_spec: OpenEncoder) -> None:
        self._spec, self._manifest, self._folder, self._open = spec, manifest, folder, open_by_spec
        self.fingerprint = manifest.encoder
        self._lock = Lock()
        self._encoder: Encoder | None = None

    def get(self) -> Encoder:
        """The encoder; UserError when its weights or prompts are not those that the index was made with."""
        with self._lock:
            if self._encoder is None:
                encoder = self._open(self._spec)
                check_encoder(self.fingerprint, encoder, self._folder, self._manifest.prompts)
                self._encoder = encoder
            return self._encoder


def open_index(folder: Path | str, open_by_spec: OpenEncoder = open_encoder) -> Index:
    """The current generation of the index in `folder`; UserError when there is none, or when one of its files is missing or truncated."""
    folder = Path(folder)
    manifest, data = _load(folder)
    settings = parse_settings(IndexSettings, manifest.settings, str(folder / MANIFEST))
    encoder_source = EncoderSource(settings.encoder, manifest, folder, open_by_spec)
    return Index(folder, manifest, settings, data, encoder_source)


def _load(folder: Path) -> tuple[Manifest, IndexData]:
    """The manifest and its arrays; those of a later generation if a writer has removed the files in the meantime."""
    manifest = read_manifest(folder)
    try:
        return manifest, load_arrays(folder, IndexData, manifest)
    except (UserError, FileNotFoundError):
        if read_manifest(folder).generation == manifest.generation:
            raise
        return _load(folder)


class FreshIndex:
    """The current generation of the index in `folder`, reopened after writes; the encoder is opened once. Threads may share it."""

    def __init__(self, folder: Path, open_by_spec: OpenEncoder) -> None:
        self.folder = folder
        self.open_encoder = cache(open_by_spec)
        self._lock = Lock()
        self._index = open_index(folder, self.open_encoder)

    def get(self) -> Index:
        """The current index; UserError when it cannot be opened."""
        with self._lock:
            if read_manifest(self.folder).identity != self._index.manifest.identity:
                self._index = open_index(self.folder, self.open_encoder)
            return self._index

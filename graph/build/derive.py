"""From index.sqlite to arrays: what the last generation has is moved to where it belongs now, what changed is read, encoded and put beside it.

An index made at once comes about in the same way, from nothing. Legend: see graph/store/data.py; L rows of the last generation, K new
ones, M occurrences, X pairs.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.build.entities import derive_entities
from graph.build.links import TOPICS, Propositions, linked_block, merge_linked, read_links
from graph.build.merge import Keyed, merge_by_id, rows_with
from graph.build.rows import Rows
from graph.extract.entities import title_keys
from graph.layers import similarity
from graph.layers.hierarchy import Hierarchy, LastHierarchy, Passages, Sentences, build_hierarchy
from graph.layers.model_summaries import WriteSummaries
from graph.shared.types import Ints
from graph.store.columns.blocks import Entries
from graph.store.columns.merge import Merge
from graph.store.columns.moved import Block, column_sums, entry_counts, moved_block, moved_strings, whole
from graph.store.columns.strings import Strings, id_bytes, rows_among
from graph.store.data import (
    DocumentColumns,
    IndexData,
    PassageColumns,
    PropositionColumns,
    SummaryColumns,
    TopicColumns,
    block,
    no_data,
)
from graph.store.quantiles import cosine_quantiles
from graph.store.settings import IndexSettings
from graph.store.store import Store
from graph.store.vectors import EmbeddingCache
from graph.text.bm25 import count_terms, term_weights


@dataclass(frozen=True)
class _Documents:
    """The columns, how they came of the last ones, and of each new one its source and in front of which of the last it stands."""

    columns: DocumentColumns
    merge: Merge
    sources: list[str]
    before_K: Ints


@dataclass(frozen=True)
class _Passages:
    """The columns, how they came of the last ones, and the rows of those that were read."""

    columns: PassageColumns
    merge: Merge
    read: Keyed


@dataclass(frozen=True)
class Kept:
    """What stays of the layers of the last generation where documents do.

    With `communities`, what is new joins them (graph/layers/communities.py); else they are found again. With `graphs`, nodes that stay are not
    searched again: the same bits up to graph/layers/similarity.py's FLAT_LIMIT nodes. With `summaries`, those whose members
    stay do: the same where no model wrote them nor is to write.
    """

    communities: bool = False
    graphs: bool = False
    summaries: bool = False


ALL_ANEW = Kept()


def derive_arrays(
    store: Store,
    last: IndexData | None,
    cache: EmbeddingCache,
    count_tokens: Callable[[str], int],
    settings: IndexSettings,
    write: WriteSummaries | None = None,
    changed: Sequence[str] | None = None,
    kept: Kept = ALL_ANEW,
) -> IndexData:
    """All arrays of the index as the store stands now; vectors come from `cache`, summaries from `write` if it is given.

    `changed` are the sources of the documents that are not as `last`, the generation before, has them; None reads all. The arrays do
    not depend on either, but for what `kept` says.
    """
    base = no_data() if last is None or changed is None else last
    rows = Rows(store, None if base is not last else changed)
    documents = _documents(rows, base)
    passages = _passages(rows, base, cache, documents)
    propositions, proposition_columns = _propositions(rows, base, cache, passages, kept)
    synonyms = last if kept.graphs else None
    entities = derive_entities(rows, base, synonyms, cache, documents.columns, documents.merge, propositions, settings)
    topics = _topics(rows, base, propositions)
    hierarchy = build_hierarchy(
        passages=_nodes(documents.columns, passages.columns, proposition_columns),
        chunks=_chunks(base, documents, passages, count_tokens, settings.max_chunk_tokens),
        passage_vectors_PD=passages.columns.passage_vectors_PD,
        sentences=Sentences(proposition_columns.proposition_vectors_ND, propositions.texts.__getitem__, count_tokens),
        encode=lambda ids, texts: cache.encode("summaries", ids, texts),
        settings=settings,
        write=write,
        last=None if last is None else _last_hierarchy(last, passages, propositions.merge, base is last, kept),
    )
    with store.transaction():
        store.put_summaries((s.id, s.layer, s.text) for s in hierarchy.summaries)
    summaries = _summaries(hierarchy, len(passages.columns.passage_ids))
    return IndexData.of(documents.columns, passages.columns, proposition_columns, entities, topics, summaries)


def encoded_text(title: str, text: str) -> str:
    """What the encoder sees of a passage: its document's title, then the text, unless the text opens with the title."""
    return text if not title or text.lstrip("# \n").startswith(title) else f"{title}\n{text}"


@dataclass(frozen=True)
class _EncodedTexts(Sequence[str]):
    """What the encoder sees of every passage, put together when it is asked for."""

    titles: Strings
    document_P: Ints
    texts: Strings

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        return encoded_text(self.titles[int(self.document_P[row])], self.texts[row])


def _documents(rows: Rows, base: IndexData) -> _Documents:
    read = rows.documents()
    before_K = np.array([bisect_left(base.document_sources, source) for source, _, _ in read], np.int64)
    merge = Merge.of(~rows_with(base.document_sources, rows.changed), before_K)
    sources, titles, metadata = ([each[part] for each in read] for part in range(3))
    keys, document_T = _title_keys(base, merge, before_K, titles)
    columns = DocumentColumns(
        document_sources=moved_strings(base.document_sources, merge, Strings.of(sources)),
        document_titles=moved_strings(base.document_titles, merge, Strings.of(titles)),
        document_metadata=moved_strings(base.document_metadata, merge, Strings.of(metadata)),
        title_keys=keys,
        title_document_T=document_T,
    )
    return _Documents(columns, merge, sources, before_K)


def _title_keys(base: IndexData, merge: Merge, before_K: Ints, titles: Sequence[str]) -> tuple[Strings, Ints]:
    """What documents are called, by key, then document, and the document of each; `titles` are those of new documents."""
    new = sorted((key, number) for number, title in enumerate(titles) for key in title_keys(title))

    def last_entry(row: int) -> tuple[str, int]:
        return base.title_keys[row], int(base.title_document_T[row])

    entries = range(len(base.title_keys))
    before = [bisect_left(entries, (key, before_K[number]), key=last_entry) for key, number in new]
    places_T = merge.place_L[base.title_document_T]
    of_titles = Merge.of(places_T >= 0, np.array(before, np.int64))
    documents_K = merge.new_K[np.array([number for _, number in new], np.int64)]
    keys = moved_strings(base.title_keys, of_titles, Strings.of(key for key, _ in new))
    return keys, of_titles.numbers(places_T, documents_K)


def _passages(rows: Rows, base: IndexData, cache: EmbeddingCache, documents: _Documents) -> _Passages:
    read, titles = rows.passages(), documents.columns.document_titles
    number_of = {source: number for number, source in enumerate(documents.sources)}
    number_K = np.array([number_of[source] for source in read.sources], np.int64)
    last_document_P = documents.merge.place_L[base.passage_document_P]
    merge = Merge.of(last_document_P >= 0, np.searchsorted(base.passage_document_P, documents.before_K[number_K]))
    ids = moved_strings(base.passage_ids, merge, Strings.of_ids(read.ids))
    texts = moved_strings(base.passage_texts, merge, Strings.of(rows.passage_text(int(key)) for key in read.key_K))
    document_P = merge.numbers(last_document_P, documents.merge.new_K[number_K])
    before = np.flatnonzero(document_P[1:] == document_P[:-1])
    encoded = _EncodedTexts(titles, document_P, texts)
    terms, count_WP = _terms(base, merge, encoded)
    idf_W, norm_P = term_weights(entry_counts(count_WP), column_sums(count_WP))
    columns = PassageColumns(
        passage_ids=ids,
        passage_texts=texts,
        passage_document_P=document_P,
        passage_order_P=merge.numbers(base.passage_order_P, read.place_K3[:, 0]),
        passage_start_P=merge.numbers(base.passage_start_P, read.place_K3[:, 1]),
        passage_end_P=merge.numbers(base.passage_end_P, read.place_K3[:, 2]),
        passage_vectors_PD=cache.encode("passages", ids, encoded, merge.last_N),
        passage_next_PP=block(before, before + 1, (len(document_P), len(document_P))),
        term_texts=terms,
        term_count_WP=count_WP,
        term_idf_W=idf_W,
        term_norm_P=norm_P,
    )
    order = np.argsort(read.key_K)
    return _Passages(columns, merge, Keyed(read.key_K[order], merge.new_K[order]))


def _terms(base: IndexData, passages: Merge, encoded: Sequence[str]) -> tuple[Strings, Block]:
    """The terms of all passages, in order, and how often each stands in each; only new passages are counted."""
    counted = count_terms(encoded[row] for row in passages.new_K.tolist())
    same = Merge.of_last(np.arange(len(base.term_texts)), len(base.term_texts))
    kept_W = entry_counts(moved_block(base.term_count_WP, same, passages, Entries.none())) > 0
    at_F = np.array([bisect_left(base.term_texts, term) for term in counted.terms], np.int64)
    known = [
        at < len(kept_W) and base.term_texts[at] == term for at, term in zip(at_F.tolist(), counted.terms, strict=True)
    ]
    merge, place_F = Merge.of_found(kept_W, at_F, np.array(known, bool))
    unknown = (term for term, is_known in zip(counted.terms, known, strict=True) if not is_known)
    texts = moved_strings(base.term_texts, merge, Strings.of(unknown))
    new = counted.count_WP.tocoo()
    added = Entries(place_F[new.coords[0]], passages.new_K[new.coords[1]], new.data)
    return texts, moved_block(base.term_count_WP, merge, passages, added)


def _propositions(
    rows: Rows, base: IndexData, cache: EmbeddingCache, passages: _Passages, kept: Kept
) -> tuple[Propositions, PropositionColumns]:
    """Propositions, and their occurrences by proposition, passage, start."""
    read_M4 = rows.occurrences()
    last_passage_M = passages.merge.place_L[base.occurrence_passage_M]
    kept_M = last_passage_M >= 0
    last_proposition_M = base.occurrence_proposition_M
    held_L = np.bincount(last_proposition_M[kept_M], minlength=len(base.proposition_ids)) > 0
    keys, found = rows.keys("propositions", np.unique(read_M4[:, 0]))
    text_of = rows.text_of("propositions", "text")
    named = merge_by_id(base.proposition_ids, base.proposition_texts, held_L, found, text_of)

    read_M4[:, 0] = Keyed.of(keys, found, named.ids).rows(read_M4[:, 0])
    read_M4[:, 1] = passages.read.rows(read_M4[:, 1])
    read_M4 = read_M4[np.lexsort(read_M4.T[::-1])]
    stayed = (
        named.merge.place_L[last_proposition_M[kept_M]],
        last_passage_M[kept_M],
        base.occurrence_start_M[kept_M],
        base.occurrence_end_M[kept_M],
    )
    # No passage has occurrences that stay and occurrences that were read, so there are no ties.
    count = len(passages.columns.passage_ids)
    before = np.searchsorted(stayed[0] * count + stayed[1], read_M4[:, 0] * count + read_M4[:, 1])
    proposition_M, passage_M, start_M, end_M = (
        np.insert(column, before, read) for column, read in zip(stayed, read_M4.T, strict=True)
    )
    changed_N = np.zeros(len(named.ids), bool)
    changed_N[read_M4[:, 0]] = True
    less = named.merge.place_L[last_proposition_M[~kept_M]]
    changed_N[less[less >= 0]] = True
    vectors_ND = cache.encode("propositions", named.ids, named.texts, named.merge.last_N)
    columns = PropositionColumns(
        proposition_ids=named.ids,
        proposition_texts=named.texts,
        proposition_vectors_ND=vectors_ND,
        occurrence_proposition_M=proposition_M,
        occurrence_passage_M=passage_M,
        occurrence_start_M=start_M,
        occurrence_end_M=end_M,
        passage_proposition_PN=moved_block(
            base.passage_proposition_PN, passages.merge, named.merge, Entries.ones(read_M4[:, 1], read_M4[:, 0])
        ),
        cosine_quantiles_Z=base.cosine_quantiles_Z
        if kept.communities and len(base.proposition_ids)
        else cosine_quantiles(vectors_ND),
    )
    return Propositions(named.merge, named.ids, named.texts, changed_N), columns


def _topics(rows: Rows, base: IndexData, propositions: Propositions) -> TopicColumns:
    last_NK = sp.csr_array(whole(base.topic_proposition_KN).T)
    read_N = propositions.changed_N
    found = read_links(rows, TOPICS, propositions, read_N)
    last = (base.topic_ids, base.topic_texts, last_NK)
    named = merge_linked(rows, TOPICS, last, propositions.were(read_N), found, {})
    linked = (found.proposition_X, found.rows(named.ids))
    if not len(named.ids):
        return TopicColumns(named.ids, named.texts, block(*linked, (0, len(propositions.ids))))
    return TopicColumns(
        topic_ids=named.ids,
        topic_texts=named.texts,
        topic_proposition_KN=sp.csr_array(whole(linked_block(last_NK, propositions, named.merge, read_N, *linked)).T),
    )


def _nodes(documents: DocumentColumns, passages: PassageColumns, propositions: PropositionColumns) -> Passages:
    encoded = _EncodedTexts(documents.document_titles, passages.passage_document_P, passages.passage_texts)
    return Passages(id_bytes(passages.passage_ids), encoded, propositions)


def _last_hierarchy(
    last: IndexData, passages: _Passages, propositions: Merge, moved: bool, kept: Kept
) -> LastHierarchy:
    """What is known of the hierarchy; passages are known by their rows if they were `moved` from there, else by their ids."""
    return LastHierarchy(
        last_P=passages.merge.last_N if moved else rows_among(last.passage_ids, passages.columns.passage_ids),
        passages=len(last.passage_ids),
        summary_ids=last.summary_ids,
        summary_texts=last.summary_texts,
        layer_S=last.summary_layer_S,
        member_SX=last.summary_member_SX,
        edges=last.similarity_XX if kept.graphs else None,
        carry=kept.communities,
        extractive=moved and kept.summaries,
        gone=[last.proposition_texts[row] for row in np.flatnonzero(propositions.place_L < 0).tolist()]
        if moved
        else (),
    )


def _chunks(
    base: IndexData, documents: _Documents, passages: _Passages, count_tokens: Callable[[str], int], max_tokens: int
) -> list[Ints]:
    """Runs of neighbouring passages of one document, together at most `max_tokens` long, where that is more than one.

    A summary of layer 0 is that of a chunk, so those of documents that stayed are known.
    """
    summaries = sp.csr_array(base.summary_member_SX[np.flatnonzero(base.summary_layer_S == 0), :])
    members = np.split(passages.merge.place_L[summaries.indices], summaries.indptr[1:-1])
    chunks = [part for part in members if len(part) and part[0] >= 0]
    document_P, new = passages.columns.passage_document_P, documents.merge.new_K
    first_K, end_K = (np.searchsorted(document_P, new, side) for side in ("left", "right"))
    for first, end in zip(first_K.tolist(), end_K.tolist(), strict=True):
        if end - first > 1:
            lengths = [count_tokens(passages.columns.passage_texts[row]) for row in range(first, end)]
            chunks += [np.array(run) for run in _runs(first, lengths, max_tokens) if len(run) > 1]
    return sorted(chunks, key=lambda chunk: int(chunk[0]))


def _runs(first: int, lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Numbers from `first` on in runs whose lengths add up to `most` at most; what is longer makes a run of its own."""
    run: list[int] = []
    room = 0
    for number, length in enumerate(lengths, start=first):
        if run and length > room:
            yield run
            run = []
        room = (room if run else most) - length
        run.append(number)
    if run:
        yield run


def _summaries(hierarchy: Hierarchy, passages: int) -> SummaryColumns:
    found = hierarchy.summaries
    rows = np.repeat(np.arange(len(found)), [len(summary.members) for summary in found])
    members = np.concatenate([np.zeros(0, np.int64), *(summary.members for summary in found)])
    return SummaryColumns(
        summary_ids=Strings.of(summary.id for summary in found),
        summary_texts=Strings.of(summary.text for summary in found),
        summary_layer_S=np.array([summary.layer for summary in found], np.int64),
        summary_vectors_SD=hierarchy.vectors_SD,
        summary_member_SX=block(rows, members, (len(found), passages + len(found))),
        similarity_XX=hierarchy.edges,
    )


def has_large_graph(data: IndexData) -> bool:
    """Whether a graph among entities or nodes of a layer is too large to be exact."""
    nodes = np.bincount(data.summary_layer_S, minlength=1)
    return max(len(data.entity_ids), len(data.passage_ids) + int(nodes[0])) > similarity.FLAT_LIMIT

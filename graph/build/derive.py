"""Derives arrays from the store's rows: rows of the last generation are moved; changed rows are read, encoded and merged with them.

A new index is built in the same way, from an empty last generation. Entities are in graph/build/derive_entities.py, terms at the end of
this file. Legend: see graph/store/data.py; L rows of the last generation, K new rows, M occurrences, X pairs, F terms of new passages."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.build.changes import (
    TOPICS,
    ChangedRows,
    Propositions,
    RowsByKey,
    columns_of_rows,
    find_texts,
    linked_block,
    merge_by_id,
    merge_linked,
    read_links,
    rows_with,
)
from graph.build.derive_entities import derive_entities
from graph.extract.entities import title_keys
from graph.hierarchy import similarity
from graph.hierarchy.layers import Hierarchy, LastHierarchy, Passages, Sentences, build_hierarchy
from graph.hierarchy.summaries import WriteSummaries, pack
from graph.store.columns.blocks import Entries, first_not_below
from graph.store.columns.moved import (
    Numbers,
    assembled,
    moved_block,
    moved_numbers,
    moved_strings,
    numbers_below,
    rows_holding,
    rows_with_numbers,
)
from graph.store.columns.row_map import NO_ROWS, RowMap, without_missing
from graph.store.columns.strings import Strings, rows_among
from graph.store.data import (
    DocumentColumns,
    IndexData,
    PassageColumns,
    PropositionColumns,
    SummaryColumns,
    TermColumns,
    TopicColumns,
    block,
    no_data,
)
from graph.store.embedding_cache import EmbeddingCache
from graph.store.index_settings import IndexSettings
from graph.store.rows import Store
from graph.store.vectors import cosine_quantiles
from graph.text.bm25 import count_terms, term_weights
from graph.types import Ints


def encoded_text(title: str, text: str) -> str:
    """The text to encode for a passage: its document's title, then its text, or only the text if that starts with the title."""
    return text if not title or text.lstrip("# \n").startswith(title) else f"{title}\n{text}"


@dataclass(frozen=True)
class EncodedTexts(Sequence[str]):
    """The text to encode for every passage, composed on access."""

    titles: Strings
    document_P: Numbers
    texts: Strings

    @classmethod
    def of(cls, data: IndexData) -> "EncodedTexts":
        return cls(data.document_titles, data.passage_document_P, data.passage_texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        return encoded_text(self.titles[int(self.document_P[row])], self.texts[row])


@dataclass(frozen=True)
class _Documents:
    """The columns, the map from the rows of the last generation, and, for each new document, its source and the row of the last generation that it precedes."""

    columns: DocumentColumns
    merge: RowMap
    sources: list[str]
    before_K: Ints


@dataclass(frozen=True)
class _Passages:
    """The columns, the map from the rows of the last generation, the rows of new passages by key, and the text to encode for each passage."""

    columns: PassageColumns
    merge: RowMap
    by_key: RowsByKey
    encoded: EncodedTexts


@dataclass(frozen=True)
class LayerReuse:
    """The parts of the last generation's layers that are reused.

    With `communities`, new nodes join existing communities (graph/hierarchy/communities.py) and the quantiles of cosines stay the same; else both are
    computed again. With `graphs`, neighbours are searched only for nodes that the edit affects: up to FLAT_LIMIT nodes
    (graph/hierarchy/similarity.py) the graphs equal newly computed ones bit for bit. With `summaries`, a summary is reused if its members are the same or,
    with `communities`, nearly the same; without `communities`, reused summaries equal newly written ones if no model has written or will write summaries,
    and edits have carried none over.
    """

    communities: bool
    graphs: bool
    summaries: bool


def derive_arrays(
    store: Store,
    last: IndexData | None,
    cache: EmbeddingCache,
    count_tokens: Callable[[str], int],
    settings: IndexSettings,
    write: WriteSummaries | None,
    changed: Sequence[str] | None,
    reuse: LayerReuse,
) -> IndexData:
    """All arrays of the index for the store's current rows; vectors come from `cache`, summaries from `write`, or from extracted sentences if it is None.

    `changed` are the sources of the documents that differ from `last`, the previous generation; if either is None, all documents are read. The arrays
    depend on `last` and `changed` only through `reuse`.
    """
    base = no_data() if last is None or changed is None else last
    rows = ChangedRows(store, None if base is not last else changed)
    documents = _documents(rows, base)
    passages = _passages(rows, base, cache, documents)
    propositions, proposition_columns = _propositions(rows, base, cache, passages, reuse)
    graph_source = last if reuse.graphs else None
    entities = derive_entities(
        rows, base, graph_source, cache, documents.columns, documents.merge, propositions, settings
    )
    terms = derive_terms(base, passages.merge, passages.encoded, EncodedTexts.of(base))
    topics = _topics(rows, base, propositions)
    hierarchy = build_hierarchy(
        passages=Passages(passages.columns.passage_ids, passages.encoded, proposition_columns),
        chunks=_chunks(base, documents, passages, count_tokens, settings.max_chunk_tokens),
        passage_vectors_PD=passages.columns.passage_vectors_PD,
        sentences=Sentences(proposition_columns.proposition_vectors_ND, propositions.texts.__getitem__, count_tokens),
        encode=lambda ids, texts: cache.encode("summaries", ids, texts),
        settings=settings,
        write=write,
        last=None if last is None else _last_hierarchy(last, passages, base is last, reuse),
    )
    with store.transaction():
        store.put_summaries((s.id, s.layer, s.text) for s in hierarchy.summaries)
    summaries = _summaries(hierarchy, len(passages.columns.passage_ids))
    return IndexData.of(documents.columns, passages.columns, terms, proposition_columns, entities, topics, summaries)


def _documents(rows: ChangedRows, base: IndexData) -> _Documents:
    new = rows.documents()
    before_K = np.array([bisect_left(base.document_sources, source) for source, _, _ in new], np.int64)
    merge = RowMap.of(len(base.document_sources), rows_with(base.document_sources, rows.changed), before_K)
    sources, titles, metadata = ([each[part] for each in new] for part in range(3))
    keys, document_T = _title_keys(base, merge, before_K, titles)
    columns = DocumentColumns(
        document_sources=moved_strings(base.document_sources, merge, Strings.of(sources)),
        document_titles=moved_strings(base.document_titles, merge, Strings.of(titles)),
        document_metadata=moved_strings(base.document_metadata, merge, Strings.of(metadata)),
        title_keys=keys,
        title_document_T=document_T,
    )
    return _Documents(columns, merge, sources, before_K)


def _title_keys(base: IndexData, merge: RowMap, before_K: Ints, titles: Sequence[str]) -> tuple[Strings, Ints]:
    """Title keys and the document of each, sorted by key, then document; `titles` are those of new documents."""
    new = sorted((key, number) for number, title in enumerate(titles) for key in title_keys(title))

    def last_entry(row: int) -> tuple[str, int]:
        return base.title_keys[row], int(base.title_document_T[row])

    entries = range(len(base.title_keys))
    before = [bisect_left(entries, (key, before_K[number]), key=last_entry) for key, number in new]
    gone = rows_holding(base.title_document_T, merge.deleted_G)
    title_map = RowMap.of(len(entries), gone, np.array(before, np.int64))
    documents_K = merge.inserted_K[np.array([number for _, number in new], np.int64)]
    keys = moved_strings(base.title_keys, title_map, Strings.of(key for key, _ in new))
    return keys, moved_numbers(base.title_document_T, title_map, documents_K, merge)


def _passages(rows: ChangedRows, base: IndexData, cache: EmbeddingCache, documents: _Documents) -> _Passages:
    new, titles = rows.passages(), documents.columns.document_titles
    number_of = {source: number for number, source in enumerate(documents.sources)}
    number_K = np.array([number_of[source] for source in new.sources], np.int64)
    merge = RowMap.of(
        len(base.passage_ids),
        rows_with_numbers(base.passage_document_P, documents.merge.deleted_G),
        numbers_below(base.passage_document_P, documents.before_K[number_K]),
    )
    ids = moved_strings(base.passage_ids, merge, Strings.of_ids(new.ids))
    texts = moved_strings(base.passage_texts, merge, Strings.of(rows.passage_texts(new)))
    document_P = moved_numbers(base.passage_document_P, merge, documents.merge.inserted_K[number_K], documents.merge)
    orders, starts, ends = (
        moved_numbers(column, merge, new_K)
        for column, new_K in zip(
            (base.passage_order_P, base.passage_start_P, base.passage_end_P), new.offsets_K3.T, strict=True
        )
    )
    documents_P = assembled(document_P)
    before = np.flatnonzero(documents_P[1:] == documents_P[:-1])
    encoded = EncodedTexts(titles, document_P, texts)
    order = np.argsort(new.key_K)
    columns = PassageColumns(
        passage_ids=ids,
        passage_texts=texts,
        passage_document_P=document_P,
        passage_order_P=orders,
        passage_start_P=starts,
        passage_end_P=ends,
        passage_vectors_PD=cache.encode("passages", ids, encoded, merge),
        passage_next_PP=block(before, before + 1, (len(ids), len(ids))),
    )
    return _Passages(columns, merge, RowsByKey(new.key_K[order], merge.inserted_K[order]), encoded)


def _propositions(
    rows: ChangedRows, base: IndexData, cache: EmbeddingCache, passages: _Passages, reuse: LayerReuse
) -> tuple[Propositions, PropositionColumns]:
    """Propositions, and their occurrences sorted by proposition, passage, start."""
    read_M4 = rows.occurrences()
    keys, ids = rows.keys("propositions", np.unique(read_M4[:, 0]))
    text_of = rows.text_of("propositions", "text")
    gone_M, gone_N = _lost_occurrences(base, passages.merge)
    by_id = merge_by_id(base.proposition_ids, base.proposition_texts, gone_N, ids, text_of)

    read_M4[:, 0] = RowsByKey.of(keys, ids, by_id.ids).rows(read_M4[:, 0])
    read_M4[:, 1] = passages.by_key.rows(read_M4[:, 1])
    read_M4 = read_M4[np.lexsort(read_M4.T[::-1])]
    # The occurrences just read are in new passages, so none of them ties with a remaining one.
    before_M = _positions_of_new_occurrences(base, by_id.merge, passages.merge, read_M4[:, 0], read_M4[:, 1])
    merge = RowMap.of(len(base.occurrence_proposition_M), gone_M, before_M)
    reduced = by_id.merge.current_rows(np.unique(base.occurrence_proposition_M[gone_M]))
    vectors_ND = cache.encode("propositions", by_id.ids, by_id.texts, by_id.merge)
    columns = PropositionColumns(
        proposition_ids=by_id.ids,
        proposition_texts=by_id.texts,
        proposition_vectors_ND=vectors_ND,
        occurrence_proposition_M=moved_numbers(base.occurrence_proposition_M, merge, read_M4[:, 0], by_id.merge),
        occurrence_passage_M=moved_numbers(base.occurrence_passage_M, merge, read_M4[:, 1], passages.merge),
        occurrence_start_M=moved_numbers(base.occurrence_start_M, merge, read_M4[:, 2]),
        occurrence_end_M=moved_numbers(base.occurrence_end_M, merge, read_M4[:, 3]),
        passage_proposition_PN=moved_block(
            base.passage_proposition_PN, passages.merge, by_id.merge, Entries.ones(read_M4[:, 1], read_M4[:, 0])
        ),
        cosine_quantiles_Z=base.cosine_quantiles_Z
        if reuse.communities and len(base.proposition_ids)
        else cosine_quantiles(vectors_ND),
    )
    return Propositions(
        by_id.merge, by_id.ids, by_id.texts, np.union1d(read_M4[:, 0], without_missing(reduced))
    ), columns


def _lost_occurrences(base: IndexData, passages: RowMap) -> tuple[Ints, Ints]:
    """The occurrences in deleted passages, and the propositions left without occurrences, ascending."""
    affected = columns_of_rows(base.passage_proposition_PN, passages.deleted_G)
    affected_M = rows_with_numbers(base.occurrence_proposition_M, affected)
    gone_M = affected_M[passages.current_rows(base.occurrence_passage_M[affected_M]) < 0]
    left_M = np.setdiff1d(affected_M, gone_M)
    return gone_M, np.setdiff1d(affected, base.occurrence_proposition_M[left_M])


def _positions_of_new_occurrences(
    base: IndexData, propositions: RowMap, passages: RowMap, proposition_M: Ints, passage_M: Ints
) -> Ints:
    """For each new occurrence, the row in the last generation that it precedes; propositions and (new) passages are given by current rows."""
    last_M = propositions.previous_or_next(proposition_M)
    known_M = propositions.previous_rows(proposition_M) >= 0
    first_M, end_M = (numbers_below(base.occurrence_proposition_M, last_M + known_M * more) for more in (0, 1))
    return first_not_below(base.occurrence_passage_M, first_M, end_M, passages.previous_or_next(passage_M))


def _topics(rows: ChangedRows, base: IndexData, propositions: Propositions) -> TopicColumns:
    last_NK = sp.csr_array(assembled(base.topic_proposition_KN).T)
    read_R = propositions.changed_R
    links = read_links(rows, TOPICS, propositions, read_R)
    last = (base.topic_ids, base.topic_texts, last_NK)
    topics = merge_linked(rows, TOPICS, last, propositions.last_rows(read_R), links, {})
    linked = (links.proposition_X, links.rows(topics.ids))
    if not len(topics.ids):
        return TopicColumns(topics.ids, topics.texts, block(*linked, (0, len(propositions.ids))))
    return TopicColumns(
        topic_ids=topics.ids,
        topic_texts=topics.texts,
        topic_proposition_KN=sp.csr_array(
            assembled(linked_block(last_NK, propositions, topics.merge, read_R, *linked)).T
        ),
    )


def _last_hierarchy(last: IndexData, passages: _Passages, moved: bool, reuse: LayerReuse) -> LastHierarchy:
    """The last hierarchy; its passages are matched by rows if the current rows were `moved` from it, else by ids."""
    of_deleted = columns_of_rows(last.passage_proposition_PN, passages.merge.deleted_G) if moved else NO_ROWS
    return LastHierarchy(
        last_P=passages.merge.previous_N if moved else rows_among(last.passage_ids, passages.columns.passage_ids),
        passages=len(last.passage_ids),
        summary_ids=last.summary_ids,
        summary_texts=last.summary_texts,
        layer_S=last.summary_layer_S,
        member_SX=last.summary_member_SX,
        edges=last.similarity_XX if reuse.graphs else None,
        carry=reuse.communities,
        extractive=moved and reuse.summaries,
        maybe_lost=[last.proposition_texts[row] for row in of_deleted.tolist()],
    )


def _chunks(
    base: IndexData, documents: _Documents, passages: _Passages, count_tokens: Callable[[str], int], max_tokens: int
) -> list[Ints]:
    """Runs of at least two neighbouring passages of one document, together at most `max_tokens` long.

    For unchanged documents, the members of layer-0 summaries are the chunks.
    """
    summaries = sp.csr_array(base.summary_member_SX[np.flatnonzero(base.summary_layer_S == 0), :])
    members = np.split(passages.merge.current_rows(summaries.indices), summaries.indptr[1:-1])
    chunks = [part for part in members if len(part) and part[0] >= 0]
    document_P, new = passages.columns.passage_document_P, documents.merge.inserted_K
    first_K, end_K = (numbers_below(document_P, new + more) for more in (0, 1))
    for first, end in zip(first_K.tolist(), end_K.tolist(), strict=True):
        if end - first > 1:
            runs = pack(range(first, end), lambda row: count_tokens(passages.columns.passage_texts[row]), max_tokens)
            chunks += [np.array(run) for run in runs if len(run) > 1]
    return sorted(chunks, key=lambda chunk: int(chunk[0]))


def _summaries(hierarchy: Hierarchy, passages: int) -> SummaryColumns:
    summaries = hierarchy.summaries
    rows = np.repeat(np.arange(len(summaries)), [len(summary.members) for summary in summaries])
    members = np.concatenate([np.zeros(0, np.int64), *(summary.members for summary in summaries)])
    return SummaryColumns(
        summary_ids=Strings.of(summary.id for summary in summaries),
        summary_texts=Strings.of(summary.text for summary in summaries),
        summary_layer_S=np.array([summary.layer for summary in summaries], np.int64),
        summary_vectors_SD=hierarchy.vectors_SD,
        summary_member_SX=block(rows, members, (len(summaries), passages + len(summaries))),
        similarity_XX=hierarchy.edges,
    )


def has_large_graph(data: IndexData) -> bool:
    """Whether there are too many entities, or passages and summaries of layer 0, for an exact similarity graph."""
    nodes = np.bincount(data.summary_layer_S, minlength=1)
    return max(len(data.entity_ids), len(data.passage_ids) + int(nodes[0])) > similarity.FLAT_LIMIT


def derive_terms(base: IndexData, passages: RowMap, texts: Sequence[str], last_texts: Sequence[str]) -> TermColumns:
    """All columns of terms; `texts` are those of the current passages, `last_texts` those of the last generation."""
    old_counts = count_terms(last_texts[row] for row in passages.deleted_G.tolist())
    passages_W = np.array(assembled(base.term_passages_W))
    old_F, _ = find_texts(base.term_texts, old_counts.terms)
    passages_W[old_F] -= np.diff(old_counts.count_WP.indptr)

    new_counts = count_terms(texts[row] for row in passages.inserted_K.tolist())
    at_F, known_F = find_texts(base.term_texts, new_counts.terms)
    lengths_K = np.asarray(new_counts.count_WP.sum(axis=0), np.int64)
    merge, place_F = RowMap.of_matches(len(passages_W), np.flatnonzero(passages_W == 0), at_F, known_F)
    passages_W = np.array(merge.apply(passages_W, np.zeros(len(merge.inserted_K), np.int64)))
    passages_W[place_F] += np.diff(new_counts.count_WP.indptr)
    unknown = (term for term, is_known in zip(new_counts.terms, known_F.tolist(), strict=True) if not is_known)
    new = new_counts.count_WP.tocoo()
    added = Entries(place_F[new.coords[0]], passages.inserted_K[new.coords[1]], new.data)
    terms_P = moved_numbers(base.passage_terms_P, passages, lengths_K)
    idf_W, norm_P = term_weights(passages_W, assembled(terms_P))
    return TermColumns(
        term_texts=moved_strings(base.term_texts, merge, Strings.of(unknown)),
        term_count_WP=moved_block(base.term_count_WP, merge, passages, added),
        term_passages_W=passages_W,
        passage_terms_P=terms_P,
        term_idf_W=idf_W,
        term_norm_P=norm_P,
    )

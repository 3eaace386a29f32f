"""From the store's rows to arrays: what the last generation has is moved to where it belongs now, what changed is read, encoded and put beside it.

An index made at once comes about in the same way, from nothing. Entities are in graph/build/derive_entities.py, terms at the end of this
file. Legend: see graph/store/data.py; L rows of the last generation, K new ones, M occurrences, X pairs, F terms found in what came."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from graph.build.changes import (
    TOPICS,
    ChangedRows,
    Propositions,
    RowsByKey,
    columns_of_rows,
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
from graph.hierarchy.summaries import WriteSummaries
from graph.store.columns.blocks import Entries, first_not_below
from graph.store.columns.moved import (
    Numbers,
    moved_block,
    moved_numbers,
    moved_strings,
    numbers_below,
    rows_holding,
    rows_with_numbers,
    whole,
)
from graph.store.columns.row_map import RowMap, existing
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
    """What the encoder sees of a passage: its document's title, then the text, unless the text opens with the title."""
    return text if not title or text.lstrip("# \n").startswith(title) else f"{title}\n{text}"


@dataclass(frozen=True)
class EncodedTexts(Sequence[str]):
    """What the encoder sees of every passage, put together when it is asked for."""

    titles: Strings
    document_P: Numbers
    texts: Strings

    @classmethod
    def of(cls, data: IndexData) -> "EncodedTexts":
        """Those of the passages of a generation."""
        return cls(data.document_titles, data.passage_document_P, data.passage_texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        return encoded_text(self.titles[int(self.document_P[row])], self.texts[row])


@dataclass(frozen=True)
class _Documents:
    """The columns, how they came of the last ones, and of each new one its source and in front of which of the last it stands."""

    columns: DocumentColumns
    merge: RowMap
    sources: list[str]
    before_K: Ints


@dataclass(frozen=True)
class _Passages:
    """The columns, how they came of the last ones, the rows of those that were read, and what the encoder sees of each."""

    columns: PassageColumns
    merge: RowMap
    read: RowsByKey
    encoded: EncodedTexts


@dataclass(frozen=True)
class LayerReuse:
    """What stays of the layers of the last generation where documents do.

    With `communities`, what is new joins them (graph/hierarchy/communities.py); else they are found again. With `graphs`, nodes that stay are not
    searched again: the same bits up to graph/hierarchy/similarity.py's FLAT_LIMIT nodes. With `summaries`, those whose members
    stay do: the same where no model wrote them nor is to write.
    """

    communities: bool = False
    graphs: bool = False
    summaries: bool = False


REUSE_NOTHING = LayerReuse()


def derive_arrays(
    store: Store,
    last: IndexData | None,
    cache: EmbeddingCache,
    count_tokens: Callable[[str], int],
    settings: IndexSettings,
    write: WriteSummaries | None = None,
    changed: Sequence[str] | None = None,
    kept: LayerReuse = REUSE_NOTHING,
) -> IndexData:
    """All arrays of the index as the store stands now; vectors come from `cache`, summaries from `write` if it is given.

    `changed` are the sources of the documents that are not as `last`, the generation before, has them; None reads all. The arrays do
    not depend on either, but for what `kept` says.
    """
    base = no_data() if last is None or changed is None else last
    rows = ChangedRows(store, None if base is not last else changed)
    documents = _documents(rows, base)
    passages = _passages(rows, base, cache, documents)
    propositions, proposition_columns = _propositions(rows, base, cache, passages, kept)
    synonyms = last if kept.graphs else None
    entities = derive_entities(rows, base, synonyms, cache, documents.columns, documents.merge, propositions, settings)
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
        last=None if last is None else _last_hierarchy(last, passages, propositions.merge, base is last, kept),
    )
    with store.transaction():
        store.put_summaries((s.id, s.layer, s.text) for s in hierarchy.summaries)
    summaries = _summaries(hierarchy, len(passages.columns.passage_ids))
    return IndexData.of(documents.columns, passages.columns, terms, proposition_columns, entities, topics, summaries)


def _documents(rows: ChangedRows, base: IndexData) -> _Documents:
    read = rows.documents()
    before_K = np.array([bisect_left(base.document_sources, source) for source, _, _ in read], np.int64)
    merge = RowMap.of(len(base.document_sources), rows_with(base.document_sources, rows.changed), before_K)
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


def _title_keys(base: IndexData, merge: RowMap, before_K: Ints, titles: Sequence[str]) -> tuple[Strings, Ints]:
    """What documents are called, by key, then document, and the document of each; `titles` are those of new documents."""
    new = sorted((key, number) for number, title in enumerate(titles) for key in title_keys(title))

    def last_entry(row: int) -> tuple[str, int]:
        return base.title_keys[row], int(base.title_document_T[row])

    entries = range(len(base.title_keys))
    before = [bisect_left(entries, (key, before_K[number]), key=last_entry) for key, number in new]
    gone = rows_holding(base.title_document_T, merge.gone_G)
    of_titles = RowMap.of(len(entries), gone, np.array(before, np.int64))
    documents_K = merge.new_K[np.array([number for _, number in new], np.int64)]
    keys = moved_strings(base.title_keys, of_titles, Strings.of(key for key, _ in new))
    return keys, moved_numbers(base.title_document_T, of_titles, documents_K, merge)


def _passages(rows: ChangedRows, base: IndexData, cache: EmbeddingCache, documents: _Documents) -> _Passages:
    read, titles = rows.passages(), documents.columns.document_titles
    number_of = {source: number for number, source in enumerate(documents.sources)}
    number_K = np.array([number_of[source] for source in read.sources], np.int64)
    merge = RowMap.of(
        len(base.passage_ids),
        rows_with_numbers(base.passage_document_P, documents.merge.gone_G),
        numbers_below(base.passage_document_P, documents.before_K[number_K]),
    )
    ids = moved_strings(base.passage_ids, merge, Strings.of_ids(read.ids))
    texts = moved_strings(base.passage_texts, merge, Strings.of(rows.passage_text(int(key)) for key in read.key_K))
    document_P = moved_numbers(base.passage_document_P, merge, documents.merge.new_K[number_K], documents.merge)
    orders, starts, ends = (
        moved_numbers(column, merge, new_K)
        for column, new_K in zip(
            (base.passage_order_P, base.passage_start_P, base.passage_end_P), read.place_K3.T, strict=True
        )
    )
    document_P_now = whole(document_P)
    before = np.flatnonzero(document_P_now[1:] == document_P_now[:-1])
    encoded = EncodedTexts(titles, document_P, texts)
    order = np.argsort(read.key_K)
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
    return _Passages(columns, merge, RowsByKey(read.key_K[order], merge.new_K[order]), encoded)


def _propositions(
    rows: ChangedRows, base: IndexData, cache: EmbeddingCache, passages: _Passages, kept: LayerReuse
) -> tuple[Propositions, PropositionColumns]:
    """Propositions, and their occurrences by proposition, passage, start."""
    read_M4 = rows.occurrences()
    keys, found = rows.keys("propositions", np.unique(read_M4[:, 0]))
    text_of = rows.text_of("propositions", "text")
    gone_M, gone_N = _lost_occurrences(base, passages.merge)
    named = merge_by_id(base.proposition_ids, base.proposition_texts, gone_N, found, text_of)

    read_M4[:, 0] = RowsByKey.of(keys, found, named.ids).rows(read_M4[:, 0])
    read_M4[:, 1] = passages.read.rows(read_M4[:, 1])
    read_M4 = read_M4[np.lexsort(read_M4.T[::-1])]
    # What was read stands in new passages, so there are no ties with what stays.
    before_M = _places_of_new_occurrences(base, named.merge, passages.merge, read_M4[:, 0], read_M4[:, 1])
    merge = RowMap.of(len(base.occurrence_proposition_M), gone_M, before_M)
    less = named.merge.places(np.unique(base.occurrence_proposition_M[gone_M]))
    vectors_ND = cache.encode("propositions", named.ids, named.texts, named.merge)
    columns = PropositionColumns(
        proposition_ids=named.ids,
        proposition_texts=named.texts,
        proposition_vectors_ND=vectors_ND,
        occurrence_proposition_M=moved_numbers(base.occurrence_proposition_M, merge, read_M4[:, 0], named.merge),
        occurrence_passage_M=moved_numbers(base.occurrence_passage_M, merge, read_M4[:, 1], passages.merge),
        occurrence_start_M=moved_numbers(base.occurrence_start_M, merge, read_M4[:, 2]),
        occurrence_end_M=moved_numbers(base.occurrence_end_M, merge, read_M4[:, 3]),
        passage_proposition_PN=moved_block(
            base.passage_proposition_PN, passages.merge, named.merge, Entries.ones(read_M4[:, 1], read_M4[:, 0])
        ),
        cosine_quantiles_Z=base.cosine_quantiles_Z
        if kept.communities and len(base.proposition_ids)
        else cosine_quantiles(vectors_ND),
    )
    return Propositions(named.merge, named.ids, named.texts, np.union1d(read_M4[:, 0], existing(less))), columns


def _lost_occurrences(base: IndexData, passages: RowMap) -> tuple[Ints, Ints]:
    """The occurrences in passages that are gone, and the propositions that have no other, in order."""
    asked = columns_of_rows(base.passage_proposition_PN, passages.gone_G)
    of_asked = rows_with_numbers(base.occurrence_proposition_M, asked)
    gone_M = of_asked[passages.places(base.occurrence_passage_M[of_asked]) < 0]
    kept_M = np.setdiff1d(of_asked, gone_M)
    return gone_M, np.setdiff1d(asked, base.occurrence_proposition_M[kept_M])


def _places_of_new_occurrences(
    base: IndexData, propositions: RowMap, passages: RowMap, proposition_M: Ints, passage_M: Ints
) -> Ints:
    """In front of which of the last occurrences those of such propositions in new passages stand, given as they are numbered now."""
    last_M = propositions.befores(proposition_M)
    known_M = propositions.lasts(proposition_M) >= 0
    first_M, end_M = (numbers_below(base.occurrence_proposition_M, last_M + known_M * more) for more in (0, 1))
    return first_not_below(base.occurrence_passage_M, first_M, end_M, passages.befores(passage_M))


def _topics(rows: ChangedRows, base: IndexData, propositions: Propositions) -> TopicColumns:
    last_NK = sp.csr_array(whole(base.topic_proposition_KN).T)
    read_R = propositions.changed_R
    found = read_links(rows, TOPICS, propositions, read_R)
    last = (base.topic_ids, base.topic_texts, last_NK)
    named = merge_linked(rows, TOPICS, last, propositions.were(read_R), found, {})
    linked = (found.proposition_X, found.rows(named.ids))
    if not len(named.ids):
        return TopicColumns(named.ids, named.texts, block(*linked, (0, len(propositions.ids))))
    return TopicColumns(
        topic_ids=named.ids,
        topic_texts=named.texts,
        topic_proposition_KN=sp.csr_array(whole(linked_block(last_NK, propositions, named.merge, read_R, *linked)).T),
    )


def _last_hierarchy(
    last: IndexData, passages: _Passages, propositions: RowMap, moved: bool, kept: LayerReuse
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
        gone=[last.proposition_texts[row] for row in propositions.gone_G.tolist()] if moved else (),
    )


def _chunks(
    base: IndexData, documents: _Documents, passages: _Passages, count_tokens: Callable[[str], int], max_tokens: int
) -> list[Ints]:
    """Runs of neighbouring passages of one document, together at most `max_tokens` long, where that is more than one.

    A summary of layer 0 is that of a chunk, so those of documents that stayed are known.
    """
    summaries = sp.csr_array(base.summary_member_SX[np.flatnonzero(base.summary_layer_S == 0), :])
    members = np.split(passages.merge.places(summaries.indices), summaries.indptr[1:-1])
    chunks = [part for part in members if len(part) and part[0] >= 0]
    document_P, new = passages.columns.passage_document_P, documents.merge.new_K
    first_K, end_K = (numbers_below(document_P, new + more) for more in (0, 1))
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


def derive_terms(base: IndexData, passages: RowMap, texts: Sequence[str], last_texts: Sequence[str]) -> TermColumns:
    """All columns; `texts` are those of the passages now, `last_texts` those of the last generation."""
    lost = count_terms(last_texts[row] for row in passages.gone_G.tolist())
    passages_W = np.array(whole(base.term_passages_W))
    passages_W[_term_places(base.term_texts, lost.terms)] -= np.diff(lost.count_WP.indptr)

    counted = count_terms(texts[row] for row in passages.new_K.tolist())
    at_F, lengths_K = _term_places(base.term_texts, counted.terms), np.asarray(counted.count_WP.sum(axis=0), np.int64)
    known_F = _known_terms(base.term_texts, at_F, counted.terms)
    merge, place_F = RowMap.of_found(len(passages_W), np.flatnonzero(passages_W == 0), at_F, known_F)
    passages_W = np.array(merge.put_in(passages_W, np.zeros(len(merge.new_K), np.int64)))
    passages_W[place_F] += np.diff(counted.count_WP.indptr)
    unknown = (term for term, is_known in zip(counted.terms, known_F.tolist(), strict=True) if not is_known)
    new = counted.count_WP.tocoo()
    added = Entries(place_F[new.coords[0]], passages.new_K[new.coords[1]], new.data)
    terms_P = moved_numbers(base.passage_terms_P, passages, lengths_K)
    idf_W, norm_P = term_weights(passages_W, whole(terms_P))
    return TermColumns(
        term_texts=moved_strings(base.term_texts, merge, Strings.of(unknown)),
        term_count_WP=moved_block(base.term_count_WP, merge, passages, added),
        term_passages_W=passages_W,
        passage_terms_P=terms_P,
        term_idf_W=idf_W,
        term_norm_P=norm_P,
    )


def _term_places(sorted_terms: Strings, terms: Sequence[str]) -> Ints:
    """Where each of these terms stands, or would."""
    return np.array([bisect_left(sorted_terms, term) for term in terms], np.int64)


def _known_terms(sorted_terms: Strings, at_F: Ints, terms: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of these terms stand where they would."""
    pairs = zip(at_F.tolist(), terms, strict=True)
    return np.array([at < len(sorted_terms) and sorted_terms[at] == term for at, term in pairs], bool)

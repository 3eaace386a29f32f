"""From index.sqlite to arrays: read the rows in canonical order, encode what has no vector yet, build the graph blocks.

Legend: see graph/store/data.py; M occurrences, T passages of the last generation, X what is counted into a block.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

import numpy as np
import scipy.sparse as sp

from graph.extract.aliases import full_names
from graph.extract.entities import title_keys
from graph.extract.terms import caseless_terms
from graph.layers.hierarchy import Hierarchy, LastHierarchy, Node, Sentences, build_hierarchy
from graph.layers.model_summaries import WriteSummaries
from graph.layers.similarity import KnownGraph, similarity_graph
from graph.shared.ids import content_id
from graph.shared.types import Ints
from graph.store.arrays import Strings, id_bytes, rows_among
from graph.store.data import (
    DocumentColumns,
    EntityColumns,
    IndexData,
    PassageColumns,
    PropositionColumns,
    SummaryColumns,
    TopicColumns,
    block,
)
from graph.store.settings import IndexSettings
from graph.store.store import Store
from graph.store.vectors import EmbeddingCache
from graph.text.bm25 import TermCounts, count_terms, join_counts, term_weights


@dataclass(frozen=True)
class _Table:
    """A table's ids and texts, in order, and from its own integer keys to these rows: int64[largest key + 1], −1 where unused."""

    ids: Strings
    texts: Strings
    row_of_key: Ints


def derive_arrays(
    store: Store,
    last: IndexData | None,
    cache: EmbeddingCache,
    count_tokens: Callable[[str], int],
    settings: IndexSettings,
    write: WriteSummaries | None = None,
    carry: bool = False,
) -> IndexData:
    """All arrays of the index as the store stands now; vectors come from `cache`, summaries from `write` if it is given.

    What `last`, the generation before, holds of passages and entities already is taken from there. The arrays do not depend on it,
    unless `carry` is set: then its communities stay, for what is new to join (graph/layers/communities.py).
    """
    documents = _documents(store)
    passage_table = _passage_table(store, last)
    proposition_table = _read_table(
        store,
        "SELECT row, id FROM propositions ORDER BY id",
        "SELECT text FROM propositions WHERE row = ?",
        None if last is None else (last.proposition_ids, last.proposition_texts),
    )
    passages = _passages(store, last, cache, documents, passage_table)
    propositions = _propositions(store, cache, passage_table, proposition_table)
    entities = _entities(store, last, cache, documents, proposition_table, settings)
    topics = _topics(store, last, proposition_table)
    hierarchy = build_hierarchy(
        passages=_nodes(documents, passages, propositions),
        chunks=_chunks(passages, count_tokens, settings.max_chunk_tokens),
        passage_vectors_PD=passages.passage_vectors_PD,
        sentences=Sentences(propositions.proposition_vectors_ND, proposition_table.texts.__getitem__, count_tokens),
        encode=lambda ids, texts: cache.encode("summaries", ids, texts),
        settings=settings,
        write=write,
        last=None if last is None else _last_hierarchy(last, carry),
    )
    with store.transaction():
        store.put_summaries((s.node.id, s.layer, s.node.text) for s in hierarchy.summaries)
    return IndexData.of(
        documents, passages, propositions, entities, topics, _summaries(hierarchy, len(passage_table.ids))
    )


def encoded_text(title: str, text: str) -> str:
    """What the encoder sees of a passage: its document's title, then the text, unless the text opens with the title."""
    return text if not title or text.lstrip("# \n").startswith(title) else f"{title}\n{text}"


def _documents(store: Store) -> DocumentColumns:
    rows = list(store.rows("SELECT source, title, metadata FROM documents ORDER BY source"))
    titles = sorted((key, row) for row, (_, title, _) in enumerate(rows) for key in title_keys(str(title)))
    return DocumentColumns(
        document_sources=Strings.of([str(source) for source, _, _ in rows]),
        document_titles=Strings.of([str(title) for _, title, _ in rows]),
        document_metadata=Strings.of([str(metadata) for _, _, metadata in rows]),
        title_keys=Strings.of([key for key, _ in titles]),
        title_document_T=np.array([row for _, row in titles], np.int64),
    )


def _passage_table(store: Store, last: PassageColumns | None) -> _Table:
    return _read_table(
        store,
        'SELECT row, id FROM passages ORDER BY source, "order"',
        """SELECT substr(d.text, p."start" + 1, p."end" - p."start") FROM passages p JOIN documents d USING (source)
        WHERE p.row = ?""",
        None if last is None else (last.passage_ids, last.passage_texts),
    )


def _passages(
    store: Store, last: PassageColumns | None, cache: EmbeddingCache, documents: DocumentColumns, table: _Table
) -> PassageColumns:
    document_of = {source: row for row, source in enumerate(documents.document_sources)}
    places = list(store.rows('SELECT source, "order", "start", "end" FROM passages ORDER BY source, "order"'))
    document_P = np.array([document_of[str(source)] for source, *_ in places], np.int64)
    place_P3 = np.array([place for _, *place in places], np.int64).reshape(-1, 3)
    before = np.flatnonzero(document_P[1:] == document_P[:-1])
    encoded = _encoded_texts(documents, document_P, table.texts)
    counts = _term_counts(last, table.ids, encoded)
    idf_W, norm_P = term_weights(counts.count_WP)
    return PassageColumns(
        passage_ids=table.ids,
        passage_texts=table.texts,
        passage_document_P=document_P,
        passage_order_P=place_P3[:, 0],
        passage_start_P=place_P3[:, 1],
        passage_end_P=place_P3[:, 2],
        passage_vectors_PD=cache.encode("passages", table.ids, encoded),
        passage_next_PP=block(before, before + 1, (len(document_P), len(document_P))),
        term_texts=Strings.of(counts.terms),
        term_count_WP=counts.count_WP,
        term_idf_W=idf_W,
        term_norm_P=norm_P,
    )


def _term_counts(last: PassageColumns | None, ids: Strings, encoded: Sequence[str]) -> TermCounts:
    """The terms of every passage; only those of passages that `last` does not have are counted."""
    if last is None:
        return count_terms(encoded)
    place_T = rows_among(ids, last.passage_ids)
    new = np.setdiff1d(np.arange(len(ids)), place_T)
    known = TermCounts(list(last.term_texts), last.term_count_WP)
    return join_counts([(known, place_T), (count_terms([encoded[row] for row in new.tolist()]), new)], len(ids))


def _encoded_texts(documents: DocumentColumns, document_P: Ints, texts: Strings) -> list[str]:
    """What the encoder sees of every passage."""
    titles = list(documents.document_titles)
    return [encoded_text(titles[document], text) for document, text in zip(document_P.tolist(), texts, strict=True)]


def _propositions(store: Store, cache: EmbeddingCache, passages: _Table, table: _Table) -> PropositionColumns:
    """Propositions, and their occurrences by proposition, passage, start."""
    read_M4 = _int_table(store, 'SELECT proposition, passage, "start", "end" FROM occurrences', 4)
    read_M4[:, 0], read_M4[:, 1] = table.row_of_key[read_M4[:, 0]], passages.row_of_key[read_M4[:, 1]]
    proposition_M, passage_M, start_M, end_M = read_M4[np.lexsort(read_M4.T[::-1])].T
    return PropositionColumns(
        proposition_ids=table.ids,
        proposition_texts=table.texts,
        proposition_vectors_ND=cache.encode("propositions", table.ids, table.texts),
        occurrence_proposition_M=proposition_M,
        occurrence_passage_M=passage_M,
        occurrence_start_M=start_M,
        occurrence_end_M=end_M,
        passage_proposition_PN=block(passage_M, proposition_M, (len(passages.ids), len(table.ids))),
    )


def _entities(
    store: Store,
    last: EntityColumns | None,
    cache: EmbeddingCache,
    documents: DocumentColumns,
    propositions: _Table,
    settings: IndexSettings,
) -> EntityColumns:
    """The entities that were read, with what is derived from the rest: the terms of caseless texts, and the full name beside
    every alias of it.
    """
    read = _read_table(
        store,
        "SELECT row, id FROM entities ORDER BY id",
        "SELECT key FROM entities WHERE row = ?",
        None if last is None else (last.entity_ids, last.entity_texts),
    )
    terms = caseless_terms(list(propositions.texts), set(documents.title_keys))
    id_of = dict(zip(read.texts, read.ids, strict=True))
    id_of |= {term: content_id("entity", term) for term in {term for _, term in terms} - id_of.keys()}
    pairs = sorted((identity, key) for key, identity in id_of.items())
    ids, keys = [identity for identity, _ in pairs], [key for _, key in pairs]
    row_of = {key: row for row, key in enumerate(keys)}

    query = "SELECT o.proposition, m.entity FROM mentions m JOIN occurrences o ON o.row = m.occurrence"
    mention_X2 = _int_table(store, query, 2)
    read_as = np.array([row_of[key] for key in read.texts], np.int64)[read.row_of_key[mention_X2[:, 1]]]
    of_terms = np.array([(row, row_of[term]) for row, term in terms], np.int64).reshape(-1, 2)
    proposition_X = np.concatenate([propositions.row_of_key[mention_X2[:, 0]], of_terms[:, 0]])
    entity_X = np.concatenate([read_as, of_terms[:, 1]])
    full_E = np.full(len(keys), -1, np.int64)
    for alias, full in full_names(keys):
        full_E[alias] = full
    aliased = np.flatnonzero(full_E[entity_X] >= 0)
    proposition_X = np.concatenate([proposition_X, proposition_X[aliased]])
    entity_X = np.concatenate([entity_X, full_E[entity_X[aliased]]])

    vectors_ED = cache.encode("entities", ids, keys)
    known = None if last is None else KnownGraph(last.synonym_EE, rows_among(ids, last.entity_ids))
    return EntityColumns(
        entity_ids=Strings.of(ids),
        entity_texts=Strings.of(keys),
        entity_vectors_ED=vectors_ED,
        proposition_entity_NE=block(proposition_X, entity_X, (len(propositions.ids), len(keys))),
        entity_document_EU=_called(row_of, documents),
        synonym_EE=similarity_graph(vectors_ED, settings.synonym_neighbours, settings.min_synonym_similarity, known),
    )


def _called(row_of: dict[str, int], documents: DocumentColumns) -> sp.csr_array:
    """1 where a document is called by the key of an entity."""
    titles = zip(documents.title_keys, documents.title_document_T.tolist(), strict=True)
    pairs = [(row_of[key], document) for key, document in titles if key in row_of]
    rows, columns = np.array(pairs, np.int64).reshape(-1, 2).T
    return block(rows, columns, (len(row_of), len(documents.document_sources)))


def _topics(store: Store, last: TopicColumns | None, propositions: _Table) -> TopicColumns:
    table = _read_table(
        store,
        "SELECT row, id FROM topics ORDER BY id",
        "SELECT text FROM topics WHERE row = ?",
        None if last is None else (last.topic_ids, last.topic_texts),
    )
    query = "SELECT t.topic, o.proposition FROM occurrence_topics t JOIN occurrences o ON o.row = t.occurrence"
    topic_X, proposition_X = _int_table(store, query, 2).T
    return TopicColumns(
        topic_ids=table.ids,
        topic_texts=table.texts,
        topic_proposition_KN=block(
            table.row_of_key[topic_X],
            propositions.row_of_key[proposition_X],
            (len(table.ids), len(propositions.ids)),
        ),
    )


def _nodes(documents: DocumentColumns, passages: PassageColumns, propositions: PropositionColumns) -> list[Node]:
    """Every passage with its propositions in reading order."""
    passage_M, proposition_M = propositions.occurrence_passage_M, propositions.occurrence_proposition_M
    order = np.lexsort((propositions.occurrence_end_M, propositions.occurrence_start_M, passage_M))
    ids = list(passages.passage_ids)
    pools: list[tuple[int, ...]] = [()] * len(ids)
    pairs = zip(passage_M[order].tolist(), proposition_M[order].tolist(), strict=True)
    for passage, group in groupby(pairs, key=lambda pair: pair[0]):
        pools[passage] = tuple(dict.fromkeys(proposition for _, proposition in group))
    encoded = _encoded_texts(documents, passages.passage_document_P, passages.passage_texts)
    return [Node(*values) for values in zip(ids, encoded, pools, strict=True)]


def _last_hierarchy(last: IndexData, carry: bool) -> LastHierarchy:
    ids = np.concatenate([id_bytes(last.passage_ids), id_bytes(last.summary_ids)])
    return LastHierarchy(ids, last.similarity_XX, last.summary_layer_S, last.summary_member_SX, carry)


def _chunks(passages: PassageColumns, count_tokens: Callable[[str], int], max_tokens: int) -> list[list[int]]:
    """Runs of neighbouring passages of one document, together at most `max_tokens` long."""
    chunks: list[list[int]] = []
    first_U = np.flatnonzero(np.diff(passages.passage_document_P, prepend=-1))
    for first, end in pairwise([*first_U.tolist(), len(passages.passage_document_P)]):
        chunks.append([first])
        room = max_tokens - (count_tokens(passages.passage_texts[first]) if end - first > 1 else 0)
        for row in range(first + 1, end):
            length = count_tokens(passages.passage_texts[row])
            if length > room:
                chunks.append([])
                room = max_tokens
            chunks[-1].append(row)
            room -= length
    return chunks


def _summaries(hierarchy: Hierarchy, passages: int) -> SummaryColumns:
    found = hierarchy.summaries
    rows = np.array([row for row, summary in enumerate(found) for _ in summary.members], np.int64)
    members = np.array([member for summary in found for member in summary.members], np.int64)
    return SummaryColumns(
        summary_ids=Strings.of([summary.node.id for summary in found]),
        summary_texts=Strings.of([summary.node.text for summary in found]),
        summary_layer_S=np.array([summary.layer for summary in found], np.int64),
        summary_vectors_SD=hierarchy.vectors_SD,
        summary_member_SX=block(rows, members, (len(found), passages + len(found))),
        similarity_XX=hierarchy.edges,
    )


def _read_table(store: Store, query: str, text_query: str, known: tuple[Strings, Strings] | None) -> _Table:
    """The rows that a query gives as (key, id), in its order, with the text of each: that of the same id among the ids and texts that
    are known, or else what `text_query` finds for the key. An id is a hash of its text.
    """
    rows = list(store.rows(query))
    key_N, id_N = np.array([key for key, _ in rows], np.int64), id_bytes([str(identity) for _, identity in rows])
    row_of_key = np.full(int(key_N.max(initial=0)) + 1, -1, np.int64)
    row_of_key[key_N] = np.arange(len(key_N))
    known_ids, known_texts = known or (Strings.of([]), Strings.of([]))
    known_N = rows_among(known_ids, id_N)
    new = [str(text) for key in key_N[known_N < 0].tolist() for (text,) in store.rows(text_query, (key,))]
    return _Table(Strings.of_ids(id_N), known_texts.splice(known_N, new), row_of_key)


def _int_table(store: Store, query: str, columns: int) -> Ints:
    return np.fromiter(chain.from_iterable(store.rows(query)), np.int64).reshape(-1, columns)

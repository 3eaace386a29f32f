"""From index.sqlite to arrays: read the rows in canonical order, encode what has no vector yet, build the graph blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np
import scipy.sparse as sp

from graph.extract.aliases import full_names
from graph.extract.entities import title_keys
from graph.extract.terms import caseless_terms
from graph.layers.hierarchy import Hierarchy, Node, Sentences, build_hierarchy
from graph.layers.model_summaries import WriteSummaries
from graph.layers.similarity import similarity_graph
from graph.shared.ids import content_id
from graph.shared.types import Ints
from graph.store.arrays import Strings
from graph.store.data import IndexData, block
from graph.store.settings import IndexSettings
from graph.store.store import Store
from graph.store.vectors import VectorBook
from graph.text.bm25 import bm25_scores


@dataclass(frozen=True)
class _Passages:
    """The columns of all passages, and the text that each is encoded as."""

    ids: list[str]
    texts: list[str]
    encoded_texts: list[str]
    document_P: Ints
    order_P: Ints
    start_P: Ints
    end_P: Ints


@dataclass(frozen=True)
class _Occurrences:
    """The columns of all occurrences (sorted by proposition, passage, start), their mentions of entities and their topics."""

    proposition_M: Ints
    passage_M: Ints
    start_M: Ints
    end_M: Ints
    mention_proposition: Ints
    mention_entity: Ints
    topic_proposition: Ints
    topic: Ints


def derive_arrays(
    store: Store,
    book: VectorBook,
    count_tokens: Callable[[str], int],
    settings: IndexSettings,
    write: WriteSummaries | None = None,
) -> IndexData:
    """All arrays of the index as the store stands now; vectors come from `book`, summaries from `write` if it is given."""
    documents = list(store.rows("SELECT source, title, metadata FROM documents ORDER BY source"))
    passages = _read_passages(store, {str(source): row for row, (source, _, _) in enumerate(documents)})
    proposition_ids, proposition_texts = _columns(store, "SELECT id, text FROM propositions ORDER BY id")
    entity_ids, entity_texts = _columns(store, "SELECT id, key FROM entities ORDER BY id")
    topic_ids, topic_texts = _columns(store, "SELECT id, text FROM topics ORDER BY id")
    occurrences = _read_occurrences(store, passages.ids, proposition_ids, entity_ids, topic_ids)
    titles = sorted((key, row) for row, (_, title, _) in enumerate(documents) for key in title_keys(str(title)))
    entity_ids, entity_texts, mention_pairs = _all_entities(
        entity_ids, entity_texts, occurrences, proposition_texts, titles
    )
    P, N, E = len(passages.ids), len(proposition_ids), len(entity_ids)

    passage_vectors_PD = book.encode("passages", passages.ids, passages.encoded_texts)
    proposition_vectors_ND = book.encode("propositions", proposition_ids, proposition_texts)
    entity_vectors_ED = book.encode("entities", entity_ids, entity_texts)

    passage_proposition_PN = block(occurrences.passage_M, occurrences.proposition_M, (P, N))
    hierarchy = build_hierarchy(
        passages=_nodes(passages, occurrences),
        chunks=_chunks(passages, count_tokens, settings.max_chunk_tokens),
        passage_vectors_PD=passage_vectors_PD,
        sentences=Sentences(proposition_vectors_ND, proposition_texts.__getitem__, count_tokens),
        encode=lambda ids, texts: book.encode("summaries", ids, texts),
        settings=settings,
        write=write,
    )
    with store.transaction():
        store.put_summaries((s.node.id, s.layer, s.node.text) for s in hierarchy.summaries)
    same_document_P = passages.document_P[1:] == passages.document_P[:-1]
    before = np.flatnonzero(same_document_P)
    terms, term_passage_WP = bm25_scores(passages.encoded_texts)
    return IndexData(
        document_sources=Strings.of([str(source) for source, _, _ in documents]),
        document_titles=Strings.of([str(title) for _, title, _ in documents]),
        document_metadata=Strings.of([str(metadata) for _, _, metadata in documents]),
        title_keys=Strings.of([key for key, _ in titles]),
        title_document_T=np.array([row for _, row in titles], np.int64),
        passage_ids=Strings.of(passages.ids),
        passage_texts=Strings.of(passages.texts),
        passage_document_P=passages.document_P,
        passage_order_P=passages.order_P,
        passage_start_P=passages.start_P,
        passage_end_P=passages.end_P,
        passage_vectors_PD=passage_vectors_PD,
        passage_next_PP=block(before, before + 1, (P, P)),
        term_texts=Strings.of(terms),
        term_passage_WP=term_passage_WP,
        proposition_ids=Strings.of(proposition_ids),
        proposition_texts=Strings.of(proposition_texts),
        proposition_vectors_ND=proposition_vectors_ND,
        occurrence_proposition_M=occurrences.proposition_M,
        occurrence_passage_M=occurrences.passage_M,
        occurrence_start_M=occurrences.start_M,
        occurrence_end_M=occurrences.end_M,
        passage_proposition_PN=passage_proposition_PN,
        entity_ids=Strings.of(entity_ids),
        entity_texts=Strings.of(entity_texts),
        entity_vectors_ED=entity_vectors_ED,
        proposition_entity_NE=block(*mention_pairs, (N, E)),
        entity_document_EU=_called(entity_texts, titles, len(documents)),
        synonym_EE=similarity_graph(entity_vectors_ED, settings.synonym_neighbours, settings.min_synonym_similarity),
        topic_ids=Strings.of(topic_ids),
        topic_texts=Strings.of(topic_texts),
        topic_proposition_KN=block(occurrences.topic, occurrences.topic_proposition, (len(topic_ids), N)),
        summary_ids=Strings.of([summary.node.id for summary in hierarchy.summaries]),
        summary_texts=Strings.of([summary.node.text for summary in hierarchy.summaries]),
        summary_layer_S=np.array([summary.layer for summary in hierarchy.summaries], np.int64),
        summary_vectors_SD=hierarchy.vectors_SD,
        summary_member_SX=_members(hierarchy, P),
        similarity_XX=hierarchy.edges,
    )


def encoded_text(title: str, text: str) -> str:
    """What the encoder sees of a passage: its document's title, then the text, unless the text opens with the title."""
    return text if not title or text.lstrip("# \n").startswith(title) else f"{title}\n{text}"


def _all_entities(
    ids: Sequence[str],
    keys: Sequence[str],
    occurrences: _Occurrences,
    texts: Sequence[str],
    titles: Sequence[tuple[str, int]],
) -> tuple[list[str], list[str], tuple[Ints, Ints]]:
    """Ids and keys of all entities, by id, and (proposition, entity) of all mentions, with what is derived from the rest.

    Derived are the terms of caseless texts, and the full name beside every alias of it.
    """
    terms = caseless_terms(texts, {key for key, _ in titles})
    id_of = dict(zip(keys, ids, strict=True))
    id_of |= {term: content_id("entity", term) for term in {term for _, term in terms} - id_of.keys()}
    pairs = sorted((identity, key) for key, identity in id_of.items())
    row_of = {identity: row for row, (identity, _) in enumerate(pairs)}
    read_as = np.array([row_of[identity] for identity in ids], np.int64)[occurrences.mention_entity]
    propositions = np.concatenate([occurrences.mention_proposition, np.array([row for row, _ in terms], np.int64)])
    entities = np.concatenate([read_as, np.array([row_of[id_of[term]] for _, term in terms], np.int64)])
    full_of = np.full(len(pairs), -1, np.int64)
    for alias, full in full_names([key for _, key in pairs]):
        full_of[alias] = full
    aliased = np.flatnonzero(full_of[entities] >= 0)
    mentions = (
        np.concatenate([propositions, propositions[aliased]]),
        np.concatenate([entities, full_of[entities[aliased]]]),
    )
    return [identity for identity, _ in pairs], [key for _, key in pairs], mentions


def _called(keys: Sequence[str], titles: Sequence[tuple[str, int]], documents: int) -> sp.csr_array:
    row_of = {key: row for row, key in enumerate(keys)}
    pairs = [(row_of[key], document) for key, document in titles if key in row_of]
    rows, columns = np.array(pairs, np.int64).reshape(-1, 2).T
    return block(rows, columns, (len(keys), documents))


def _columns(store: Store, query: str) -> tuple[list[str], list[str]]:
    rows = list(store.rows(query))
    return [str(identity) for identity, _ in rows], [str(text) for _, text in rows]


def _read_passages(store: Store, document_rows: dict[str, int]) -> _Passages:
    query = """SELECT p.id, p.source, d.title, p."order", p."start", p."end", substr(d.text, p."start" + 1, p."end" - p."start")
        FROM passages p JOIN documents d USING (source) ORDER BY p.source, p."order" """
    rows: list[tuple[Any, ...]] = list(store.rows(query))
    return _Passages(
        ids=[row[0] for row in rows],
        texts=[row[6] for row in rows],
        encoded_texts=[encoded_text(row[2], row[6]) for row in rows],
        document_P=np.array([document_rows[row[1]] for row in rows], np.int64),
        order_P=np.array([row[3] for row in rows], np.int64),
        start_P=np.array([row[4] for row in rows], np.int64),
        end_P=np.array([row[5] for row in rows], np.int64),
    )


def _read_occurrences(
    store: Store,
    passage_ids: Sequence[str],
    proposition_ids: Sequence[str],
    entity_ids: Sequence[str],
    topic_ids: Sequence[str],
) -> _Occurrences:
    passage_row = _rows_by_key(store, "passages", passage_ids)
    proposition_row = _rows_by_key(store, "propositions", proposition_ids)
    entity_row = _rows_by_key(store, "entities", entity_ids)
    stated = _int_table(store, 'SELECT proposition, passage, "start", "end" FROM occurrences', 4)
    stated = np.column_stack([proposition_row[stated[:, 0]], passage_row[stated[:, 1]], stated[:, 2:]])
    stated = stated[np.lexsort((stated[:, 3], stated[:, 2], stated[:, 1], stated[:, 0]))]
    mentioned = _int_table(
        store, "SELECT o.proposition, m.entity FROM mentions m JOIN occurrences o ON o.row = m.occurrence", 2
    )
    on_topic = _int_table(
        store, "SELECT o.proposition, t.topic FROM occurrence_topics t JOIN occurrences o ON o.row = t.occurrence", 2
    )
    return _Occurrences(
        proposition_M=stated[:, 0],
        passage_M=stated[:, 1],
        start_M=stated[:, 2],
        end_M=stated[:, 3],
        mention_proposition=proposition_row[mentioned[:, 0]],
        mention_entity=entity_row[mentioned[:, 1]],
        topic_proposition=proposition_row[on_topic[:, 0]],
        topic=_rows_by_key(store, "topics", topic_ids)[on_topic[:, 1]],
    )


def _rows_by_key(store: Store, table: str, ids: Sequence[str]) -> Ints:
    """From a table's own integer keys to the canonical rows of `ids`: int64[largest key + 1], −1 where unused."""
    row_of = {identity: row for row, identity in enumerate(ids)}
    keys = [(int(str(key)), row_of[str(identity)]) for key, identity in store.rows(f"SELECT row, id FROM {table}")]
    rows = np.full(max((key for key, _ in keys), default=0) + 1, -1, np.int64)
    for key, row in keys:
        rows[key] = row
    return rows


def _int_table(store: Store, query: str, columns: int) -> Ints:
    return np.fromiter(chain.from_iterable(store.rows(query)), np.int64).reshape(-1, columns)


def _nodes(passages: _Passages, occurrences: _Occurrences) -> list[Node]:
    """Every passage with its propositions in reading order."""
    order = np.lexsort((occurrences.end_M, occurrences.start_M, occurrences.passage_M))
    pools: list[tuple[int, ...]] = [()] * len(passages.ids)
    pairs = zip(occurrences.passage_M[order].tolist(), occurrences.proposition_M[order].tolist(), strict=True)
    for passage, group in groupby(pairs, key=lambda pair: pair[0]):
        pools[passage] = tuple(dict.fromkeys(proposition for _, proposition in group))
    return [Node(*values) for values in zip(passages.ids, passages.encoded_texts, pools, strict=True)]


def _chunks(passages: _Passages, count_tokens: Callable[[str], int], max_tokens: int) -> list[list[int]]:
    """Runs of neighbouring passages of one document, together at most `max_tokens` long."""
    chunks: list[list[int]] = []
    room, document = 0, -1
    for row, text in enumerate(passages.texts):
        length = count_tokens(text)
        if passages.document_P[row] != document or length > room:
            chunks.append([])
            room, document = max_tokens, int(passages.document_P[row])
        chunks[-1].append(row)
        room -= length
    return chunks


def _members(hierarchy: Hierarchy, passages: int) -> sp.csr_array:
    rows = [row for row, summary in enumerate(hierarchy.summaries) for _ in summary.members]
    columns = [member for summary in hierarchy.summaries for member in summary.members]
    shape = (len(hierarchy.summaries), passages + len(hierarchy.summaries))
    return block(np.array(rows, np.int64), np.array(columns, np.int64), shape)

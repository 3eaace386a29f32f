"""The columns of entities: the entities that were extracted, the terms of caseless texts, and the full name for every alias.

The mentions of a proposition with unchanged occurrences are moved from the last generation, unless it is caseless (its terms depend on
all texts) or the full name of an alias that it mentions has appeared, changed or disappeared.
Legend: see graph/store/data.py; K new rows, R chosen propositions, A aliases, X entries.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from graph.build.changes import ENTITIES, ChangedRows, Propositions, RowsById, linked_block, merge_linked, read_links
from graph.extract.entities import full_names, surname_of_initials
from graph.extract.terms import caseless_terms
from graph.hierarchy.similarity import KnownGraph, edit_graph, similarity_graph
from graph.shared.ids import content_id
from graph.store.columns.blocks import Entries, entries_by_row
from graph.store.columns.moved import Block, assembled, find_ids, moved_block, rows_holding
from graph.store.columns.row_map import NO_ROWS, RowMap, without_missing
from graph.store.columns.strings import Strings, rows_among_sorted
from graph.store.data import DocumentColumns, EntityColumns, IndexData
from graph.store.embedding_cache import EmbeddingCache
from graph.store.index_settings import IndexSettings
from graph.store.vectors import Vectors
from graph.text.word_forms import is_caseless
from graph.types import Ints


def derive_entities(
    rows: ChangedRows,
    base: IndexData,
    last: IndexData | None,
    cache: EmbeddingCache,
    documents: DocumentColumns,
    document_merge: RowMap,
    propositions: Propositions,
    settings: IndexSettings,
) -> EntityColumns:
    """All columns of entities: rows are moved from `base`, and synonyms from `last`.

    `base` and `last` are the same generation unless `base` is empty. If `last` is None, synonyms are computed anew.
    """
    caseless = _caseless_rows(propositions.texts)
    terms = _terms(propositions.texts, caseless, documents.title_keys)
    read_R = np.union1d(propositions.changed_R, caseless)
    links = read_links(rows, ENTITIES, propositions, read_R)
    last_columns = (base.entity_ids, base.entity_texts, base.proposition_entity_NE)
    derived = {content_id("entity", term): term for _, term in terms}
    entities = merge_linked(rows, ENTITIES, last_columns, propositions.last_rows(read_R), links, derived)

    aliases = _Aliases.of(entities.texts)
    again_R = np.setdiff1d(_rows_with_changed_alias(base, propositions.merge, entities.merge, aliases), read_R)
    links_again = read_links(rows, ENTITIES, propositions, again_R)
    term_row = dict(zip(derived.values(), find_ids(entities.ids, list(derived)).tolist(), strict=True))
    terms_X2 = np.array([(row, term_row[term]) for row, term in terms], np.int64).reshape(-1, 2)
    proposition_X = np.concatenate([links.proposition_X, links_again.proposition_X, terms_X2[:, 0]])
    entity_X = np.concatenate([links.rows(entities.ids), links_again.rows(entities.ids), terms_X2[:, 1]])
    full_X = aliases.full(entity_X)
    proposition_X = np.concatenate([proposition_X, proposition_X[full_X >= 0]])
    entity_X = np.concatenate([entity_X, full_X[full_X >= 0]])

    vectors_ED = cache.encode("entities", entities.ids, entities.texts, entities.merge)
    return EntityColumns(
        entity_ids=entities.ids,
        entity_texts=entities.texts,
        entity_vectors_ED=vectors_ED,
        proposition_entity_NE=linked_block(
            base.proposition_entity_NE,
            propositions,
            entities.merge,
            np.union1d(read_R, again_R),
            proposition_X,
            entity_X,
        ),
        entity_document_EU=_named_documents(base, entities, documents, document_merge),
        synonym_EE=_synonyms(vectors_ED, last, base, entities, settings),
    )


def _synonyms(
    vectors_ED: Vectors, last: IndexData | None, base: IndexData, entities: RowsById, settings: IndexSettings
) -> Block:
    """The graph of synonyms: the last generation's graph with the changes applied if that costs less than a new graph, else a new one."""
    nearest = settings.synonym_neighbours, settings.min_synonym_similarity
    if last is None:
        return similarity_graph(vectors_ED, *nearest)
    merge = entities.merge
    if last is not base:
        merge = RowMap.of_previous(rows_among_sorted(last.entity_ids, entities.ids), len(last.entity_ids))
    edit = edit_graph(vectors_ED, *nearest, KnownGraph(last.synonym_EE, merge))
    if edit is None:
        return similarity_graph(vectors_ED, *nearest)
    return moved_block(last.synonym_EE, merge, merge, edit.added, edit.replaced_R, both_ways=True)


def _caseless_rows(texts: Strings) -> Ints:
    """The rows of caseless texts; an ASCII text is never caseless."""
    beyond_ascii = texts.rows_with(lambda data: data >= 0x80)
    return np.array([row for row in beyond_ascii.tolist() if is_caseless(texts[row])], np.int64)


def _terms(texts: Strings, caseless: Ints, titles: Strings) -> list[tuple[int, str]]:
    """(proposition, term) for every term of the caseless texts."""
    found = caseless_terms([texts[row] for row in caseless.tolist()], titles)
    return [(int(caseless[row]), term) for row, term in found]


@dataclass(frozen=True)
class _Aliases:
    """The rows of keys that consist of initials and a surname and fit exactly one full name, ascending, and the row of that name."""

    alias_A: Ints
    full_A: Ints

    @classmethod
    def of(cls, keys: Strings) -> "_Aliases":
        """The aliases among the keys; only keys that end in the surname of a key with initials are read."""
        dotted = keys.rows_with(lambda data: data == ord("."))
        surnames = {surname for row in dotted.tolist() if (surname := surname_of_initials(keys[row]))}
        rows = keys.rows_where(lambda part: _rows_ending_with(part, surnames)) if surnames else dotted[:0]
        pairs_A2 = np.array(full_names([keys[row] for row in rows.tolist()]), np.int64).reshape(-1, 2)
        return cls(rows[pairs_A2[:, 0]], rows[pairs_A2[:, 1]])

    def full(self, rows: Ints) -> Ints:
        """The row of each row's full name; −1 for a row that is not an alias."""
        position = np.searchsorted(self.alias_A, rows)
        known = np.append(self.alias_A, -1)[position] == rows
        return np.where(known, np.append(self.full_A, -1)[position], -1)


def _rows_ending_with(keys: Strings, words: set[str]) -> Ints:
    """The rows whose last word, after a space or a dot, is one of `words`."""
    ends = keys.starts[1:]
    gaps = np.concatenate([keys.starts[:1] - 1, np.flatnonzero((keys.data == ord(" ")) | (keys.data == ord(".")))])
    begins = np.maximum(gaps[np.searchsorted(gaps, ends) - 1] + 1, keys.starts[:-1])
    by_length: dict[int, list[bytes]] = {}
    for word in words:
        by_length.setdefault(len(word.encode()), []).append(word.encode())
    found = [np.zeros(0, np.int64)]
    for length, same in by_length.items():
        rows = np.flatnonzero(ends - begins == length)
        letters = keys.data[begins[rows, None] + np.arange(length)]
        found.append(rows[np.isin(np.ascontiguousarray(letters).view(f"S{length}")[:, 0], same)])
    return np.sort(np.concatenate(found))


def _rows_with_changed_alias(base: IndexData, propositions: RowMap, entities: RowMap, now: _Aliases) -> Ints:
    """The current rows, ascending, of remaining propositions that mention an alias whose full name changed, appeared or disappeared."""
    before, last_A = _Aliases.of(base.entity_texts), entities.previous_rows(now.alias_A)
    aliases = np.union1d(before.alias_A, without_missing(last_A))
    aliases = aliases[entities.current_rows(aliases) >= 0]
    full_before, full_now = before.full(aliases), now.full(entities.current_rows(aliases))
    changed = aliases[((full_before >= 0) != (full_now >= 0)) | (entities.current_rows(full_before) != full_now)]
    if not len(changed):
        return NO_ROWS
    mentions, is_changed = assembled(base.proposition_entity_NE), np.zeros(entities.previous_count, bool)
    is_changed[changed] = True
    return without_missing(
        propositions.current_rows(np.flatnonzero(entries_by_row(mentions, is_changed[mentions.indices])))
    )


def _named_documents(base: IndexData, entities: RowsById, documents: DocumentColumns, document_merge: RowMap) -> Block:
    """The block of entities and documents: 1 where a title key of the document equals the entity's key."""
    titles, document_T = documents.title_keys, documents.title_document_T
    new_T = rows_holding(document_T, document_merge.inserted_K)
    entity_X = find_ids(entities.ids, [content_id("entity", titles[row]) for row in new_T.tolist()])
    pairs = [(entity_X[entity_X >= 0], document_T[new_T][entity_X >= 0])]
    for row in entities.merge.inserted_K.tolist() if len(document_merge.inserted_K) < len(document_merge) else ():
        key = entities.texts[row]
        matching = document_T[np.arange(bisect_left(titles, key), bisect_right(titles, key))]
        known = matching[document_merge.previous_rows(matching) >= 0]
        pairs.append((np.full(len(known), row), known))
    rows, columns = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return moved_block(base.entity_document_EU, entities.merge, document_merge, Entries.ones(rows, columns))

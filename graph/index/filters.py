"""Metadata filters: conditions on documents, written `key=value` (also != < <= > >=), and the part of an index that meets them.

Keys are `source`, `title` and those of the documents' metadata (without `<`, `>`, `=`, quotation marks and outer spaces); `*`, `?` and `[…]` in a value after
= or != are wildcards, as in file names (`[?]` is a question mark).

Every mode respects a filter, because the restricted index contains no passage, proposition or summary from other documents. `restrict` leaves
entities, topics and term weights as in the whole index; `conceal_other_documents` reduces them to those of the part, for
readers without access to the other documents.
Legend: U documents, P passages, N propositions, E entities, K topics, M occurrences, T titles, W terms, S summaries; `kept_X` are rows of the
whole index.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from math import isnan
from operator import ge, gt, le, lt
from typing import Any, TypeVar
from unicodedata import normalize

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graph.errors import UserError, did_you_mean
from graph.store.columns.blocks import entries_by_row
from graph.store.columns.moved import MovedStrings, assembled
from graph.store.columns.strings import is_consecutive, rows_among
from graph.store.data import IndexData
from graph.store.vectors import cosine_quantiles
from graph.text.bm25 import term_weights
from graph.types import Ints

_ORDERS = {"<": lt, "<=": le, ">": gt, ">=": ge}
_OPERATOR = re.compile(r"!=|<=|>=|[=<>]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,3})?")


class NoDocumentMeets(UserError):
    """No document meets conditions whose keys exist."""


@dataclass(frozen=True)
class Condition:
    """One condition on a document: its `key` compared by `operator` with `value`."""

    key: str
    operator: str
    value: str

    def holds(self, value: object) -> bool:
        """Whether a document's value meets the condition.

        Numbers are compared as numbers, strings as text, ignoring case and Unicode normal form ("007" does not meet =7); but < <= > >= compare strings that are
        numbers as numbers ("10" meets >9). A missing value (or NaN) meets only !=. A list meets = if one of its values does, and != if none of them
        equals the value; it never meets another operator.
        """
        if value is None or (isinstance(value, float) and isnan(value)):
            return self.operator == "!="
        if isinstance(value, list):
            some = any(Condition(self.key, "=", self.value).holds(each) for each in value)
            return self.operator in ("=", "!=") and some == (self.operator == "=")
        texts = json.dumps(value) if isinstance(value, bool) else str(value), self.value
        text, wanted = (normalize("NFC", each.casefold()) for each in texts)
        is_order = self.operator in _ORDERS
        left, right = _comparable(text, wanted) if is_order or not isinstance(value, str) else (text, wanted)
        if is_order:
            return bool(_ORDERS[self.operator](left, right))
        return (left == right or fnmatchcase(text, wanted)) == (self.operator == "=")


def parse_condition(text: str) -> Condition:
    """Parse a condition as a user writes it; UserError with the syntax when it is invalid.

    >>> parse_condition("year >= 1990")
    Condition(key='year', operator='>=', value='1990')
    """
    operator = _OPERATOR.search(text)
    key, value = (text[: operator.start()].strip(), text[operator.end() :].strip()) if operator else ("", "")
    if operator is None or not (key and value) or set("\"'") & set(key):
        expected = "key=value, or != < <= > >= instead of ="
        raise UserError(f"filter {text!r}", expected, "for example --where 'year>=1990'")
    return Condition(key, operator[0], value)


def allowed_documents(data: IndexData, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    """bool[U]: which documents meet all conditions. UserError for a key that no document has, NoDocumentMeets when no document meets them."""
    rows = [_values(data, row) for row in range(len(data.document_sources))]
    known = sorted({key for values in rows for key in values})
    for condition in conditions:
        if condition.key not in known:
            expected = did_you_mean(condition.key, known) or "a key that some document has"
            found = f"filter on {condition.key!r}: no document has it"
            raise UserError(found, expected, f"known keys: {', '.join(known)}")
    allowed_U = _rows_meeting(rows, conditions)
    if not allowed_U.any():
        text = " and ".join(f"{each.key}{each.operator}{each.value}" for each in conditions)
        found = f"filter {text}: none of {len(rows):,} documents meets it"
        raise NoDocumentMeets(found, "at least one", "loosen the filter")
    return allowed_U


def documents_meeting(data: IndexData, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    """bool[U]: which documents meet all conditions, without checking the keys."""
    return _rows_meeting((_values(data, row) for row in range(len(data.document_sources))), conditions)


def _rows_meeting(rows: Iterable[Mapping[str, Any]], conditions: Sequence[Condition]) -> NDArray[np.bool_]:
    return np.array([all(each.holds(values.get(each.key)) for each in conditions) for values in rows], bool)


def _values(data: IndexData, row: int) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(data.document_metadata[row])
    return {**metadata, "source": data.document_sources[row], "title": data.document_titles[row]}


def _comparable(left: str, right: str) -> tuple[Any, Any]:
    """Both as exact numbers if both are written as numbers, else unchanged."""
    are_numbers = _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)
    return (Decimal(left), Decimal(right)) if are_numbers else (left, right)


A = TypeVar("A", bound=np.generic)


def restrict(data: IndexData, allowed_U: NDArray[np.bool_]) -> IndexData:
    """The part of `data` that comes from the allowed documents only.

    A proposition remains if it occurs in an allowed passage, a summary if all passages below it are allowed. Entities, topics
    and terms keep their rows, without their occurrences in other documents; terms keep their weights in the whole index.
    """
    if allowed_U.all():
        return data
    passages, propositions = len(data.passage_ids), len(data.proposition_ids)
    kept_U = np.flatnonzero(allowed_U)
    kept_P = np.flatnonzero(allowed_U[data.passage_document_P])
    kept_M = np.flatnonzero(np.isin(data.occurrence_passage_M, kept_P))
    kept_N = np.unique(_rows(data.occurrence_proposition_M, kept_M))
    kept_T = np.flatnonzero(allowed_U[data.title_document_T])
    kept_S = _summaries_of(data, kept_P)
    kept_X = np.concatenate([kept_P, passages + kept_S])
    document_of, passage_of = _new_rows(kept_U, len(allowed_U)), _new_rows(kept_P, passages)
    count_WP = _part(assembled(data.term_count_WP), None, kept_P)
    return replace(
        data,
        document_sources=data.document_sources.take(kept_U),
        document_titles=data.document_titles.take(kept_U),
        document_metadata=data.document_metadata.take(kept_U),
        title_keys=data.title_keys.take(kept_T),
        title_document_T=document_of[_rows(data.title_document_T, kept_T)],
        passage_ids=data.passage_ids.take(kept_P),
        passage_texts=data.passage_texts.take(kept_P),
        passage_document_P=document_of[_rows(data.passage_document_P, kept_P)],
        passage_order_P=_rows(data.passage_order_P, kept_P),
        passage_start_P=_rows(data.passage_start_P, kept_P),
        passage_end_P=_rows(data.passage_end_P, kept_P),
        passage_vectors_PD=data.passage_vectors_PD.only(kept_P),
        passage_next_PP=_part(data.passage_next_PP, kept_P, kept_P),
        term_count_WP=count_WP,
        term_passages_W=np.asarray(np.diff(count_WP.indptr), np.int64),
        passage_terms_P=_rows(data.passage_terms_P, kept_P),
        term_norm_P=_rows(data.term_norm_P, kept_P),
        proposition_ids=data.proposition_ids.take(kept_N),
        proposition_texts=data.proposition_texts.take(kept_N),
        proposition_vectors_ND=data.proposition_vectors_ND.only(kept_N),
        occurrence_proposition_M=_new_rows(kept_N, propositions)[_rows(data.occurrence_proposition_M, kept_M)],
        occurrence_passage_M=passage_of[_rows(data.occurrence_passage_M, kept_M)],
        occurrence_start_M=_rows(data.occurrence_start_M, kept_M),
        occurrence_end_M=_rows(data.occurrence_end_M, kept_M),
        passage_proposition_PN=_part(data.passage_proposition_PN, kept_P, kept_N),
        proposition_entity_NE=data.proposition_entity_NE[kept_N, :],
        entity_document_EU=_part(data.entity_document_EU, None, kept_U),
        topic_proposition_KN=_part(data.topic_proposition_KN, None, kept_N),
        summary_ids=data.summary_ids.take(kept_S),
        summary_texts=data.summary_texts.take(kept_S),
        summary_layer_S=_rows(data.summary_layer_S, kept_S),
        summary_vectors_SD=data.summary_vectors_SD.only(kept_S),
        summary_member_SX=_part(data.summary_member_SX, kept_S, kept_X),
        similarity_XX=_part(data.similarity_XX, kept_X, kept_X),
    )


def unshared_arrays(data: IndexData, full: IndexData) -> list[NDArray[Any]]:
    """The arrays of a part that do not share memory with the whole index."""
    return [
        array
        for field in fields(data)
        for array in arrays_of(getattr(data, field.name))
        if not any(np.may_share_memory(array, other) for other in arrays_of(getattr(full, field.name)))
    ]


def arrays_of(value: object) -> list[NDArray[Any]]:
    """All arrays in a value made of arrays, columns, blocks, and dataclasses and tuples of them."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, sp.csr_array):
        return [value.data, value.indices, value.indptr]
    if isinstance(value, MovedStrings):
        value = (value.base, value.new)
    if isinstance(value, tuple):
        return [array for each in value for array in arrays_of(each)]
    if is_dataclass(value):
        return [array for field in fields(value) for array in arrays_of(getattr(value, field.name))]
    return []


def _rows(array_X: NDArray[A], rows: Ints) -> NDArray[A]:
    """These rows: a slice of the array if they are consecutive, else a copy."""
    return array_X[rows[0] : rows[-1] + 1] if is_consecutive(rows) else array_X[rows]


def _summaries_of(data: IndexData, kept_P: Ints) -> Ints:
    """The summaries whose members all remain; a summary's members precede it, so one pass is enough."""
    passages = len(data.passage_ids)
    is_kept_X = np.zeros(passages + len(data.summary_ids), bool)
    is_kept_X[kept_P] = True
    indptr, members = data.summary_member_SX.indptr, data.summary_member_SX.indices
    for row in range(len(data.summary_ids)):
        is_kept_X[passages + row] = is_kept_X[members[indptr[row] : indptr[row + 1]]].all()
    return np.flatnonzero(is_kept_X[passages:])


def _part(block: sp.csr_array, rows: Ints | None, columns: Ints) -> sp.csr_array:
    """The block of these rows (None: all) and columns."""
    return block[:, columns] if rows is None else block[rows, :][:, columns]


def _new_rows(rows: Ints, count: int) -> Ints:
    """Maps each of `count` old rows to its position in `rows`; −1 for the others."""
    position = np.full(count, -1, np.int64)
    position[rows] = np.arange(len(rows))
    return position


def conceal_other_documents(full: IndexData, part: IndexData) -> IndexData:
    """`part` without the entities, topics and terms that are not used in it; term weights and normalised similarity are computed from it alone.

    A proposition that also occurs outside `part` keeps only the entities that its text contains, and no topic: the others may come from other documents.
    The full name of an alias may come from them too; it remains only if it occurs elsewhere in `part`.
    """
    shared_N = occurs_outside(full, part)
    entity_NE = without_entries(part.proposition_entity_NE, entities_of_others(part, shared_N))
    topic_KN = without_entries(part.topic_proposition_KN, shared_N[part.topic_proposition_KN.indices])
    named_E = np.flatnonzero(np.diff(part.entity_document_EU.indptr))
    kept_E = np.union1d(entity_NE.indices, named_E).astype(np.int64)
    kept_K = np.flatnonzero(np.diff(topic_KN.indptr))
    counts_WP = assembled(part.term_count_WP)
    kept_W = np.flatnonzero(np.diff(counts_WP.indptr))
    count_WP = counts_WP[kept_W, :]
    passages_W = np.asarray(np.diff(count_WP.indptr), np.int64)
    idf_W, norm_P = term_weights(passages_W, part.passage_terms_P)
    return replace(
        part,
        cosine_quantiles_Z=cosine_quantiles(part.proposition_vectors_ND),
        term_texts=part.term_texts.take(kept_W),
        term_count_WP=count_WP,
        term_passages_W=passages_W,
        term_idf_W=idf_W,
        term_norm_P=norm_P,
        entity_ids=part.entity_ids.take(kept_E),
        entity_texts=part.entity_texts.take(kept_E),
        entity_vectors_ED=part.entity_vectors_ED.only(kept_E),
        proposition_entity_NE=entity_NE[:, kept_E],
        entity_document_EU=part.entity_document_EU[kept_E, :],
        synonym_EE=_part(part.synonym_EE, kept_E, kept_E),
        topic_ids=part.topic_ids.take(kept_K),
        topic_texts=part.topic_texts.take(kept_K),
        topic_proposition_KN=topic_KN[kept_K, :],
    )


def occurs_outside(full: IndexData, part: IndexData) -> NDArray[np.bool_]:
    """bool[N]: which propositions of the part also occur in passages outside it."""
    rows_N = rows_among(full.proposition_ids, part.proposition_ids)
    all_N = np.bincount(full.occurrence_proposition_M, minlength=len(full.proposition_ids))[rows_N]
    own_N = np.bincount(part.occurrence_proposition_M, minlength=len(part.proposition_ids))
    return np.asarray(own_N < all_N)


def entities_of_others(part: IndexData, shared_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool: which entries of `proposition_entity_NE` may come from other documents: entities that the text does not contain, in a shared proposition or
    as the full name of initials and a surname (`_may_be_full_name`) that occurs nowhere else in the part.
    """
    block, keys = part.proposition_entity_NE, part.entity_texts
    is_dotted_E = np.zeros(len(keys), bool)
    is_dotted_E[keys.rows_with(lambda data: data == ord("."))] = True
    has_dotted_N = entries_by_row(block, is_dotted_E[block.indices]) > 0
    absent = entities_not_in_text(part, np.flatnonzero(shared_N | has_dotted_N))
    is_shared = np.repeat(shared_N, np.diff(block.indptr))
    doubtful = absent & is_shared
    for entry in np.flatnonzero(absent & ~is_shared).tolist():
        row = int(np.searchsorted(block.indptr, entry, "right")) - 1
        others = block.indices[block.indptr[row] : block.indptr[row + 1]].tolist()
        doubtful[entry] = _may_be_full_name(keys[int(block.indices[entry])], [keys[other] for other in others])
    known_E = np.bincount(block.indices[~doubtful], minlength=len(keys)) > 0
    return np.asarray(doubtful & (is_shared | ~known_E[block.indices]))


def _may_be_full_name(key: str, others: Iterable[str]) -> bool:
    """Whether one of the other keys contains a dot and ends in the surname of this one, and so may abbreviate it.

    >>> _may_be_full_name("jacob marlow", ["j. marlow"]), _may_be_full_name("jacob marlow", ["st. mary", "ada marlow"])
    (True, False)
    """
    return any("." in other and other != key and other.endswith(key.split()[-1]) for other in others)


def entities_not_in_text(data: IndexData, rows: Ints) -> NDArray[np.bool_]:
    """bool: which entries of `proposition_entity_NE` are, in these rows, entities that the proposition's text does not contain."""
    block = data.proposition_entity_NE
    absent = np.zeros(len(block.indices), bool)
    for row in rows.tolist():
        text = data.proposition_texts[row].casefold().replace("’", "'")
        for entry in range(block.indptr[row], block.indptr[row + 1]):
            absent[entry] = data.entity_texts[int(block.indices[entry])] not in text
    return absent


def without_entries(block: sp.csr_array, removed: NDArray[np.bool_]) -> sp.csr_array:
    """The block without the entries marked in `removed`."""
    remaining = block.copy()
    remaining.data[removed] = 0
    remaining.eliminate_zeros()
    return remaining

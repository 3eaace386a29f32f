"""Propositions from an external extraction: a .jsonl file of {"id": source, "entities": [...], "triples": [[s, p, o], ...]}.

Each triple is matched by its words to the sentence that it came from and becomes a fact of that sentence. The sentence, made self-contained by
the rules, is the proposition; its entities are those of the extraction. (As propositions, bare triples "s p o" are too short to
be retrieved by questions: docs/log.md.) Documents without a row are read by rules.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.extract.entities import distinct_entities, entity_key, find_entities
from graph.extract.extraction import Fact, Occurrence, PendingDocument, Reading
from graph.extract.grounding import connects_entities, entities_within, words_of
from graph.extract.rules import extract_by_rules, read_by_rules
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl
from graph.text.replies import as_one_line
from graph.text.word_forms import is_caseless
from graph.types import Document, Passage

READER = "import"
_LETTER_DIGIT = re.compile(r"[^\W\d_]\d")


@dataclass(frozen=True)
class Row:
    """One document's row in the file."""

    entities: tuple[str, ...]
    triples: tuple[tuple[str, str, str], ...]

    @property
    def hash(self) -> str:
        """A hash of the row, so that a document whose row changed is read again."""
        return content_id(*self.entities, "", *(part for triple in self.triples for part in triple))


def load_extraction(file: Path) -> dict[str, Row]:
    """The rows by document; UserError, with the line, for a malformed row or a second row for the same document."""
    rows: dict[str, Row] = {}
    for line, row in read_jsonl(file):
        where = f"{file} line {line}"
        source = row.get("id")
        if not isinstance(source, str):
            raise UserError(f"{where}: 'id' is {source!r}", "a document's source", "fix the row")
        if source in rows:
            raise UserError(f"{where}: id {source!r} also appears above", "one row per document", "merge the rows")
        entities = _strings(row.get("entities", []), f"{where}: 'entities'")
        triples = row.get("triples")
        if not isinstance(triples, list):
            raise UserError(f"{where}: 'triples' is {triples!r:.80}", "a list of [s, p, o]", "fix the row")
        parsed = [_strings(triple, f"{where}: a triple") for triple in triples]
        for triple in parsed:
            if len(triple) != 3:
                raise UserError(f"{where}: a triple of {len(triple)} parts: {triple!r:.80}", "[s, p, o]", "fix the row")
        rows[source] = Row(entities, tuple((s, p, o) for s, p, o in parsed))
    return rows


def read_imported(item: PendingDocument, rows: Mapping[str, Row]) -> list[Reading]:
    """The readings of a document whose passages are all pending: from its row's triples, or by rules if it has no row."""
    row = rows.get(item.document.source)
    if row is None:
        return read_by_rules(item)
    occurrences = place_triples(row, item.document, item.passages)
    return [Reading(passage, READER, found) for passage, found in zip(item.passages, occurrences, strict=True)]


def place_triples(row: Row, document: Document, passages: Sequence[Passage]) -> list[tuple[Occurrence, ...]]:
    """The occurrences of each passage: its sentences, with their entities and facts from the row.

    A triple belongs to the passage that contains the most of its words, and there to the sentence that contains the most of them (on a tie,
    the first); if no sentence contains any, "s p o" becomes a separate proposition, whose span is the whole passage. A subject or object that is not an
    entity ("a politician", "1960") would link unrelated documents: it is left out, and its triple is not recorded as a fact.
    """
    sentences = extract_by_rules(document, passages)
    by_word = _ByWord(each.text for each in passages)
    sentences_by_word = [_ByWord(each.text for each in of_passage) for of_passage in sentences]
    entities = _Entities(row.entities)
    facts: dict[tuple[int, int], list[Fact]] = {}
    unmatched: list[list[Occurrence]] = [[] for _ in passages]
    for triple in dict.fromkeys(row.triples) if passages else ():
        fact, text = Fact(*triple), " ".join(triple)
        words = words_of(text)
        passage, _ = by_word.closest(words)
        sentence, shared = sentences_by_word[passage].closest(words)
        if shared:
            facts.setdefault((passage, sentence), []).append(fact)
        else:
            alone = Occurrence(text, (), passages[passage].start, passages[passage].end)
            unmatched[passage].append(_with_facts(alone, [fact], entities))
    return [
        (
            *(_with_facts(each, facts.get((number, n), []), entities) for n, each in enumerate(of_passage)),
            *unmatched[number],
        )
        for number, of_passage in enumerate(sentences)
    ]


def is_entity(text: str) -> bool:
    """Whether the rules find an entity in an extracted entity, subject or object (a capitalised word, a date with its month, a quantity, a quotation),
    or it has a capital after a small letter, a digit after a letter, or two letters in a script without case, where
    nothing tells a name (東京) from a common noun (政治家, politician).

    >>> [is_entity(text) for text in ("Ada Marlow", "monthly publication", "1963", "the village of Tarn")]
    [True, False, False, True]
    >>> [is_entity(text) for text in ("iPhone", "p53", "1960s", "東京", "1963年")]
    [True, True, False, True, False]
    """
    if find_entities(f"x {text}") or _LETTER_DIGIT.search(text):
        return True
    if is_caseless(text):
        return sum(map(str.isalpha, text)) > 1
    return any(before.islower() and after.isupper() for before, after in pairwise(text))


class _ByWord:
    """Texts, each as a set of words, with the texts of every word."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._words = [words_of(text) for text in texts]
        self._texts: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._words):
            for word in words:
                self._texts[word].append(number)

    def closest(self, words: set[str]) -> tuple[int, int]:
        """The number of the text with the most of the `words` (on a tie, the first), and how many of them it contains; (0, 0) if none contains any.

        Texts are looked up from the rarest word on, until those left have too few of the words.
        """
        known = sorted(words & self._texts.keys(), key=lambda word: len(self._texts[word]))
        shared: dict[int, int] = {}
        for left, word in zip(range(len(known), 0, -1), known, strict=True):
            if max(shared.values(), default=0) > left:
                break
            new = (number for number in self._texts[word] if number not in shared)
            shared |= {number: len(words & self._words[number]) for number in new}
        first = max(shared, key=lambda number: (shared[number], -number), default=0)
        return first, shared.get(first, 0)


class _Entities:
    """The entities of a row, by a word of each."""

    def __init__(self, entities: Iterable[str]) -> None:
        self._by_word: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for number, entity in enumerate(filter(is_entity, entities)):
            for word in sorted(words_of(entity_key(entity)), key=len)[-1:]:
                self._by_word[word].append((number, entity))

    def within(self, text: str) -> tuple[str, ...]:
        """The entities in a text, in the order of the row."""
        found = sorted(pair for word in words_of(text) & self._by_word.keys() for pair in self._by_word[word])
        return entities_within(text, (), [entity for _, entity in found])[0]


def _with_facts(sentence: Occurrence, facts: Sequence[Fact], entities: _Entities) -> Occurrence:
    """The sentence with its entities (the subjects and objects that are entities, and those of `entities` that are in its text), and with the facts
    whose subject and object are two of these entities.
    """
    ends = [end for fact in facts for end in (fact.subject, fact.object) if is_entity(end)]
    found = distinct_entities([*ends, *entities.within(sentence.text)])
    return replace(sentence, entities=found, facts=tuple(fact for fact in facts if connects_entities(fact, found)))


def _strings(value: Any, where: str) -> tuple[str, ...]:
    """A list of non-empty strings as a tuple, each on one line; UserError for anything else."""
    lines = [as_one_line(item) if isinstance(item, str) else "" for item in value] if isinstance(value, list) else [""]
    if not all(lines):
        raise UserError(f"{where} is {value!r:.80}", "a list of non-empty strings", "fix the row")
    return tuple(lines)

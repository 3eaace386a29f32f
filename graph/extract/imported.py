"""Propositions from an extraction made elsewhere: a .jsonl of {"id": source, "entities": [...], "triples": [[s, p, o], ...]}.

A triple becomes the proposition "s p o" at the passage of its document that holds most of its words. Documents without a
row are read by rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.errors import UserError
from graph.extract.rules import extract_by_rules
from graph.extract.support import best_span, ends_within, names_within, share_supported
from graph.extract.types import Fact, Reading, Statement, Waiting
from graph.ids import content_id
from graph.jsonl import read_jsonl
from graph.types import Passage

READER, RULES = "import", "rules"


@dataclass(frozen=True)
class Row:
    """What the file says of one document."""

    entities: tuple[str, ...]
    triples: tuple[tuple[str, str, str], ...]

    @property
    def hash(self) -> str:
        """Changes with the row, so that a document whose row changed is read again."""
        return content_id(*self.entities, "", *(part for triple in self.triples for part in triple))


def load_extraction(file: Path) -> dict[str, Row]:
    """The rows by document; UserError naming the line of a row that is not of the form above."""
    rows: dict[str, Row] = {}
    for line, row in read_jsonl(file):
        where = f"{file} line {line}"
        source = row.get("id")
        if not isinstance(source, str):
            raise UserError(f"{where}: 'id' is {source!r}", "a document's source", "mend the row")
        if source in rows:
            raise UserError(f"{where}: id {source!r} stands above too", "one row a document", "join the rows")
        entities = _strings(row.get("entities", []), f"{where}: 'entities'")
        triples = row.get("triples")
        if not isinstance(triples, list):
            raise UserError(f"{where}: 'triples' is {triples!r:.80}", "a list of [s, p, o]", "mend the row")
        parsed = [_strings(triple, f"{where}: a triple") for triple in triples]
        for triple in parsed:
            if len(triple) != 3:
                raise UserError(f"{where}: a triple of {len(triple)} parts {triple!r:.80}", "[s, p, o]", "mend the row")
        rows[source] = Row(entities, tuple((s, p, o) for s, p, o in parsed))
    return rows


def read_imported(item: Waiting, rows: Mapping[str, Row]) -> list[Reading]:
    """The readings of one document, all of whose passages wait: its row's triples, or what rules find."""
    row = rows.get(item.document.source)
    if row is None:
        return read_by_rules(item)
    read = place_triples(row, item.passages)
    return [Reading(passage, READER, found) for passage, found in zip(item.passages, read, strict=True)]


def read_by_rules(item: Waiting) -> list[Reading]:
    """The readings of one document, all of whose passages wait, without a model."""
    read = extract_by_rules(item.document, item.passages)
    return [Reading(passage, RULES, found) for passage, found in zip(item.passages, read, strict=True)]


def place_triples(row: Row, passages: Sequence[Passage]) -> list[tuple[Statement, ...]]:
    """The statements of each passage: every triple at the passage that holds most of its words, the first of equals."""
    placed: list[list[Statement]] = [[] for _ in passages]
    for subject, relation, object_ in dict.fromkeys(row.triples) if passages else ():
        text = f"{subject} {relation} {object_}"
        shares = [share_supported(text, passage.text) for passage in passages]
        at = shares.index(max(shares))
        names, _ = names_within(text, (subject, object_), row.entities)
        start, end = best_span(text, passages[at].text)
        offset = passages[at].start
        fact = Fact(subject, relation, object_)
        facts = (fact,) if ends_within(fact, names) else ()
        placed[at].append(Statement(text, names, offset + start, offset + end, facts=facts))
    return [tuple(found) for found in placed]


def _strings(value: Any, where: str) -> tuple[str, ...]:
    """A list of non-empty strings as a tuple of lines; UserError otherwise."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item.split() for item in value):
        raise UserError(f"{where} is {value!r:.80}", "a list of non-empty strings", "mend the row")
    return tuple(" ".join(item.split()) for item in value)

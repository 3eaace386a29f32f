"""Questions about the tables of an index: they ask for a cell, for the row that contains a given cell, or for the row with the largest or smallest number."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from random import Random

from data_synth.questions.index_statements import IndexStatements, Occurrence
from data_synth.questions.question_form import named_in
from data_synth.questions.templates import Candidate, in_turn, shuffled, step_at
from graph.extract.entities import entity_key
from graph.text.sentences import split_units

MAX_VALUE_WORDS = 8
_NO_NOUN = re.compile(
    r"\b(?:by|at|from|to|in|on|of|until|since|when|who|where|how|built|made|won|lost|sold|sent|paid|held|due|spent|\w+ed|\w+ing)$"
)
_NUMBER = re.compile(r"(?P<number>-?\d+(?:,\d{3})*(?:\.\d+)?)(?P<unit>(?: ?[^\d\s]\S*)?)")
_EMPTY_CELLS = frozenset({"", "-", "–", "—", "n/a", "?"})


@dataclass(frozen=True)
class _Table:
    """The rows of a table in one passage, all with the same headers."""

    document: int
    passage: int
    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """The text of each row and its cells, "" for an empty one."""


def table_questions(statements: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Questions that one row of a table or the whole table answers, alternating between documents; none unless `hops` is 1."""
    by_document: defaultdict[int, list[Candidate]] = defaultdict(list)
    maker = _QuestionMaker(statements)
    for table in _tables(statements) if hops == 1 else ():
        by_document[table.document] += maker.questions(table, rng)
    turns = [shuffled(by_document[document], rng) for document in shuffled(sorted(by_document), rng)]
    yield from in_turn(turns)


def _tables(statements: IndexStatements) -> Iterator[_Table]:
    """The tables of two rows and two columns or more, with distinct headers, in documents whose title no other document has."""
    index = statements.mentions.index
    data = index.data
    for passage in range(len(data.passage_ids)):
        text, document = data.passage_texts[passage], int(data.passage_document_P[passage])
        title = statements.title(document)
        if "|" not in text or not title or "“" in title:
            continue
        if len(statements.mentions.documents_by_title.get(entity_key(title), ())) > 1:
            continue
        rows = (unit for unit in split_units(text, index.passage(passage).header) if unit.cells)
        for _, units in groupby(rows, key=lambda unit: unit.cells[0][0]):
            table = list(units)
            headers = max((tuple(header for header, _ in unit.cells) for unit in table), key=len)
            cells = tuple((unit.text, tuple(dict(unit.cells).get(header, "") for header in headers)) for unit in table)
            if len(table) > 1 < len(headers) == len(set(headers)) and all(headers):
                yield _Table(document, passage, title, headers, cells)


class _QuestionMaker:
    """Makes questions about tables. A header counts as a noun if its last word occurs in lower case in the index and does not match _NO_NOUN."""

    def __init__(self, statements: IndexStatements) -> None:
        self._statements = statements

    @cached_property
    def _lower_case(self) -> frozenset[str]:
        texts = self._statements.mentions.index.data.passage_texts
        return frozenset(word for text in texts for word in re.findall(r"(?<!\w)[a-z]+", text))

    def questions(self, table: _Table, rng: Random) -> Iterator[Candidate]:
        """For each row, a question that asks for one random cell, if that is short and not empty; for each column after the first whose header is a noun,
        questions that ask for the row with a given value and for the rows with the largest and the smallest number. No questions if a cell of the
        first column occurs twice or is long."""
        keys = [cells[0] for _, cells in table.rows]
        if len(set(keys)) < len(keys) or any(len(key.split()) > MAX_VALUE_WORDS for key in keys):
            return
        for line, cells in table.rows:
            column = rng.randrange(1, len(cells))
            value = cells[column]
            if value not in _EMPTY_CELLS and len(value.split()) <= MAX_VALUE_WORDS and cells[0] not in value:
                key = cells[0] if any(map(str.isalpha, cells[0])) else f"{name_of(table.headers[0])} {cells[0]}"
                text = rng.choice(self._cell_questions(table.headers[column], key))
                yield self._candidate(table, line, text, value)
        for column, header in enumerate(table.headers):
            if column and self._is_noun(header):
                yield from self._row_of_cell(table, column, rng)
                yield from self._extremes(table, column)

    def _is_noun(self, header: str) -> bool:
        name = name_of(header)
        return name.rpartition(" ")[2] in self._lower_case and not _NO_NOUN.search(name)

    def _cell_questions(self, header: str, key: str) -> list[str]:
        """Questions that ask for the cell of the row `key` in the column of `header`."""
        if not self._is_noun(header):
            return [f"What is given under “{header}” for {key}"]
        name = name_of(header)
        verb = "are" if name.endswith("s") and not name.endswith("ss") else "is"
        return [f"What {verb} the {name} of {key}", f"Which {name} {verb} given for {key}"]

    def _row_of_cell(self, table: _Table, column: int, rng: Random) -> Iterator[Candidate]:
        values = [cells[column] for _, cells in table.rows]
        line, cells = rng.choice(table.rows)
        if values.count(cells[column]) == 1 and cells[column] not in _EMPTY_CELLS:
            text = f"Which {name_of(table.headers[0])} has the {name_of(table.headers[column])} {cells[column]}"
            yield self._candidate(table, line, text, cells[0])

    def _extremes(self, table: _Table, column: int) -> Iterator[Candidate]:
        """Which row has the largest number in a column, and which the smallest, if all have the same unit and the whole table is in one passage."""
        numbers = [_NUMBER.fullmatch(cells[column]) for _, cells in table.rows]
        units = {match["unit"] for match in numbers if match}
        sizes = [float(match["number"].replace(",", "")) for match in numbers if match]
        if len(sizes) < max(3, len(numbers)) or len(units) > 1 or not self._is_whole(table):
            return
        is_year = all(1000 <= size <= 2100 and size % 1 == 0 for size in sizes)
        words = ("latest", "earliest") if is_year else ("largest", "smallest")
        for word, size in zip(words, (max(sizes), min(sizes)), strict=True):
            if sizes.count(size) == 1:
                line, cells = table.rows[sizes.index(size)]
                text = f"Which {name_of(table.headers[0])} has the {word} {name_of(table.headers[column])}"
                yield self._candidate(table, line, text, cells[0])

    def _is_whole(self, table: _Table) -> bool:
        """Whether no row can be in another passage: the table is in the middle of its passage, or the passage is the only one of its document."""
        data = self._statements.mentions.index.data
        text = data.passage_texts[table.passage].strip()
        is_only = int((data.passage_document_P == table.document).sum()) == 1
        return is_only or not (text.startswith("|") or text.endswith(table.rows[-1][0]))

    def _candidate(self, table: _Table, line: str, text: str, answer: str) -> Candidate:
        mentions = self._statements.mentions
        step = step_at(mentions, Occurrence(table.document, table.passage, line), table.title, answer)
        question = text if named_in(table.title, text) else f"{text}, according to “{table.title}”"
        return Candidate("table", f"{question}?", answer, ((step,),), ())


def name_of(header: str) -> str:
    """A header in the form used in questions: without a unit in brackets, and without a capital unless it is an abbreviation.

    >>> name_of("Depth (m)"), name_of("PIN")
    ('depth', 'PIN')
    """
    plain = header.partition(" (")[0].rstrip(":")
    return plain if plain[1:2].isupper() else plain[:1].lower() + plain[1:]

"""Questions about the tables of an index: they ask for a cell, for the row that contains a given cell, or for the row with the largest or smallest number."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from data_synth.questions.index_statements import IndexStatements, Occurrence
from data_synth.questions.phrases import amount_of
from data_synth.questions.question_form import named_in
from data_synth.questions.templates import Candidate, in_turn, shuffled, step_at
from graph.text.sentences import Cells, Unit, split_units

MAX_VALUE_WORDS = 8
_NO_NOUN = re.compile(
    r"\b(?:by|at|from|to|in|on|of|until|since|when|who|where|how|built|made|won|lost|sold|sent|paid|held|due|spent|\w+ed|\w+ing)$"
)
_NUMBER = re.compile(r"(?P<sign>-?)(?P<number>\d[\d,.]*)(?P<unit>(?: ?[^\W\d_]\S*| ?[%‰°€£$]\S*)?)")
_YEAR, _YEARS_HEADER = re.compile(r"1\d{3}|20\d\d"), re.compile(r"^year\b|(?<!per )\byear$")
_SUMMARY_WORD = r"\b(?:sub-?totals?|totals?|sum|averages?|mean|median|all|overall|combined|others?|rest)\b"
_MAY_SUMMARISE = re.compile(_SUMMARY_WORD, re.IGNORECASE)
"""Names of rows that may summarise other rows: "Total", "All springs", but also "All Saints"."""
_SUMMARISES = re.compile(rf"\W*(?:grand )?{_SUMMARY_WORD}(?:\W+\d{{4}})?\W*", re.IGNORECASE)
"""Names of rows that certainly do: "Total", "**Grand total**", "Total (2023)"."""
_EMPTY_CELLS = frozenset({"", "-", "–", "—", "n/a", "?"})


@dataclass(frozen=True)
class _Table:
    """The rows of a table in one passage; questions are about `rows`, those that cannot summarise others."""

    document: int
    passage: int
    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """The text of each row and its cells, "" for an empty one."""
    possible_summaries: tuple[tuple[str, ...], ...]
    """The cells of each row that may summarise others."""
    is_regular: bool
    """Whether the headers are distinct and not empty, and a row has a cell under each; otherwise the headers may not be in the order of the table."""


def table_questions(statements: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Questions that one row of a table or the whole table answers, alternating between documents; none unless `hops` is 1."""
    by_document: defaultdict[int, list[Candidate]] = defaultdict(list)
    tables = list(_tables(statements)) if hops == 1 else []
    maker = _QuestionMaker(statements, tables)
    for table in tables:
        by_document[table.document] += maker.questions(table, rng)
    turns = [shuffled(by_document[document], rng) for document in shuffled(sorted(by_document), rng)]
    yield from in_turn(turns)


def _tables(statements: IndexStatements) -> Iterator[_Table]:
    """The tables, or their parts in each passage, of the documents whose title no other document has."""
    index = statements.mentions.index
    data = index.data
    for passage in range(len(data.passage_ids)):
        text, document = data.passage_texts[passage], int(data.passage_document_P[passage])
        title = statements.title(document)
        if "|" not in text or not title or "“" in title or not statements.has_own_title(document):
            continue
        for units in _adjacent_rows(text, index.passage(passage).header):
            longest = max(units, key=lambda unit: len(unit.cells))
            headers = tuple(dict.fromkeys(header for unit in (longest, *units) for header, _ in unit.cells))
            cells = [(unit.text, tuple(dict(unit.cells).get(header, "") for header in headers)) for unit in units]
            rows = tuple((line, row) for line, row in cells if not _MAY_SUMMARISE.search(row[0]))
            possible_summaries = tuple(row for _, row in cells if _MAY_SUMMARISE.search(row[0]))
            is_regular = all(headers) and len(longest.cells) == len(headers)
            yield _Table(document, passage, title, headers, rows, possible_summaries, is_regular)


def _adjacent_rows(text: str, header: Cells) -> Iterator[list[Unit]]:
    """The rows of each table of a passage; the header of the next table separates two tables."""
    rows: list[Unit] = []
    for unit in (unit for unit in split_units(text, header) if unit.cells):
        if rows and text[rows[-1].end : unit.start].strip():
            yield rows
            rows = []
        rows.append(unit)
    if rows:
        yield rows


class _QuestionMaker:
    """Makes questions about tables, each with only one answer in its document.

    A header counts as a noun if its last word occurs in lower case in the index and does not match _NO_NOUN.
    """

    def __init__(self, statements: IndexStatements, tables: Sequence[_Table]) -> None:
        self._statements = statements
        self._rows: Counter[tuple[int, str]] = Counter()
        """The number of rows by document and column, in all passages, without those that certainly summarise others."""
        self._cells: Counter[tuple[int, str, str]] = Counter()
        """The number of rows by document, column and cell."""
        self._keyed: Counter[tuple[int, str, str]] = Counter()
        """The number of rows by document, column and the first cell of the row."""
        for table in tables:
            for cells in (*(cells for _, cells in table.rows), *table.possible_summaries):
                for header, cell in zip(table.headers, cells, strict=True):
                    self._rows[table.document, name_of(header)] += not _SUMMARISES.fullmatch(cells[0])
                    self._cells[table.document, name_of(header), cell] += 1
                    self._keyed[table.document, name_of(header), cells[0]] += 1

    @cached_property
    def _lower_case(self) -> frozenset[str]:
        texts = self._statements.mentions.index.data.passage_texts
        return frozenset(word for text in texts for word in re.findall(r"(?<!\w)[a-z]+", text))

    def questions(self, table: _Table, rng: Random) -> Iterator[Candidate]:
        """For each row, a question that asks for one random cell, if the cell is short and not empty; for each column after the first whose header is a noun,
        questions that ask for the row with a given value and for the rows with the largest and the smallest number."""
        if not self._is_usable(table):
            return
        for line, cells in table.rows:
            column = rng.randrange(1, len(cells))
            value, is_unique = cells[column], self._keyed[table.document, name_of(table.headers[column]), cells[0]] == 1
            is_short = len(value.split()) <= MAX_VALUE_WORDS
            if is_unique and value not in _EMPTY_CELLS and is_short and cells[0] not in value:
                key = cells[0] if any(map(str.isalpha, cells[0])) else f"{name_of(table.headers[0])} {cells[0]}"
                text = rng.choice(self._cell_questions(table.headers[column], key))
                yield self._candidate(table, line, text, value)
        for column, header in enumerate(table.headers):
            if column and self._is_noun(header):
                yield from self._row_of_cell(table, column, rng)
                yield from self._extremes(table, column)

    def _is_usable(self, table: _Table) -> bool:
        """Whether a table has at least two rows and two columns, with a different short text in the first cell of each row."""
        keys, column = [cells[0] for _, cells in table.rows], name_of(table.headers[0])
        is_large = min(len(keys), len(table.headers)) > 1
        is_keyed = len(set(keys)) == len(keys) and all(len(key.split()) <= MAX_VALUE_WORDS for key in keys)
        has_gaps = any(self._cells[table.document, column, empty] for empty in _EMPTY_CELLS)
        return table.is_regular and is_large and is_keyed and not has_gaps

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
        line, cells = rng.choice(table.rows)
        name, value = name_of(table.headers[column]), cells[column]
        if self._cells[table.document, name, value] == 1 and value not in _EMPTY_CELLS:
            text = f"Which {name_of(table.headers[0])} has the {name} {value}"
            yield self._candidate(table, line, text, cells[0])

    def _extremes(self, table: _Table, column: int) -> Iterator[Candidate]:
        """Which row has the largest number in a column, and which the smallest, if all have the same unit and no other table of the document has the column.

        No questions if the numbers may be years but their header does not say so, or if they may be versions ("1.10" after "1.9") in another order.
        """
        header, texts = table.headers[column], [cells[column] for _, cells in table.rows]
        name = name_of(header)
        numbers = [number for text in texts if (number := _number_of(text)) is not None]
        is_complete = len(numbers) == len(texts) == self._rows[table.document, name] > 2
        are_years = all(map(_YEAR.fullmatch, texts)) and "(" not in header
        if not is_complete or len({one.unit for one in numbers}) > 1 or are_years != bool(_YEARS_HEADER.search(name)):
            return
        words = ("latest", "earliest") if are_years else ("largest", "smallest")
        for word, choose in zip(words, (max, min), strict=True):
            best = choose(numbers, key=lambda number: number.size)
            is_single = sum(number.size == best.size for number in numbers) == 1
            if is_single and choose(numbers, key=lambda number: number.parts) == best:
                line, cells = table.rows[numbers.index(best)]
                text = f"Which {name_of(table.headers[0])} has the {word} {name}"
                yield self._candidate(table, line, text, cells[0])

    def _candidate(self, table: _Table, line: str, text: str, answer: str) -> Candidate:
        mentions = self._statements.mentions
        step = step_at(mentions, Occurrence(table.document, table.passage, line), table.title, answer)
        question = text if named_in(table.title, text) else f"{text}, according to “{table.title}”"
        return Candidate("table", f"{question}?", answer, ((step,),), ())


@dataclass(frozen=True)
class _Number:
    """A number with its unit; `parts` are the numbers before and after its full stop."""

    size: float
    parts: tuple[int, ...]
    unit: str


def _number_of(cell: str) -> _Number | None:
    """The number in a cell; None for other text, or if full stops may separate thousands."""
    match = _NUMBER.fullmatch(cell)
    size = amount_of(match["number"]) if match else None
    if match is None or size is None:
        return None
    sign = -1 if match["sign"] else 1
    parts = tuple(sign * int(part) for part in match["number"].replace(",", "").split("."))
    return _Number(sign * size, parts, match["unit"])


def name_of(header: str) -> str:
    """A header in the form used in questions: without a unit in brackets, and without a capital unless it is an abbreviation.

    >>> name_of("Depth (m)"), name_of("PIN")
    ('depth', 'PIN')
    """
    plain = header.partition(" (")[0].rstrip(":")
    return plain if plain[1:2].isupper() else plain[:1].lower() + plain[1:]

"""Made-up tables: questions and answers are checked against the tables' text."""

import re
from pathlib import Path

import pytest

from data_synth.questions.tables import name_of
from data_synth.reading.made_tables import made_tables
from data_synth.reading.reading_form import reading_problems
from data_synth.reading.reading_rows import ImportSettings, rows_of_sets
from data_synth.reading.sets import ReadingQuestion
from data_synth.rows import ReadingRow
from graph.answer.prompt import NOT_FOUND
from graph.types import Excerpt
from tests.data_synth.reading.test_rows import write_set
from tests.data_synth.reading.world import isles

TABLES = made_tables(250, seed=4)


def table_of(passage: Excerpt) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a passage's table, read line by line."""
    lines = [line[2:-2].split(" | ") for line in passage.text.splitlines() if line.startswith("| ")]
    return lines[0], lines[1:]


def size(cell: str) -> float | None:
    """The number at the start of a cell (for a time, the minutes since midnight); None for words and dates."""
    match = re.fullmatch(r"([\d,]+(?:\.\d+)?)(?::(\d\d))?(?: (?!.*\d)\S+)?", cell)
    return float(match[1].replace(",", "")) * (60 if match[2] else 1) + float(match[2] or 0) if match else None


def of_kind(*kinds: str) -> list[ReadingQuestion]:
    return [question for question in TABLES.questions if question.kind in kinds]


def test_every_table_is_well_formed() -> None:
    for passage in TABLES.passages.values():
        header, rows = table_of(passage)
        assert len(rows) >= 3 and all(len(row) == len(header) for row in rows)
        assert len({tuple(row[:3]) for row in rows}) == len(rows)


@pytest.mark.parametrize("kind", ["cell", "row", "largest", "larger", "sentence", "unanswerable"])
def test_all_kinds_of_questions_are_made(kind: str) -> None:
    assert len(of_kind(kind)) >= 10


def test_the_answer_of_a_cell_question_is_in_the_row_that_it_names() -> None:
    for question in of_kind("cell"):
        _, rows = table_of(TABLES.passages[question.gold_ids[0]])
        named = [row for row in rows if f"| {' | '.join(row)} |" == question.evidence[0]]
        assert len(named) == 1 and question.answers[0] in named[0] and named[0][0] in question.text


def test_the_evidence_of_a_sentence_question_is_the_sentence_below_the_table() -> None:
    for question in of_kind("sentence"):
        passage = TABLES.passages[question.gold_ids[0]]
        assert question.evidence[0] == passage.text.splitlines()[-1]
        assert question.evidence[0].endswith(f" is {question.answers[0]}.") and "|" not in question.evidence[0]


def test_a_question_that_another_document_may_answer_names_its_document() -> None:
    """The same course or month may occur in many documents, and any table may have a largest number; an invented name occurs in one document only."""
    named = 0
    for question in of_kind("cell", "row", "largest"):
        passage = TABLES.passages[question.gold_ids[0]]
        (first, *_), _ = table_of(passage)
        if question.kind == "largest" or first in ("Course", "Error", "Medicine", "Recipe", "Month", "Book", "Room"):
            assert passage.title in question.text
            named += 1
    assert named > 300


def test_a_row_question_names_a_cell_that_only_this_row_has() -> None:
    for question in of_kind("row"):
        _, rows = table_of(TABLES.passages[question.gold_ids[0]])
        body = question.text.replace(question.answers[0], "")
        right = [row for row in rows if row[0] == question.answers[0]]
        columns = list(zip(*rows, strict=True))
        assert len(right) == 1
        assert any(cell in body and columns[at].count(cell) == 1 for at, cell in enumerate(right[0]) if at)


def numbers_by_column(rows: list[list[str]]) -> list[list[float]]:
    """For each column after the first that contains only numbers: its numbers, row by row."""
    columns = ([size(cell) for cell in column] for column in zip(*(row[1:] for row in rows), strict=True))
    return [[number for number in column if number is not None] for column in columns if None not in column]


def test_the_largest_or_smallest_number_is_in_one_row_only() -> None:
    for question in of_kind("largest"):
        _, rows = table_of(TABLES.passages[question.gold_ids[0]])
        at = next(n for n, row in enumerate(rows) if row[0] == question.answers[0])
        assert any(
            numbers.count(numbers[at]) == 1 and numbers[at] in (min(numbers), max(numbers))
            for numbers in numbers_by_column(rows)
        )


def test_the_larger_of_two_rows_has_the_greater_number() -> None:
    for question in of_kind("larger"):
        _, rows = table_of(TABLES.passages[question.gold_ids[0]])
        named = [row for row in rows if re.search(rf", {row[0]} or | or {row[0]}( in | acc|\?)", question.text)]
        larger, smaller = sorted(named, key=lambda row: row[0] != question.answers[0])
        assert larger[0] == question.answers[0]
        assert any(mine > other for mine, other in numbers_by_column([larger, smaller]))


def test_an_unanswerable_question_names_a_row_or_column_that_its_documents_lack() -> None:
    for question in of_kind("unanswerable"):
        assert question.answers == question.gold_ids == ()
        for passage_id in question.context_ids:
            passage = TABLES.passages[passage_id]
            header, rows = table_of(passage)
            columns = header[3 if "From" in header else 1 :]
            keys = [row[0] for row in rows if row[0] in question.text]
            assert not keys or not any(name_of(column) in question.text for column in columns)
            answered = [one for one in TABLES.questions if passage_id in one.gold_ids and one.text == question.text]
            assert not answered and not any(
                f" of {key} is " in passage.text for key in keys if passage.title in question.text
            )


def test_the_same_seed_makes_the_same_tables_and_another_seed_different_ones() -> None:
    assert made_tables(20, seed=1) == made_tables(20, seed=1) != made_tables(20, seed=2)


def test_rows_about_tables_come_after_those_of_the_sets(tmp_path: Path) -> None:
    """The prompt shows table rows as header–value pairs, and quoted answers quote these pairs."""
    write_set(root := tmp_path / "isles", isles())
    settings = ImportSettings(tables=40, changed=0.3, form="cited", seed=0)
    rows = [row for row in rows_of_sets(root, settings) if isinstance(row, ReadingRow)]
    tables = [row for row in rows if row.id.startswith("tables:")]
    assert [row.id.startswith("tables:") for row in rows] == sorted(row.id.startswith("tables:") for row in rows)
    assert len(tables) > 200 and not [problem for row in tables for problem in reading_problems(row)]
    assert 0.1 < sum(row.completion == NOT_FOUND for row in tables) / len(tables) < 0.35
    for row in tables:
        assert "|---" not in row.prompt[1].content and "; " in row.prompt[1].content
    quoted = ImportSettings(tables=10, form="quoted", seed=0)
    answers = [
        row
        for row in rows_of_sets(root, quoted)
        if isinstance(row, ReadingRow) and row.id.startswith("tables:") and row.gold_ids
    ]
    reasons = [row.completion.partition("###Reason: ")[2].rpartition(" [")[0] for row in answers]
    assert len(reasons) > 50 and all(reason and "|" not in reason for reason in reasons)
    assert all(reason in row.prompt[1].content for reason, row in zip(reasons, answers, strict=True))

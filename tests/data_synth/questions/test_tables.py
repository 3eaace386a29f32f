"""Questions about tables: about a cell, a row, or the extremes of a column, but none that two rows or two documents answer."""

from pathlib import Path

import pytest

from data_synth.questions.by_rules import template_questions
from data_synth.questions.question_form import QuestionRow, question_problems
from graph.types import Document
from tests.graph.hashed import build

SPRINGS = """Readings of the springs, with their temperature and flow.

| Spring | Temperature (°C) | Flow | Tarn | Found by |
|---|---|---|---|---|
| Upper Kettle | 71 | 48 | near | Ann Pell |
| Middle Kettle | 58 | 1,112 | far | Bram Oakes |
| Nun's Bath | 39 | 75 | far | Bram Oakes |

The lowest pool is used for bathing."""


def tables_of(folder: Path, *documents: Document) -> dict[str, QuestionRow]:
    rows = template_questions(build(folder, documents), 200, (1,), 0)
    return {row.text: row for row in rows if row.kind == "table"}


def test_questions_ask_for_cells_rows_and_extremes(tmp_path: Path) -> None:
    rows = tables_of(tmp_path / "i", Document("s", "The Springs", SPRINGS))
    answers = {text: row.answers for text, row in rows.items()}
    end = ", according to “The Springs”?"
    extremes = {
        f"Which spring has the largest temperature{end}": ("Upper Kettle",),
        f"Which spring has the smallest temperature{end}": ("Nun's Bath",),
        f"Which spring has the largest flow{end}": ("Middle Kettle",),
        f"Which spring has the smallest flow{end}": ("Upper Kettle",),
    }
    found = {text: answer for text, answer in answers.items() if "largest" in text or "smallest" in text}
    assert found == extremes
    cells = {text: answer for text, answer in answers.items() if " has the " not in text}
    assert 1 <= len(cells) <= 3 and all(len(row.answers) == 1 and not question_problems(row) for row in rows.values())
    assert not any("tarn" in text or "found by" in text for text in answers), (
        "a column called by a name or a participle gives no question"
    )
    lines = {row.steps[0].quote for row in rows.values()}
    assert lines <= set(SPRINGS.splitlines())
    for row in rows.values():
        (line,) = (step.quote for step in row.steps)
        assert row.answers[0] in line.strip("| ").split(" | ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| Nun's Bath |", "| Upper Kettle |"),  # two rows with the same name
        ("| Middle Kettle | 58 | 1,112 | far | Bram Oakes |\n| Nun's Bath | 39 | 75 | far | Bram Oakes |\n", ""),
    ],
)
def test_a_table_whose_rows_cannot_be_named_or_compared_gives_no_questions(old: str, new: str, tmp_path: Path) -> None:
    assert old in SPRINGS and not tables_of(tmp_path / "i", Document("s", "The Springs", SPRINGS.replace(old, new)))


def test_a_header_may_contain_braces(tmp_path: Path) -> None:
    rows = tables_of(tmp_path / "i", Document("s", "The Springs", SPRINGS.replace("| Tarn |", "| Tarn {n} |")))
    assert any("“Tarn {n}” for " in text for text in rows)


def test_documents_with_the_same_title_give_no_questions(tmp_path: Path) -> None:
    other = Document("t", "The Springs", SPRINGS.replace("71", "70"))
    assert not tables_of(tmp_path / "i", Document("s", "The Springs", SPRINGS), other)


def test_a_numbered_row_is_named_with_the_header_and_years_are_compared_as_earliest_and_latest(tmp_path: Path) -> None:
    table = "\n".join(f"| {n} | {1900 + 7 * n % 40} |" for n in range(1, 7))
    text = f"Each boat with its year.\n\n| Boat | Year |\n|---|---|\n{table}\n\nAll are lost."
    rows = tables_of(tmp_path / "i", Document("b", "Yard Book", text))
    extremes = {text.split()[4]: row.answers for text, row in rows.items() if "est year" in text}
    assert extremes and extremes.items() <= {"latest": ("5",), "earliest": ("6",)}.items()
    cells = [text for text in rows if " has the " not in text]
    assert cells and all(" boat " in text for text in cells)


def test_a_table_that_continues_in_another_passage_has_no_largest_row(tmp_path: Path) -> None:
    table = "\n".join(f"| Boat {n} | {1900 + n} |" for n in range(1, 200))
    rows = tables_of(
        tmp_path / "i", Document("b", "Yard Book", f"Boats by year.\n\n| Boat | Year |\n|---|---|\n{table}")
    )
    assert rows and not any("latest" in text or "earliest" in text for text in rows)


def test_a_column_with_an_empty_cell_has_no_largest_row(tmp_path: Path) -> None:
    """The row with the empty cell still belongs to the table: its other columns give questions."""
    text = SPRINGS.replace("| Upper Kettle | 71 |", "| Upper Kettle | |")
    rows = tables_of(tmp_path / "i", Document("s", "The Springs", text))
    assert rows and not any("est temperature" in text for text in rows)
    assert any("est flow" in text for text in rows)


def test_questions_about_a_table_that_continues_use_its_header(tmp_path: Path) -> None:
    table = "\n".join(f"| Boat {n} | {n} |" for n in range(1, 300))
    rows = tables_of(
        tmp_path / "i", Document("b", "Yard Book", f"Boats by berth.\n\n| Boat | Berth |\n|---|---|\n{table}")
    )
    numbers = {int(row.steps[0].quote.split()[2]) for row in rows.values()}
    assert max(numbers) > 250 and all("berth" in text for text in rows)


def test_rows_with_equal_numbers_are_not_the_largest(tmp_path: Path) -> None:
    text = SPRINGS.replace("1,112", "75").replace("| 48 |", "| 12 |")
    rows = tables_of(tmp_path / "i", Document("s", "The Springs", text))
    assert not any("largest flow" in text for text in rows) and any("smallest flow" in text for text in rows)


def test_a_long_title_does_not_make_questions_near_duplicates(tmp_path: Path) -> None:
    """Questions are compared without the title that they contain."""
    title = "Readings of all hot springs on the southern flank of the mountain in the autumn of the last year"
    assert len(tables_of(tmp_path / "i", Document("s", title, SPRINGS))) >= 8


def test_numbers_with_different_units_are_not_compared(tmp_path: Path) -> None:
    text = SPRINGS.replace("| 48 |", "| 900 l |").replace("1,112", "1 hl").replace("| 75 |", "| 75 l |")
    rows = tables_of(tmp_path / "i", Document("s", "The Springs", text))
    assert not any("est flow" in text for text in rows) and any("est temperature" in text for text in rows)

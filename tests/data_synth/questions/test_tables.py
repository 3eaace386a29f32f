"""Questions about tables: about a cell, a row, or the extremes of a column, but none that two rows or two documents answer."""

from pathlib import Path
from random import Random

import pytest

from data_synth.questions.by_rules import template_questions
from data_synth.questions.index_statements import read_index
from data_synth.questions.question_form import QuestionRow, question_problems
from data_synth.questions.tables import table_questions
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
        "a column whose header is a name or a participle should give no question"
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


def test_a_row_that_occurs_again_in_another_passage_gives_no_questions(tmp_path: Path) -> None:
    lines = [f"| Boat {n} | {n} |" for n in range(1, 200)]
    lines[0], lines[-1] = "| Kite | 900 |", "| Kite | 901 |"
    lines[1], lines[-2] = "| Wren | 950 |", "| Heron | 950 |"
    text = "\n".join(["Boats by berth.\n\n| Boat | Berth |\n|---|---|", *lines])
    index = build(tmp_path / "i", [Document("b", "Yard Book", text)])
    assert not any(text in each.text for each in index.passages_of("b")[-1:] for text in ("Kite | 900", "Wren"))
    statements = read_index(index, {"b": "test"})
    for seed in range(8):
        texts = [each.text for each in table_questions(statements, 1, Random(seed))]
        assert len(texts) > 190 and any("Wren" in text for text in texts)
        assert not any("Kite" in text or "the berth 950" in text for text in texts)


def test_a_column_that_two_tables_of_a_document_share_gives_no_ambiguous_questions(tmp_path: Path) -> None:
    other = "| Well | Temperature (°C) | Depth |\n|---|---|---|\n| Upper Kettle | 12 | 3 |\n| Long Well | 11 | 4 |"
    text = f"{SPRINGS} The depth is that of 1911.\n\n{other}\n\nEnd."
    for seed in range(5):
        rows = template_questions(build(tmp_path / f"{seed}", [Document("s", "The Springs", text)]), 200, (1,), seed)
        texts = [row.text for row in rows if row.kind == "table"]
        assert any("est flow" in each for each in texts)
        assert not any("est temperature" in each or "temperature of Upper Kettle" in each for each in texts)


def test_years_in_brackets_do_not_distinguish_documents(tmp_path: Path) -> None:
    pages = [
        Document(f"s{year}", f"The Springs [{year}]", SPRINGS.replace("71", year[2:])) for year in ("2023", "2024")
    ]
    assert not tables_of(tmp_path / "i", *pages)


def test_a_table_with_an_empty_cell_in_its_first_column_gives_no_questions(tmp_path: Path) -> None:
    """An empty cell may repeat the name above it."""
    text = SPRINGS.replace("| Nun's Bath |", "| |")
    assert not tables_of(tmp_path / "i", Document("s", "The Springs", text))


@pytest.mark.parametrize("name", ["Total", "**All**", "Average", "Others", "Grand total", "Total (2023)"])
def test_a_row_that_summarises_others_is_no_answer(name: str, tmp_path: Path) -> None:
    rows = tables_of(
        tmp_path / "i",
        Document(
            "s", "The Springs", SPRINGS.replace("\n\nThe lowest", f"\n| {name} | 900 | 5,000 | | |\n\nThe lowest")
        ),
    )
    end = ", according to “The Springs”?"
    assert rows[f"Which spring has the largest temperature{end}"].answers == ("Upper Kettle",)
    assert not any(name in text or name in row.answers for text, row in rows.items())


@pytest.mark.parametrize("name", ["All Saints", "**All springs**", "Nun's Rest"])
def test_a_row_that_may_summarise_others_leaves_open_which_is_the_largest(name: str, tmp_path: Path) -> None:
    text = SPRINGS.replace("\n\nThe lowest", f"\n| {name} | 900 | 5,000 | | |\n\nThe lowest")
    rows = tables_of(tmp_path / "i", Document("s", "The Springs", text))
    assert len(rows) > 2 and not any("largest" in text or "smallest" in text for text in rows)
    assert not any(name in text or name in row.answers for text, row in rows.items())


@pytest.mark.parametrize("name", ["Total", "All Saints"])
def test_a_value_that_a_summary_row_repeats_identifies_no_row(name: str, tmp_path: Path) -> None:
    text = SPRINGS.replace("\n\nThe lowest", f"\n| {name} | 71 | 48 | | |\n\nThe lowest")
    index = build(tmp_path / "i", [Document("s", "The Springs", text)])
    statements = read_index(index, {"s": "test"})
    texts = [each.text for seed in range(8) for each in table_questions(statements, 1, Random(seed))]
    assert any("has the flow 75" in each for each in texts)
    assert not any("has the flow 48" in each or "has the temperature 71" in each for each in texts)


@pytest.mark.parametrize(
    ("header", "numbers", "largest"),
    [
        ("Flow", ("1.234", "12.500", "9.750"), None),
        ("Flow", ("0.125", "1.5", "1,404.5"), "Nun's Bath"),
        ("Flow", ("-3", "-5", "-4"), "Upper Kettle"),
        ("Flow", ("2.1", "2.5", "2.2"), "Middle Kettle"),
        ("Flow", ("1.9", "1.10", "1.2"), None),
        ("Flow", ("1:30", "2:15", "3:45"), None),
        ("Flow", ("1344", "1085", "1200"), None),
        ("Flow (l)", ("1344", "1085", "1200"), "Upper Kettle"),
        ("Flow", ("1,344", "1,085", "1,200"), "Upper Kettle"),
        ("Flow", ("3", "1", "2"), "Upper Kettle"),
        ("Flow year", ("1344", "1085", "1200"), "Upper Kettle"),
        ("Flow per year", ("1344", "1085", "1200"), None),
    ],
)
def test_only_numbers_that_can_be_read_in_one_way_are_compared(
    header: str, numbers: tuple[str, str, str], largest: str | None, tmp_path: Path
) -> None:
    names = ("Upper Kettle", "Middle Kettle", "Nun's Bath")
    lines = [f"| {name} | {number} |" for name, number in zip(names, numbers, strict=True)]
    text = "\n".join(["The flow of a year.\n\n| Spring | " + header + " |\n|---|---|", *lines, "\nEnd."])
    rows = tables_of(tmp_path / "i", Document("s", "The Springs", text))
    found = [row.answers[0] for text, row in rows.items() if "largest" in text or "latest" in text]
    assert rows and found == ([] if largest is None else [largest])


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

"""The figures of docs/: drawing them again from the tables, the data and the loss functions gives the committed SVG files."""

import doctest
import re
from pathlib import Path

import pytest

from benchmarks.figures import modes, style
from benchmarks.figures.__main__ import FIGURES
from benchmarks.figures.style import save
from tests.places import ROOT

FOLDER = ROOT / "docs" / "figures"


@pytest.mark.long
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_up_to_date_with_the_tables(name: str, tmp_path: Path) -> None:
    save(FIGURES[name](), tmp_path, name)
    assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8") == (FOLDER / f"{name}.svg").read_text(
        encoding="utf-8"
    ), "run `make figures`"
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_every_figure_is_on_a_page_and_drawn_by_code() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        name for page in pages for name in re.findall(r"figures/([\w-]+)\.svg\)", page.read_text(encoding="utf-8"))
    }
    assert shown == FIGURES.keys() == {file.stem for file in FOLDER.iterdir()}


def test_a_table_is_read_by_its_columns(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| a | b |\n|---|---|\n| `x` | **.5** |\n| y | −1,000 |\n\n| c |\n", encoding="utf-8")
    assert style.table("| a |", page) == [{"a": "x", "b": ".5"}, {"a": "y", "b": "−1,000"}]
    assert [style.number(row["b"]) for row in style.table("| a |", page)] == [0.5, -1000]
    with pytest.raises(ValueError, match="0 tables"):
        style.table("| d |", page)


@pytest.mark.parametrize("module", [style, modes])
def test_docstring_examples_give_the_output_shown(module: object) -> None:
    failed, tried = doctest.testmod(module)
    assert tried > 0 and failed == 0


def test_every_section_of_results_with_a_table_is_dated_or_marked_as_not_run_here() -> None:
    sections = re.split(r"^## ", style.RESULTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    dated = re.compile(r"^\*(On this page since \d+ [A-Z]\w+ 20\d\d \(.*[0-9a-f]{7}.*\)|None of it was run here)\.\*$")
    undated = [part.splitlines()[0] for part in sections if "\n|---" in part and not dated.match(part.splitlines()[2])]
    assert undated == []

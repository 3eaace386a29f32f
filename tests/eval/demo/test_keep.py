"""Which folders the demo may write to, and when a finished step is up to date."""

from dataclasses import replace

import pytest

from eval.demo.demo_steps import (
    MARKER,
    STEPS,
    FinishedStep,
    PlannedStep,
    checksum_of_results,
    checksums_of_inputs,
    code_checksum,
    is_up_to_date,
    prepare_folder,
    read_finished,
    tree_checksum,
    write_finished,
)
from graph.errors import UserError


@pytest.fixture
def planned(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/rows.jsonl").write_text("{}")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/model").write_text("weights")
    return PlannedStep(("train", "sft"), (tmp_path / "data",), tmp_path / "made")


def finish(planned):
    return FinishedStep(
        planned.line, 1.0, "printed", "code", checksums_of_inputs(planned), checksum_of_results(planned)
    )


def test_a_step_is_up_to_date_while_nothing_has_changed(planned):
    assert is_up_to_date(planned, finish(planned), "code")
    assert not is_up_to_date(planned, None, "code")
    assert not is_up_to_date(planned, finish(planned), "other code")
    assert not is_up_to_date(replace(planned, live=True), finish(planned), "code")


@pytest.mark.parametrize("change", ["data/rows.jsonl", "made/model"])
def test_a_changed_input_or_output_makes_a_step_out_of_date(planned, tmp_path, change):
    finished = finish(planned)
    (tmp_path / change).write_text("changed")
    assert not is_up_to_date(planned, finished, "code")


def test_the_checksum_of_a_folder_covers_names_and_contents(tmp_path):
    for name in ("one", "two", "renamed"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / ("b" if name == "renamed" else "a")).write_text("x")
    assert tree_checksum(tmp_path / "one") == tree_checksum(tmp_path / "two") != tree_checksum(tmp_path / "renamed")
    assert tree_checksum(tmp_path / "nowhere") == ""
    before = tree_checksum(tmp_path / "one")
    (tmp_path / "one/index.sqlite-shm").write_text("read marks")
    assert tree_checksum(tmp_path / "one") == before


def test_finished_steps_are_read_back_and_a_damaged_file_counts_as_none(tmp_path, planned):
    write_finished(tmp_path, [finish(planned)])
    assert read_finished(tmp_path) == {planned.line: finish(planned)}
    for text in ("[", "[3]", '[{"line": "x"}]'):
        (tmp_path / STEPS).write_text(text)
        assert read_finished(tmp_path) == {}


def test_the_code_checksum_covers_source_and_prompts(home):
    before = code_checksum()
    (home / "eval/notes.md").write_text("not code")
    assert code_checksum() == before
    (home / "eval/prompt.txt").write_text("Answer.")
    assert code_checksum() != before


def test_the_demo_writes_only_to_its_own_folder(tmp_path):
    own = tmp_path / "own"
    prepare_folder(own, False)
    (own / "index").mkdir()
    prepare_folder(own, False)
    assert {path.name for path in own.iterdir()} == {MARKER, "index"}
    prepare_folder(own, True)
    assert [path.name for path in own.iterdir()] == [MARKER]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    link = tmp_path / "link"
    link.symlink_to(own)
    for place, message in (
        (foreign, "not a folder that the demo made"),
        (foreign / "thesis.txt", "a file"),
        (link, "not a folder that the demo made"),
    ):
        with pytest.raises(UserError, match=message):
            prepare_folder(place, True)
    assert (foreign / "thesis.txt").read_text() == "years of work"
    empty = tmp_path / "empty"
    empty.mkdir()
    prepare_folder(empty, False)
    assert (empty / MARKER).is_file()

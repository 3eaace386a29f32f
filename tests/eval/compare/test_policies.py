"""Which models a comparison includes."""

from dataclasses import replace
from pathlib import Path

import pytest

from eval.compare.compare import policies_of, untuned_model
from eval.comparison import short_names
from graph.errors import UserError
from tests.eval.conftest import run_record
from train.run.record import read_run, write_run


def test_policies_are_the_runs_and_the_untuned_model_of_the_first_run(world):
    found = policies_of([world.ms, world.dpo, world.sft], base=None)
    assert [policy.name for policy in found] == ["ms", "dpo", "sft", "untuned"]
    assert found[0].reference == str(world.sft)
    assert found[2].reference == ""
    assert (found[3].source, found[3].record) == (str(world.base), None)


def test_margins_use_the_reference_that_the_run_trained_against(world, tmp_path):
    """The reference may differ from the model that the run started from. Losses without a reference have no margins."""
    record = read_run(world.dpo)
    for loss, expected in (("sigmoid", "elsewhere"), ("simpo", "")):
        (tmp_path / loss).mkdir()
        write_run(
            tmp_path / loss, replace(record, settings={**record.settings, "reference": "elsewhere", "loss": loss})
        )
        assert policies_of([tmp_path / loss], base="base")[0].reference == expected


def test_a_given_base_is_used(world):
    assert policies_of([world.ms], base="Qwen/Qwen3-0.6B")[-1].source == "Qwen/Qwen3-0.6B"


def test_a_model_given_twice_is_refused(world):
    with pytest.raises(UserError, match="given twice"):
        policies_of([world.ms, world.ms], base=None)
    with pytest.raises(UserError, match="sft: given twice"):
        policies_of([world.ms, world.sft], base=str(world.sft))


def test_a_folder_without_a_run_is_refused(world):
    with pytest.raises(UserError, match=r"base: no run\.json"):
        policies_of([world.base], base=None)


def test_short_names_distinguish_folders_with_the_same_name():
    assert short_names([Path("/a/x/run"), Path("/a/y/run")]) == ["x/run", "y/run"]
    assert short_names([Path("/a/untuned")], reserved="untuned") == ["a/untuned"]


def test_a_tiny_run_counts_as_untuned_and_a_cycle_is_refused(tmp_path):
    for name in ("tiny", "one", "two"):
        (tmp_path / name).mkdir()
    write_run(tmp_path / "tiny", run_record("tiny", "none", None))
    write_run(tmp_path / "one", run_record("sft", str(tmp_path / "tiny"), None))
    assert untuned_model(tmp_path / "one") == str(tmp_path / "tiny")
    write_run(tmp_path / "one", run_record("sft", str(tmp_path / "two"), None))
    write_run(tmp_path / "two", run_record("sft", str(tmp_path / "one"), None))
    with pytest.raises(UserError, match="form a cycle"):
        untuned_model(tmp_path / "one")

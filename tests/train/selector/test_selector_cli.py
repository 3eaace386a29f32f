"""`modegraph train selector`, from the command line to a folder that retrieval reads."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from graph.errors import UserError
from graph.retrieve.learned.light import FEATURES, open_selector, relevance
from tests import commands
from tests.train.labelled import ENCODER, write_rows
from tests.train.selector.rows import rows_of_all_splits
from train.selector.selector_data import examples_of, read_datasets


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "a", rows_of_all_splits())


def run(*arguments: object) -> Result:
    return commands.run("train", "selector", *arguments)


@pytest.mark.long
def test_a_run_writes_the_selector_its_record_and_a_card_with_its_figures(data: Path, tmp_path: Path) -> None:
    second = write_rows(tmp_path / "b", rows_of_all_splits("bb", seed=1))
    out = tmp_path / "run"
    result = run("--data", data, "--data", second, "--out", out, "--size", "light", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert sorted(file.name for file in out.iterdir()) == [
        "README.md",
        "reliability.png",
        "selector.json",
        "selector.safetensors",
    ]
    assert json.loads((out / "selector.json").read_text()).items() <= record.items()
    ranked = {(each["dataset"], each["split"]): each for each in record["ranked"]}
    assert set(ranked) == {(name, split) for name in ("a", "b") for split in ("dev", "test")}
    for each in ranked.values():
        assert each["selector"] > 0.85 and each["cosine"] < 0.75, (
            f"{each}: expected the selector above 0.85 and the cosine below 0.75, because relevance depends as much on titles as on the cosine"
        )
    assert (out / "reliability.png").read_bytes()[:4] == b"\x89PNG"
    card = (out / "README.md").read_text()
    for value in (ENCODER, *record["data"].values(), *FEATURES, f"{ranked['a', 'test']['selector']:.3f}"):
        assert value in card


@pytest.mark.long
def test_the_saved_selector_meets_the_target_recall_and_reports_its_figures(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("--data", data, "--out", out, "--target-recall", 0.8).exit_code == 0
    record, found = json.loads((out / "selector.json").read_text()), open_selector(str(out))
    dev, test = (examples_of(read_datasets([data]), split) for split in ("dev", "test"))
    selected_n = relevance(found, dev.features_nF) >= found.threshold
    assert selected_n[dev.label_n == 1].mean() == pytest.approx(0.8)
    probability_n = relevance(found, test.features_nF)
    selected_n = probability_n >= found.threshold
    assert record["figures"]["recall"] == pytest.approx(selected_n[test.label_n == 1].mean())
    assert record["figures"]["precision"] == pytest.approx(test.label_n[selected_n].mean())
    chosen_n = np.where(test.label_n == 1, probability_n, 1 - probability_n)
    assert record["figures"]["log loss"] == pytest.approx(-np.log(chosen_n).mean())
    assert found.encoder == ENCODER


@pytest.mark.long
def test_the_same_data_gives_the_same_selector(data: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert run("--data", data, "--out", tmp_path / name).exit_code == 0
    one, two = ((tmp_path / name / "selector.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.long
def test_a_config_file_and_overrides_are_read(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "selector.yaml"
    config.write_text(f"data: [{data}]\noutput: {tmp_path / 'run'}\nmax_trees: 3\nmax_leaves: 4\n")
    result = run("--config", config, "--set", "max_leaves=5", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert (record["trees"], record["settings"]["max_leaves"]) == (3, 5)


def test_bad_input_leaves_nothing_behind(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    one_class = write_rows(tmp_path / "one", [row for row in rows_of_all_splits() if row["label"] == 0])
    cases = [
        (("--data", one_class, "--out", out), "train: 0 of 1,200 rows are relevant"),
        (("--data", data, "--data", data / ".." / data.name, "--out", out), "name each dataset only once"),
        (("--data", data, "--out", out, "--target-recall", 1.5), "target_recall = 1.5"),
        (("--data", data, "--out", out, "--size", "heavy"), "size = 'heavy'.*'light' or 'hop'"),
        (("--out", out), "'data' is missing"),
        (("--data", data), "'output' is missing"),
        (("--data", data, "--out", data), "already exists"),
    ]
    for arguments, message in cases:
        result = run(*arguments)
        with pytest.raises(UserError, match=message):
            raise result.exception or AssertionError(
                f"{arguments}: no error; expected {message!r}; output: {result.output}"
            )
    assert not out.exists() and not (tmp_path / "run.partial").exists()

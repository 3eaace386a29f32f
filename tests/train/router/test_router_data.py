"""Route data that a router can be learned from, and what is refused, by name, before any training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph.errors import UserError
from graph.retrieve.learned.router import QUERY_FEATURES
from tests.train.labelled import write_rows
from tests.train.router.rows import small_world
from train.router.route_data import check_learnable, questions_of, read_datasets, shared_modes

Row = dict[str, Any]


def test_rows_become_arrays_with_typical_milliseconds(tmp_path: Path) -> None:
    rows = small_world()
    rows[0]["runs"]["hops"]["milliseconds"] = 5000.0
    [dataset] = read_datasets([write_rows(tmp_path / "a", rows)])
    modes = shared_modes([dataset])
    found = questions_of([dataset], ("train", "dev"), modes)
    assert modes == ("dense", "hierarchy", "hops") and found.features_QF.shape == (200, len(QUERY_FEATURES))
    assert found.recall_QM[1].tolist() == [0.5, 0.4, 1.0] and found.kinds[:2] == ("easy", "hard")
    hops = [row["runs"]["hops"]["milliseconds"] for row in rows]
    assert set(found.ms_QM[:, 2].tolist()) == {float(np.median(hops))}
    assert set(found.features_ms_Q.tolist()) == {0.5}


def test_each_dataset_has_its_own_milliseconds(tmp_path: Path) -> None:
    slow = small_world("bb")
    for row in slow:
        row["runs"]["hops"]["milliseconds"] = 30.0
    datasets = read_datasets([write_rows(tmp_path / "a", small_world()), write_rows(tmp_path / "b", slow)])
    found = questions_of(datasets, ("test",), ("dense", "hops"))
    assert found.names == ("a", "b") and found.dataset_Q.tolist() == [0] * 60 + [1] * 60
    assert (found.ms_QM[:60, 1] < 12).all() and (found.ms_QM[60:, 1] == 30).all()


def drop_feature(rows: list[Row]) -> None:
    del rows[161]["query_features"]["words"]


def not_a_number(rows: list[Row]) -> None:
    rows[3]["query_features"]["best_passage"] = float("nan")


def one_mode(rows: list[Row]) -> None:
    rows[2]["runs"] = {"dense": rows[2]["runs"]["dense"]}


def no_time(rows: list[Row]) -> None:
    del rows[4]["features_ms"]


def bad_recall(rows: list[Row]) -> None:
    rows[5]["runs"]["hops"]["recall_at_5"] = float("nan")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (drop_feature, r"dev.jsonl line 2: features without 'words'.*Make the data again"),
        (not_a_number, "train.jsonl line 4: feature best_passage is nan"),
        (one_mode, "train.jsonl line 3: runs of 1 modes; there is nothing to choose between"),
        (no_time, "train.jsonl line 5: KeyError: 'features_ms'. Expected a row as `synth route` writes it"),
        (bad_recall, "train.jsonl line 6: recall_at_5 of hops is nan"),
    ],
)
def test_a_row_that_cannot_be_learned_from_is_named(
    tmp_path: Path, spoil: Callable[[list[Row]], None], told: str
) -> None:
    rows = small_world()
    spoil(rows)
    with pytest.raises(UserError, match=told):
        read_datasets([write_rows(tmp_path / "a", rows)])


def test_one_best_mode_for_all_is_told_with_the_remedy(tmp_path: Path) -> None:
    rows = [row | {"best_mode": "hops"} for row in small_world()]
    datasets = read_datasets([write_rows(tmp_path / "a", rows)])
    with pytest.raises(UserError, match=r"the best mode of every question is hops.*\. Use --mode hops"):
        check_learnable(datasets)


def test_a_question_in_two_splits_is_refused_by_name(tmp_path: Path) -> None:
    first, second = small_world("a"), small_world("bb")
    second[-1]["question"] = first[0]["question"].upper()
    folders = [write_rows(tmp_path / "a", first), write_rows(tmp_path / "b", second)]
    with pytest.raises(
        UserError, match=r"1 questions in both train and test: bb-test-59\. Expected splits that share no question"
    ):
        read_datasets(folders)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_split_that_is_missing_is_refused(tmp_path: Path, split: str) -> None:
    rows = [row for row in small_world() if row["split"] != split]
    with pytest.raises(UserError, match=f"{split}: no rows"):
        read_datasets([write_rows(tmp_path / "a", rows)])


def test_two_encoders_are_refused(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a", small_world("a"), "encoder-one")
    second = write_rows(tmp_path / "b", small_world("bb"), "encoder-two")
    with pytest.raises(UserError, match=r"several encoders.*a with encoder-one.*b with encoder-two"):
        read_datasets([first, second])
    with pytest.raises(UserError, match=r"does not name the encoder.*that `synth route` wrote"):
        read_datasets([write_rows(tmp_path / "c", small_world(), None)])


def test_modes_that_some_questions_lack_are_left_out(tmp_path: Path) -> None:
    rows = small_world()
    del rows[7]["runs"]["hierarchy"]
    assert shared_modes(read_datasets([write_rows(tmp_path / "a", rows)])) == ("dense", "hops")
    other = small_world("bb")
    for row in other:
        row["runs"] = {"hops": row["runs"]["hops"], "hybrid": row["runs"]["dense"]}
        row["best_mode"] = "hops"
    datasets = read_datasets([tmp_path / "a", write_rows(tmp_path / "b", other)])
    with pytest.raises(UserError, match=r"modes run for every question: hops \(a: dense, hops; b: hops, hybrid\)"):
        shared_modes(datasets)

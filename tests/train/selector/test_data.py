"""Relevance data becomes arrays; unusable data is refused before training, with an error that names the row, split or dataset."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_synth.relevance.relevance_form import SPLIT_BY
from graph.errors import UserError
from graph.retrieve.learned.light import FEATURES
from tests.train.labelled import write_rows
from tests.train.selector.rows import rows_of_all_splits
from train.selector.selector_data import examples_of, read_datasets, shares_passages

Row = dict[str, Any]


def test_rows_become_arrays_in_the_order_of_the_features(tmp_path: Path) -> None:
    rows = rows_of_all_splits()
    found = examples_of(read_datasets([write_rows(tmp_path / "a", rows)]), "dev")
    dev = [row for row in rows if row["split"] == "dev"]
    assert found.features_nF.shape == (400, 15)
    wanted = [row["features"][FEATURES[3]] for row in dev]
    np.testing.assert_allclose(found.features_nF[:, 3], wanted, rtol=1e-6)
    assert found.label_n.tolist() == [row["label"] for row in dev]
    assert found.question_n.tolist() == [place // 10 for place in range(400)]
    assert found.own_n.tolist() == [row["found_by"] == "own" for row in dev]


def test_questions_of_two_datasets_are_distinct_even_with_the_same_id(tmp_path: Path) -> None:
    first, second = rows_of_all_splits("a"), rows_of_all_splits("bb")
    for row in second:
        row["question_id"] = row["question_id"].replace("bb-", "a-")
    datasets = read_datasets([write_rows(tmp_path / "a", first), write_rows(tmp_path / "b", second)])
    found = examples_of(datasets, "test")
    assert len(set(found.question_n.tolist())) == 80 and found.dataset_n.tolist() == [0] * 400 + [1] * 400


def test_folders_of_the_same_name_have_different_names_in_the_records(tmp_path: Path) -> None:
    folders = [write_rows(tmp_path / name / "data", rows_of_all_splits(name)) for name in ("a", "bb")]
    assert [dataset.name for dataset in read_datasets(folders)] == ["a/data", "bb/data"]


def test_the_fingerprint_depends_on_the_rows_and_not_on_the_name(tmp_path: Path) -> None:
    rows = rows_of_all_splits()
    one, two = (read_datasets([write_rows(tmp_path / name, rows)])[0] for name in ("one", "two"))
    rows[-1]["label"] = 1 - rows[-1]["label"]
    other = read_datasets([write_rows(tmp_path / "other", rows)])[0]
    assert one.fingerprint == two.fingerprint != other.fingerprint


def remove_feature(rows: list[Row]) -> None:
    del rows[1510]["features"]["hops"]


def add_unknown_feature(rows: list[Row]) -> None:
    rows[0]["features"]["colour"] = 1.0


def replace_feature_with_a_word(rows: list[Row]) -> None:
    rows[2]["features"]["similarity"] = "near"


def replace_feature_with_nan(rows: list[Row]) -> None:
    rows[3]["features"]["similarity"] = float("nan")


def set_label_to_2(rows: list[Row]) -> None:
    rows[4]["label"] = 2


def remove_text(rows: list[Row]) -> None:
    del rows[5]["proposition"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove_feature, r"dev.jsonl line 11: features without 'hops'.*Make the data again"),
        (add_unknown_feature, r"train.jsonl line 1: features with 'colour'"),
        (replace_feature_with_a_word, "train.jsonl line 3: ValueError"),
        (replace_feature_with_nan, "train.jsonl line 4: feature similarity is nan"),
        (set_label_to_2, "train.jsonl line 5: label is 2, expected 0 or 1"),
        (remove_text, "train.jsonl line 6: KeyError: 'proposition'"),
    ],
)
def test_an_unusable_row_is_reported_with_its_line(
    tmp_path: Path, spoil: Callable[[list[Row]], None], message: str
) -> None:
    rows = rows_of_all_splits()
    spoil(rows)
    with pytest.raises(UserError, match=message):
        read_datasets([write_rows(tmp_path / "a", rows)])


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_a_split_with_only_one_class_is_refused(tmp_path: Path, split: str, label: int) -> None:
    rows = [row for row in rows_of_all_splits() if row["split"] != split or row["label"] == label]
    with pytest.raises(UserError, match=f"{split}: .* of .* rows are relevant. Expected both classes"):
        read_datasets([write_rows(tmp_path / "a", rows)])


def test_a_split_that_is_missing_is_refused(tmp_path: Path) -> None:
    rows = [row for row in rows_of_all_splits() if row["split"] != "dev"]
    with pytest.raises(UserError, match="dev: 0 of 0 rows are relevant"):
        read_datasets([write_rows(tmp_path / "a", rows)])


def test_a_row_in_the_file_of_another_split_is_refused(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "a", rows_of_all_splits())
    (folder / "dev.jsonl").replace(folder / "test.jsonl")
    with pytest.raises(UserError, match=r"test.jsonl line 1: split is 'dev', expected 'test'"):
        read_datasets([folder])


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("question", "1 questions in both train and test: a-test-0"),
        ("proposition_id", "1 propositions in both train and test: proposition a-train-0-0"),
        ("passage_ids", "1 passages in both train and test: passage a-train-0-0"),
    ],
)
@pytest.mark.parametrize("two_datasets", [True, False], ids=["two datasets", "one dataset"])
def test_splits_that_share_a_question_proposition_or_passage_are_refused(
    tmp_path: Path, key: str, message: str, two_datasets: bool
) -> None:
    first, second = rows_of_all_splits("a"), rows_of_all_splits("bb")
    leaking = next(row for row in (second if two_datasets else first) if row["split"] == "test")
    shared = first[0][key].upper() if key == "question" else first[0][key]
    for row in second if two_datasets else first:
        if row["question_id"] == leaking["question_id"] and (key == "question" or row is leaking):
            row[key] = shared
    folders = [write_rows(tmp_path / "a", first), write_rows(tmp_path / "b", second)]
    with pytest.raises(UserError, match=message.replace("a-test", "bb-test") if two_datasets else message):
        read_datasets(folders)


def test_splits_by_questions_may_share_passages_but_no_question(tmp_path: Path) -> None:
    rows = rows_of_all_splits()
    leaking = next(row for row in rows if row["split"] == "test")
    leaking["proposition_id"], leaking["passage_ids"] = rows[0]["proposition_id"], rows[0]["passage_ids"]
    by_questions = {SPLIT_BY: "questions"}
    [dataset] = read_datasets([write_rows(tmp_path / "a", rows, **by_questions)])
    assert shares_passages(dataset)
    with pytest.raises(UserError, match="1 propositions in both train and test"):
        read_datasets([write_rows(tmp_path / "b", rows, **{SPLIT_BY: "passages"})])
    for row in rows:
        if row["question_id"] == leaking["question_id"]:
            row["question"] = rows[0]["question"]
    with pytest.raises(UserError, match="1 questions in both train and test: a-test-0"):
        read_datasets([write_rows(tmp_path / "c", rows, **by_questions)])


def test_many_leaks_are_counted_and_a_few_named(tmp_path: Path) -> None:
    rows = rows_of_all_splits()
    train = [row for row in rows if row["split"] == "train"]
    for row, other in zip(train, [row for row in rows if row["split"] == "dev"][:9], strict=False):
        other["proposition_id"] = row["proposition_id"]
    with pytest.raises(UserError, match=r"9 propositions in both train and dev: (proposition [\w-]+, ){5}…"):
        read_datasets([write_rows(tmp_path / "a", rows)])


def test_datasets_of_two_encoders_are_refused(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a", rows_of_all_splits("a"), "encoder-one")
    second = write_rows(tmp_path / "b", rows_of_all_splits("bb"), "encoder-two")
    with pytest.raises(UserError, match=r"several encoders.*a with encoder-one.*b with encoder-two"):
        read_datasets([first, second])


def test_data_that_does_not_name_its_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not name the encoder.*Make the data again"):
        read_datasets([write_rows(tmp_path / "a", rows_of_all_splits(), encoder=None)])
    with pytest.raises(UserError, match="does not name the encoder"):
        read_datasets([tmp_path / "nowhere"])

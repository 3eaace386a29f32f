"""A verifier measured on labelled sentences: AUC compared with scikit-learn, overlap computed by hand, bad rows refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from eval.support import auc, auc_interval, is_checked, measure_support, read_support, support_table, word_overlap
from graph.answer.overlap import overlaps
from graph.answer.support import SupportChecker, SupportRow, support_row
from graph.answer.verifier import Premise, word_verifier
from graph.errors import UserError
from graph.text.word_forms import form_of
from graph.types import Excerpt

PASSAGE = "The organ in Brackwater Hall was built in 1904. Ada Marlow paid for it."
ROWS = [
    {"id": "1", "passages": [PASSAGE], "sentence": "The organ was built in 1904.", "question": None, "supported": True},
    {
        "id": "2",
        "passages": [PASSAGE],
        "sentence": "The organ was built in 1911.",
        "question": None,
        "supported": False,
    },
    {
        "id": "3",
        "passages": [PASSAGE],
        "sentence": "Ada Marlow",
        "question": "Who paid for the organ?",
        "supported": True,
    },
    {
        "id": "4",
        "passages": [PASSAGE],
        "sentence": "Jonas Reed",
        "question": "Who paid for the organ?",
        "supported": False,
    },
]


def write_rows(folder: Path, rows: list[dict[str, object]]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_auc_equals_that_of_scikit_learn_with_ties() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores, labels = rng.integers(0, 6, 40).astype(float), rng.random(40) < 0.4
        assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores))


def test_the_interval_contains_the_auc_and_narrows_with_more_sentences() -> None:
    rng = np.random.default_rng(1)

    def width(count: int) -> float:
        labels = np.arange(count) % 2 == 0
        interval = auc_interval(rng.normal(labels, 1.0), labels)
        assert interval.low < interval.mean < interval.high
        return interval.high - interval.low

    assert width(400) < 0.6 * width(50)


def test_rows_are_read_up_to_a_limit_and_short_sentences_are_prefixed_with_their_question(tmp_path: Path) -> None:
    rows = read_support(write_rows(tmp_path, ROWS))
    assert [row.claim for row in rows[1:3]] == ["The organ was built in 1911.", "Who paid for the organ? Ada Marlow"]
    assert [row.supported for row in rows] == [True, False, True, False]
    assert len(read_support(write_rows(tmp_path, ROWS * 5), limit=12, seed=1)) == 12


def test_overlap_matches_values_computed_by_hand() -> None:
    row = SupportRow(("The boats left Tarn.",), "A boat left Quill", supported=False)
    assert word_overlap(row, str) == pytest.approx(1 / 3) and word_overlap(row, form_of) == pytest.approx(2 / 3)
    assert word_overlap(SupportRow((), "Tarn", supported=True), str) == 0.0
    premise = Premise.of([("", passage) for passage in row.passages])
    assert overlaps(row.claim, premise.wordings)[0] == word_overlap(row, form_of), (
        "the verifier should compute the same share"
    )


def test_unchecked_sentences_are_never_marked_as_unsupported(tmp_path: Path) -> None:
    foreign = [{**ROWS[1], "sentence": "Флориан Ахтерберг был избран в совет города."}] * 3
    found = measure_support(read_support(write_rows(tmp_path, [ROWS[0], *foreign])), word_verifier(""))["verifier"]
    assert found.not_checked == 0.75 and found.unsupported_marked == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"sentence": "Die Orgel wurde im Jahr 1911 von der Werft gebaut und steht heute im Hafen."},
        {"sentence": "Yes", "question": "Was the organ in Brackwater Hall built in 1911?"},
        {"passages": [PASSAGE, "x " * 150_000]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_is_checked_is_false_for_sentences_that_the_checker_skips(change: dict[str, object]) -> None:
    row = support_row(ROWS[1] | change, "here")
    assert is_checked(support_row(ROWS[1], "here")) and not is_checked(row)
    checker = SupportChecker([Excerpt("", "", text) for text in row.passages], word_verifier(""), row.question)
    assert checker.count_checked(row.sentence) == 0


def test_a_verifier_is_measured_alongside_overlap(tmp_path: Path) -> None:
    figures = measure_support(read_support(write_rows(tmp_path, ROWS)), word_verifier(""))
    assert list(figures) == ["verifier", "share of words", "share of stems"]
    assert figures["share of stems"].auc.mean == 1.0, "the changed number and the other name are the only missing words"
    found = figures["verifier"]
    assert found.balanced_accuracy == pytest.approx((1 - found.supported_marked + found.unsupported_marked) / 2)  # type: ignore[operator]
    table = support_table("rows", figures)
    assert [len(row) for row in table.rows] == [7, 7, 7] and table.rows[1][2] == "–"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"supported": "yes"}, "line 2: not a labelled sentence"),
        ({"passages": PASSAGE}, "line 2: not a labelled sentence"),
        ({"sentence": None}, "line 2: not a labelled sentence"),
    ],
)
def test_a_malformed_row_is_reported_with_its_line(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read_support(write_rows(tmp_path, [ROWS[0], ROWS[1] | change]))


def test_rows_with_only_one_label_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"1 rows of split val\. Expected both supported and unsupported sentences"):
        read_support(write_rows(tmp_path, [ROWS[0] | {"split": "val"}, ROWS[1]]), "val")
    with pytest.raises(UserError, match=r"1 rows.* Choose another file or split, or a larger --limit"):
        read_support(write_rows(tmp_path, ROWS), limit=1)

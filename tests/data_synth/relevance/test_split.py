"""Unless the split is by questions, no question, passage or proposition is in two splits, even in corpora designed to cause leaks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_synth.relevance.relevance_form import GoldQuestion, RelevanceRow
from data_synth.relevance.relevance_rows import relevance_rows
from data_synth.relevance.split import (
    Split,
    exclude_overlap,
    group_questions,
    make_split,
    split_documents,
    split_propositions,
    split_questions,
)
from graph.documents.questions import SPLITS, Question
from graph.index.index import Index
from graph.types import Document
from tests.graph.hashed import build

HARBOURS = 24
SHARED = "The Harbour Office of Quill keeps a bell for fog."


def harbour(number: int) -> Document:
    """A page whose first sentence is unique; the first three pages share their second sentence."""
    own = f"The pier of Haven{number} was built by Mason{number} in {1800 + number}."
    return Document(f"d{number:02}", "", f"{own} {SHARED if number < 3 else f'Haven{number} sells eels.'}")


@pytest.fixture(scope="module")
def harbours(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("split") / "index", [harbour(number) for number in range(HARBOURS)])


def gold_question(number: int, gold: Iterable[int], own: Iterable[int] = (), stated: str | None = None) -> GoldQuestion:
    question = Question(
        f"q{number:02}", f"Who built the pier of Haven{number}?", (), gold_sources=tuple(f"d{each:02}" for each in gold)
    )
    return GoldQuestion(question, own_sources=tuple(f"d{each:02}" for each in own), stated_split=stated)


def overlapping() -> list[GoldQuestion]:
    """Each question has its own gold page and was published together with the next two pages."""
    return [gold_question(n, [n], [n, (n + 1) % HARBOURS, (n + 2) % HARBOURS]) for n in range(HARBOURS)]


def leaks(rows: Iterable[RelevanceRow]) -> dict[str, set[str]]:
    """The names that occur in more than one split, by kind; a slow check that uses only the rows."""
    by_part: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        parts = [("question", row.question_id), ("question text", row.question), ("proposition", row.proposition_id)]
        for part in parts + [("passage", passage) for passage in row.passage_ids]:
            by_part[part].add(row.split)
    found: dict[str, set[str]] = defaultdict(set)
    for (kind, name), splits in by_part.items():
        if len(splits) > 1:
            found[kind].add(name)
    return found


def rows_of(index: Index, questions: list[GoldQuestion], split: Split) -> list[RelevanceRow]:
    outcomes = relevance_rows(index, questions, split, 6)
    return [row for row in outcomes if isinstance(row, RelevanceRow)]


def test_no_question_passage_or_proposition_is_in_two_splits(harbours: Index) -> None:
    rows = rows_of(harbours, overlapping(), make_split(harbours, overlapping(), 0))
    assert {row.split for row in rows} == set(SPLITS)
    assert leaks(rows) == {}


def test_the_check_finds_the_leaks_of_a_split_by_question_only(harbours: Index) -> None:
    questions = overlapping()
    places = np.arange(len(harbours.data.proposition_ids))
    rows = []
    for each in questions:
        split = split_questions(questions, 0)[each.question.id]
        everywhere = Split({each.question.id: split}, np.full(len(places), SPLITS.index(split)))
        rows += rows_of(harbours, [each], everywhere)
    found = leaks(rows)
    assert set(found) == {"passage", "proposition"}
    assert len(found["passage"]) > HARBOURS / 4


def test_a_proposition_found_in_two_splits_belongs_to_none(harbours: Index) -> None:
    split_U = np.zeros(HARBOURS, np.int64)
    split_U[1] = 2
    split_N = split_propositions(harbours, split_U)
    by_text = dict(zip(harbours.data.proposition_texts, split_N.tolist(), strict=True))
    assert by_text[SHARED] == -1
    assert by_text["The pier of Haven1 was built by Mason1 in 1801."] == 2
    assert by_text["The pier of Haven2 was built by Mason2 in 1802."] == 0


def test_a_proposition_in_several_splits_of_other_datasets_is_left_out_or_stays_in_all_splits(harbours: Index) -> None:
    first, second, third, *_ = harbours.data.proposition_ids
    earlier = {first: {"train", "test"}, second: {"train"}, third: {"test"}}
    for present, expected in ((0, [-1, 0, -1]), (-2, [-2, 0, 2])):
        split = Split({}, np.full(len(harbours.data.proposition_ids), present))
        found = exclude_overlap(split, harbours, earlier).propositions_N
        assert found[:3].tolist() == expected and set(found[3:].tolist()) == {present}


def test_questions_with_a_common_gold_document_stay_together() -> None:
    chain = [
        gold_question(0, [0, 1]),
        gold_question(1, [1, 2]),
        gold_question(2, [5]),
        gold_question(3, [2]),
        gold_question(4, [6]),
    ]
    groups = sorted(sorted(group) for group in group_questions(chain))
    assert groups == [["q00", "q01", "q03"], ["q02"], ["q04"]]


def test_questions_with_the_same_words_stay_in_one_group() -> None:
    again = GoldQuestion(Question("again", "WHO built the pier of Haven1?", ()))
    assert sorted(map(sorted, group_questions([gold_question(1, [1]), again, gold_question(2, [2])]))) == [
        ["again", "q01"],
        ["q02"],
    ]


def test_a_split_stated_in_the_file_is_respected() -> None:
    questions = [gold_question(n, [n], stated="test" if n < 3 else None) for n in range(HARBOURS)]
    split = split_questions(questions, 0)
    assert [split[f"q{n:02}"] for n in range(3)] == ["test"] * 3


def test_a_document_goes_to_the_split_of_the_questions_it_is_gold_for() -> None:
    questions = [
        gold_question(0, [0]),
        gold_question(1, [1], [0, 2]),
        gold_question(2, [3], [0, 2]),
        gold_question(3, [4], [2]),
    ]
    split = {"q00": "dev", "q01": "train", "q02": "train", "q03": "test"}
    documents = split_documents(questions, split, ["d00", "d01", "d02", "d04"], 0)
    assert documents == {"d00": "dev", "d01": "train", "d02": "train", "d04": "test"}


def test_a_document_that_is_gold_in_two_splits_equally_often_goes_to_the_smaller() -> None:
    questions = [gold_question(0, [7]), gold_question(1, [7])]
    assert split_documents(questions, {"q00": "train", "q01": "test"}, ["d07"], 0) == {"d07": "test"}


def shares(split: Mapping[str, str]) -> list[int]:
    return [list(split.values()).count(name) for name in SPLITS]


def test_four_fifths_are_train_and_a_tenth_each_dev_and_test() -> None:
    assert shares(split_questions([gold_question(n, [n]) for n in range(200)], 0)) == [160, 20, 20]


def test_a_group_too_large_for_a_small_split_goes_to_train() -> None:
    crowd = [gold_question(n, [n if n > 60 else 0]) for n in range(100)]
    for seed in range(5):
        split = split_questions(crowd, seed)
        assert {split[f"q{n:02}"] for n in range(61)} == {"train"}
        assert shares(split)[1] >= 9


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(12)), st.integers(0, 3))
def test_the_order_of_the_questions_does_not_matter(order: list[int], seed: int) -> None:
    questions = [gold_question(n, [n // 2, n % 5]) for n in range(12)]
    assert split_questions([questions[n] for n in order], seed) == split_questions(questions, seed)


def test_another_seed_gives_another_split(harbours: Index) -> None:
    questions = overlapping()
    assert make_split(harbours, questions, 0).questions != make_split(harbours, questions, 1).questions


def test_the_same_question_stated_as_train_and_test_goes_to_test() -> None:
    twin = GoldQuestion(Question("twin", "Who built the pier of HAVEN1?", ()), stated_split="test")
    split = split_questions([gold_question(1, [1], stated="train"), twin, gold_question(2, [2], stated="dev")], 0)
    assert split == {"q01": "test", "twin": "test", "q02": "dev"}


def test_split_by_questions_drops_no_row_and_puts_no_question_in_two_splits(harbours: Index) -> None:
    questions = [gold_question(n, [0, n], [0, n, (n + 1) % HARBOURS]) for n in range(HARBOURS)]
    crowded = make_split(harbours, questions, 0)
    assert set(crowded.questions.values()) == {"train"}, "all share page 0"
    split = make_split(harbours, questions, 0, "questions")
    outcomes = list(relevance_rows(harbours, questions, split, 0))
    rows = [row for row in outcomes if isinstance(row, RelevanceRow)]
    assert len(rows) == len(outcomes), "nothing should be dropped"
    assert {row.split for row in rows} == set(SPLITS)
    assert set(leaks(rows)) == {"proposition", "passage"}

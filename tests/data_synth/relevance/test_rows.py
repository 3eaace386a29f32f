"""Relevance rows: candidates, propositions that are left out, and how rows are written and checked."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_synth.dataset.write import write_dataset
from data_synth.relevance.relevance_form import (
    RELEVANCE,
    GoldQuestion,
    RelevanceRow,
    relevance_from_json,
    relevance_to_json,
)
from data_synth.relevance.relevance_rows import (
    NO_GOLD_IN_SPLIT,
    OTHER_SPLIT,
    best_allowed,
    find_candidates,
    relevance_rows,
)
from data_synth.relevance.split import Split, make_split
from data_synth.rows import Dropped
from graph.documents.questions import SPLITS, Question, Quote
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.light import FEATURES, QuestionView, features_of, view_of
from graph.types import Completion, CompletionRequest
from tests.corpora import ISLES
from tests.fakes import ScriptedModel
from tests.graph.hashed import build, query_of

BORN = GoldQuestion(
    Question(
        "born",
        "Where was Ada Marlow born?",
        ("Tarn",),
        gold_sources=("ada",),
        evidence=(Quote("ada", "She was born in Tarn and died on 4 May 1931."),),
        kind="single",
    ),
    own_sources=("ada", "tarn"),
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("rows") / "index", ISLES)


def all_in(index: Index, split: str, *questions: GoldQuestion) -> Split:
    places = np.full(len(index.data.proposition_ids), SPLITS.index(split))
    return Split({each.question.id: split for each in questions}, places)


def split_rows(outcomes: Any) -> tuple[list[RelevanceRow], list[str]]:
    outcomes = list(outcomes)
    dropped = [row.why for row in outcomes if isinstance(row, Dropped)]
    return [row for row in outcomes if not isinstance(row, Dropped)], dropped


def test_the_gold_sentence_is_relevant_and_its_neighbours_are_not(index: Index) -> None:
    rows, dropped = split_rows(relevance_rows(index, [BORN], all_in(index, "train", BORN), 3))
    assert dropped == []
    labels = sorted((row.found_by, row.label) for row in rows)
    assert labels == sorted([("gold", 0), ("gold", 1), ("own", 0), ("own", 0), *((r.found_by, 0) for r in rows[4:])])
    assert len(rows) == 4 + 3 and {row.found_by for row in rows[4:]} <= {"walk", "cosine"}
    [relevant] = [row for row in rows if row.label]
    assert "born in Tarn" in relevant.proposition and relevant.labelled_by == "sentence"
    assert relevant.passage_ids == (index.passages_of("ada")[0].id,)
    assert len({row.proposition_id for row in rows}) == len(rows)
    assert {(row.split, row.kind, row.question_id) for row in rows} == {("train", "single", "born")}


def test_the_features_of_rows_equal_those_at_query_time(index: Index) -> None:
    rows, _ = split_rows(relevance_rows(index, [BORN], all_in(index, "train", BORN), 3))
    place = {proposition: row for row, proposition in enumerate(index.data.proposition_ids)}
    query = query_of(index, BORN.question.text)
    candidates = np.array([place[row.proposition_id] for row in rows])
    expected = features_of(index, query, view_of(index, query), candidates)
    assert np.allclose([row.features for row in rows], expected, atol=1e-5)


def test_without_sentences_the_whole_gold_passage_is_relevant(index: Index) -> None:
    plain = GoldQuestion(replace(BORN.question, evidence=()))
    rows, _ = split_rows(relevance_rows(index, [plain], all_in(index, "dev", plain), 0))
    assert [(row.label, row.labelled_by, row.found_by) for row in rows] == [(1, "passage", "gold")] * 2


def test_propositions_of_another_split_are_dropped_and_counted(index: Index) -> None:
    split = all_in(index, "train", BORN)
    tarn = {proposition for proposition in range(len(split.propositions_N)) if occurs_in(index, proposition, "tarn")}
    split.propositions_N[list(tarn)] = SPLITS.index("test")
    rows, dropped = split_rows(relevance_rows(index, [BORN], split, 100))
    assert dropped == [OTHER_SPLIT] * 2
    assert not {row.proposition_id for row in rows} & {index.data.proposition_ids[row] for row in tarn}
    assert len(rows) == len(index.data.proposition_ids) - 2


def test_a_question_that_lost_all_its_gold_has_no_rows(index: Index) -> None:
    split = Split({"born": "train"}, np.full(len(index.data.proposition_ids), SPLITS.index("test")))
    rows, dropped = split_rows(relevance_rows(index, [BORN], split, 5))
    assert rows == [] and sorted(set(dropped)) == sorted({NO_GOLD_IN_SPLIT, OTHER_SPLIT})


def occurs_in(index: Index, row: int, source: str) -> bool:
    return source in {span.source for span in index.proposition(row).spans}


def view_with(mass: list[float], cosines: list[float]) -> QuestionView:
    none, empty = np.zeros(0, np.float32), np.zeros(0, np.int64)
    return QuestionView(np.array(cosines, np.float32), none, none, np.array(mass, np.float32), empty, empty, empty)


def test_hard_negatives_come_half_from_the_walk_and_half_from_the_nearest() -> None:
    #        gold  own   walked    nearest        forbidden
    mass = [1.0, 0.9, 0.8, 0.7, 0.0, 0.1, 0.0, 0.95]
    near = [0.9, 0.1, 0.2, 0.3, 0.8, 0.6, 0.7, 0.99]
    allowed = np.array([True] * 7 + [False])
    found = find_candidates(view_with(mass, near), np.array([0]), np.array([0, 1]), allowed, 4)
    assert found.rows_n.tolist() == [0, 1, 2, 3, 4, 6]
    assert found.found_by == ("gold", "own", "walk", "walk", "cosine", "cosine")


def test_if_the_walk_reaches_too_few_the_nearest_are_added() -> None:
    allowed = np.ones(5, bool)
    found = find_candidates(
        view_with([0, 0, 0, 0, 0.2], [0.1, 0.4, 0.3, 0.2, 0]), np.array([0]), np.array([0]), allowed, 4
    )
    assert list(zip(found.rows_n.tolist(), found.found_by, strict=True)) == [
        (0, "gold"), (4, "walk"), (1, "cosine"), (2, "cosine"), (3, "cosine"),
    ]  # fmt: skip


def test_best_allowed_breaks_ties_by_row() -> None:
    allowed = np.array([True, False, True, True])
    assert best_allowed(np.array([0.5, 0.9, 0.5, 0.7], np.float32), allowed, 2).tolist() == [3, 0]


def select_first(request: CompletionRequest) -> str:
    return json.dumps({"selected": [1]})


def test_labels_by_a_model_need_no_gold_documents(index: Index) -> None:
    question = GoldQuestion(Question("free", "Where was Ada Marlow born?", ()))
    outcomes = relevance_rows(index, [question], all_in(index, "train", question), 6, ScriptedModel(select_first))
    rows, dropped = split_rows(outcomes)
    assert dropped == [] and {row.labelled_by for row in rows} == {"model"}
    [relevant] = [row for row in rows if row.label]
    assert relevant.features[FEATURES.index("similarity")] == max(row.features[0] for row in rows)


def test_a_model_that_stops_answering_ends_the_run(index: Index) -> None:
    class Gone(ScriptedModel):
        def complete(self, requests: Any) -> list[Completion]:
            raise UserError("the server does not answer", "a server", "start it")

    with pytest.raises(UserError, match="does not answer"):
        list(relevance_rows(index, [BORN], all_in(index, "train", BORN), 3, Gone(select_first)))


def test_the_same_call_gives_the_same_rows(index: Index) -> None:
    def rows() -> list[RelevanceRow | Dropped]:
        return list(relevance_rows(index, [BORN], make_split(index, [BORN], 3), 4))

    assert rows() == rows()


def test_two_questions_with_the_same_words_both_keep_their_labels(index: Index, tmp_path: Path) -> None:
    other = GoldQuestion(Question("other", BORN.question.text, (), gold_sources=("tarn",)), ("ada", "tarn"))
    rows, _ = split_rows(relevance_rows(index, [BORN, other], all_in(index, "train", BORN, other), 0))
    assert {row.question_id for row in rows if row.label} == {"born", "other"}
    summary = write_dataset(tmp_path / "out", [*rows, rows[0]], RELEVANCE, {})
    assert (summary.rows, summary.duplicates) == (len(rows), 1)


@pytest.fixture
def row(index: Index) -> RelevanceRow:
    return split_rows(relevance_rows(index, [BORN], all_in(index, "train", BORN), 0))[0][0]


def test_a_row_is_unchanged_by_json_and_parquet(row: RelevanceRow, tmp_path: Path) -> None:
    import pyarrow as pa

    values = json.loads(json.dumps(relevance_to_json(row)))
    assert relevance_from_json(values) == row
    table = pa.Table.from_pylist([values], RELEVANCE.schema())
    assert table.column_names == list(values)
    back = relevance_from_json(table.to_pylist()[0])
    assert back.features == pytest.approx(row.features, rel=1e-6)
    assert replace(back, features=row.features) == row
    assert RELEVANCE.problems(row) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, "label is 2"),
        ({"split": "validation"}, "split is 'validation'"),
        ({"question": " "}, "question is empty"),
        ({"proposition": ""}, "proposition is empty"),
        ({"passage_ids": ()}, "passage_ids is empty"),
        ({"labelled_by": "guess"}, "labelled_by is 'guess'"),
        ({"found_by": "luck"}, "found_by is 'luck'"),
        ({"features": (float("nan"),) * len(FEATURES)}, "feature similarity is nan"),
    ],
)
def test_problems_of_a_row_are_reported(row: RelevanceRow, change: dict[str, Any], message: str) -> None:
    assert message in RELEVANCE.problems(replace(row, **change))[0]


def test_a_row_that_lacks_a_feature_is_an_error(row: RelevanceRow) -> None:
    values = relevance_to_json(row)
    del values["features"]["hops"]
    with pytest.raises(KeyError, match="hops"):
        relevance_from_json(values)

"""Routes: what a mode is worth, which is the cheapest good one, the question's features, and the rows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_synth.relevance.relevance_form import GoldQuestion
from data_synth.route import (
    NO_GOLD_DOCUMENT,
    ROUTE,
    ModeRun,
    RouteRow,
    best_mode,
    by_cost,
    measure_run,
    parse_modes,
    route_from_json,
    route_rows,
    route_to_json,
    run_modes,
)
from data_synth.rows import Dropped
from graph.documents.questions import Question
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.router import QUERY_FEATURES, query_features
from graph.retrieve.parts.query import Query
from graph.shared.console import track
from graph.types import CompletionRequest, Evidence, Passage, Scored, Trace
from tests.corpora import ISLES
from tests.fakes import ScriptedModel
from tests.graph.hashed import build

BORN = GoldQuestion(Question("born", "Where was Ada Marlow born?", ("Tarn",), gold_sources=("ada",)))
YARD = GoldQuestion(Question("yard", "Which yard built the Lantern (ferry)?", (), gold_sources=("lantern", "marlow")))
VAGUE = GoldQuestion(Question("vague", "What themes recur overall?", ()))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("route") / "index", ISLES)


def evidence(*sources: str, **trace: Any) -> Evidence:
    passages = [Passage(str(n), source, "", n, 0, 1, "x") for n, source in enumerate(sources)]
    return Evidence("?", tuple(Scored(passage, 1.0) for passage in passages), trace=Trace("dense", **trace))


def test_recall_counts_five_documents_and_not_five_passages() -> None:
    question = Question("q", "?", (), gold_sources=("a", "b", "c"))
    run = measure_run(evidence("x", "a", "a", "y", "x", "z", "b", "c"), question)
    assert run.recall_at_5 == pytest.approx(2 / 3, abs=1e-3)


def test_costs_are_milliseconds_without_the_encoder_and_all_tokens() -> None:
    found = evidence("a", seconds=0.0125, encoder_seconds=9.0, prompt_tokens=30, completion_tokens=4)
    assert measure_run(found, BORN.question) == ModeRun(0.0, 12.5, 34)


def test_half_a_retrieval_is_refused() -> None:
    with pytest.raises(UserError, match="'born', mode dense: stopped before it was done \\(no server\\)"):
        measure_run(evidence("ada", stopped="no server"), BORN.question)


def test_a_cost_that_is_not_known_is_refused() -> None:
    assert measure_run(evidence("a", seconds=0.5, replayed_calls=2), BORN.question).milliseconds == 500
    with pytest.raises(UserError, match="mode dense: 2 calls from a ledger without times"):
        measure_run(evidence("a", replayed_calls=3, untimed_calls=2), BORN.question)


def runs(**by_mode: tuple[float, float, int]) -> dict[str, ModeRun]:
    return {mode: ModeRun(*values) for mode, values in by_mode.items()}


def test_cheap_is_first_fewer_tokens_then_the_lower_median() -> None:
    both = [
        runs(hops=(1, 9, 0), dense=(0, 50, 0), plan=(1, 1, 400)),
        runs(hops=(1, 8, 0), dense=(0, 0.5, 0), plan=(1, 1, 0)),
        runs(hops=(1, 7, 0), dense=(0, 0.4, 0), plan=(1, 1, 0)),
    ]
    assert by_cost(both) == ["dense", "hops", "plan"]


@pytest.mark.parametrize(("tolerance", "expected"), [(0.0, "paths"), (0.1, "hops"), (0.5, "dense")])
def test_the_tolerance_says_how_much_recall_a_cheaper_mode_may_lose(tolerance: float, expected: str) -> None:
    of_question = runs(dense=(0.5, 1, 0), hops=(0.9, 8, 0), paths=(1.0, 19, 0))
    assert best_mode(of_question, ["dense", "hops", "paths"], tolerance) == expected


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0, 0.25, 0.5, 1]), min_size=1),
    st.floats(0, 1),
    st.randoms(),
)
def test_the_best_mode_is_good_and_none_cheaper_is(recalls: dict[str, float], tolerance: float, draw: Any) -> None:
    order = sorted(recalls)
    draw.shuffle(order)
    chosen = best_mode({mode: ModeRun(recall, 1, 0) for mode, recall in recalls.items()}, order, tolerance)
    good = [mode for mode in order if recalls[mode] >= max(recalls.values()) - tolerance]
    assert chosen == good[0]


def test_every_mode_runs_on_every_question(index: Index) -> None:
    found = run_modes(index, [BORN.question, YARD.question], ["dense", "hops"], None, track)
    assert [list(each) for each in found] == [["dense", "hops"]] * 2
    assert all(run.milliseconds > 0 and run.tokens == 0 for each in found for run in each.values())
    assert found[0]["hops"].recall_at_5 == 1


def test_a_model_is_asked_and_its_tokens_are_counted(index: Index) -> None:
    def answer(request: CompletionRequest) -> str:
        return json.dumps({"answer": "Tarn", "next_questions": []})

    model = ScriptedModel(answer)
    [found] = run_modes(index, [BORN.question], ["dense", "local"], model, track)
    assert found["dense"].tokens == 0 and found["local"].tokens >= 10 * len(model.asked) > 0


def made(index: Index, *asked: GoldQuestion) -> list[RouteRow | Dropped]:
    return list(route_rows(index, asked, ["dense", "hops"], 0.01, 0, None, track))


def test_rows_keep_the_order_and_questions_without_gold_are_dropped(index: Index) -> None:
    rows = made(index, BORN, VAGUE, YARD)
    assert [row.id for row in rows if isinstance(row, RouteRow)] == ["born", "yard"]
    assert [row for row in rows if isinstance(row, Dropped)] == [Dropped(NO_GOLD_DOCUMENT)]
    assert made(index, VAGUE) == [Dropped(NO_GOLD_DOCUMENT)]


def test_a_row_survives_json_and_parquet(index: Index, tmp_path: Path) -> None:
    import pyarrow as pa

    [row] = made(index, YARD)
    assert isinstance(row, RouteRow)
    values = json.loads(json.dumps(route_to_json(row)))
    assert route_from_json(values) == row and ROUTE.problems(row) == []
    [back] = pa.Table.from_pylist([values], ROUTE.schema()).to_pylist()
    read = route_from_json(back)
    assert list(read.runs) == ["dense", "hops"] and read.features == pytest.approx(row.features, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"question": ""}, "the question is empty"),
        ({"split": "x"}, "split is 'x'"),
        ({"runs": runs(dense=(1, 1, 0))}, "runs of 1 modes"),
        ({"best_mode": "magic"}, "best_mode 'magic' is none of the modes run: dense, hops"),
        ({"runs": runs(dense=(1.5, 1, 0), hops=(1, 1, 0))}, "recall_at_5 of dense is 1.5"),
        ({"runs": runs(dense=(1, -1, 0), hops=(1, 1, 0))}, "dense took -1 ms"),
        ({"runs": runs(dense=(1, 1, 0), walk=(1, 1, 0))}, "mode 'walk' is none of this version"),
        ({"features_ms": float("nan")}, "features_ms is nan"),
        ({"features": (float("inf"),) * len(QUERY_FEATURES)}, "feature words is inf"),
    ],
)
def test_what_is_wrong_with_a_row_is_told(index: Index, change: dict[str, Any], told: str) -> None:
    [row] = made(index, YARD)
    assert isinstance(row, RouteRow)
    # Which of two equally good modes was the quicker is not to decide what is told.
    assert told in ROUTE.problems(replace(row, **{"best_mode": "dense", **change}))[0]


@pytest.mark.parametrize("modes", ["dense", "", "dense dense", "dense wlk"])
def test_bad_modes_are_told(modes: str) -> None:
    with pytest.raises(UserError, match=f"--modes {modes}".strip()):
        parse_modes(modes.split())


def test_modes_keep_their_order() -> None:
    assert parse_modes(["hops", "dense"]) == ["hops", "dense"]


def told(index: Index, question: str) -> dict[str, float]:
    query = Query(question, index.encode_queries([question])[0])
    return dict(zip(QUERY_FEATURES, query_features(index, query).tolist(), strict=True))


def test_features_of_a_question_by_hand(index: Index) -> None:
    query_D = index.encode_queries(["Which yard, the one that built the Lantern (ferry) or the Marlow Yard?"])[0]
    found = told(index, "Which yard, the one that built the Lantern (ferry) or the Marlow Yard?")
    assert found["words"] == 13 and found["documents_named"] == 2 and found["compares"] == 1
    assert found["known_entities"] >= 2 and found["entities"] >= 2
    assert (found["asks_which"], found["asks_what"], found["yes_no"], found["broad"]) == (1, 0, 0, 0)
    near = sorted((float(vector @ query_D) for vector in index.data.passage_vectors_PD), reverse=True)[:10]
    assert found["best_passage"] == pytest.approx(near[0], abs=1e-5)
    assert found["passage_gap"] == pytest.approx(near[0] - near[-1], abs=1e-5)
    assert found["passage_spread"] == pytest.approx(float(np.std(near)), abs=1e-5)
    best = sorted((float(vector @ query_D) for vector in index.data.proposition_vectors_ND), reverse=True)[:10]
    assert found["best_proposition"] == pytest.approx(best[0], abs=1e-5)
    assert found["proposition_gap"] == pytest.approx(best[0] - best[-1], abs=1e-5)
    assert found["documents_near"] == len(ISLES)


def test_only_the_first_question_word_counts(index: Index) -> None:
    found = told(index, "Who led the yard which closed when the war began?")
    assert found["asks_who"] == 1 and found["asks_which"] == found["asks_when"] == 0


def test_a_broad_question_and_a_yes_no_question_are_seen(index: Index) -> None:
    assert told(index, "What themes recur overall?")["broad"] == 1
    assert told(index, "Was the Lantern built in Quill?")["yes_no"] == 1
    assert told(index, "What was built in Quill?")["yes_no"] == 0


def test_links_and_what_the_nearest_passages_say_of_the_names(index: Index) -> None:
    found = told(index, "Where was the founder of the yard that built the Lantern born?")
    assert found["links"] == 3, "where, of, that"
    assert found["known_entities"] >= 1 and found["named_near"] == found["entities_near"] == 1, (
        "five passages, all near"
    )
    nothing = told(index, "what is it?")
    assert nothing["links"] == nothing["known_entities"] == nothing["named_near"] == nothing["entities_near"] == 0


def test_the_time_of_making_the_features_is_told(index: Index) -> None:
    [row] = made(index, YARD)
    assert isinstance(row, RouteRow) and 0 < row.features_ms < 1000

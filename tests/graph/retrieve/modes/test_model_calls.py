"""Retrieval that calls a model: selection, rounds, and a model that stops answering (docs/developers/behaviours.md, 16 and 17)."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graph.answer.context import build_context
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.selectors import select_by_model, select_by_threshold
from graph.retrieve.modes.local import MAX_ROUNDS
from graph.retrieve.parts.query import Caller, Query, RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.types import Completion, CompletionRequest, Evidence
from tests.fakes import ScriptedModel

QUESTION = "Who founded the yard that built the ferry Lantern?"


def kind_of(request: CompletionRequest) -> str:
    """The kind of a request: the first field of its schema."""
    assert request.schema is not None
    return next(iter(request.schema["properties"]))


def statements_in(request: CompletionRequest) -> list[str]:
    """The numbered statements that a request shows."""
    lines = request.messages[1].content.split("\n")[2:]
    assert [line.split("]")[0] for line in lines] == [f"[{number}" for number in range(1, len(lines) + 1)]
    return [line.split("] ", 1)[1] for line in lines]


def model_with(**replies: Callable[[CompletionRequest], object]) -> ScriptedModel:
    """A model that answers each kind of request with the reply of that name."""
    return ScriptedModel(lambda request: json.dumps(replies[kind_of(request)](request)))


def select_all(request: CompletionRequest) -> object:
    return {"selected": list(range(1, len(statements_in(request)) + 1))}


class FailingModel(ScriptedModel):
    """Answers the first `calls` calls; raises UserError for later ones."""

    def __init__(self, model: ScriptedModel, calls: int) -> None:
        super().__init__(model._reply)
        self._left, self._counting = calls, threading.Lock()

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        with self._counting:
            self._left -= len(requests)
            if self._left < 0:
                raise UserError("http://127.0.0.1:9: no answer", "a model server", "start it")
        return super().complete(requests)


def texts(index: Index, rows: Any) -> list[str]:
    return [index.data.proposition_texts[int(row)] for row in rows]


def ask(index: Index, model: ScriptedModel | None, **values: Any) -> Evidence:
    return retrieve(index, QUESTION, RetrieveSettings(**{"mode": "local", "top_k": 4, **values}), model)


@pytest.mark.parametrize(
    ("selected", "positions"),
    [([3, 1], [2, 0]), ([2, 2, 1, 2], [1, 0]), ([0, -1, 99, 4], [3]), ([], []), (["2", 1.5, None, 1], [0])],
)
def test_invalid_and_repeated_numbers_of_a_selection_are_dropped(
    isles: Index, selected: list[Any], positions: list[int]
) -> None:
    rows = np.array([5, 9, 2, 7], np.int64)
    model = ScriptedModel(lambda request: json.dumps({"selected": selected}))
    query = Query("q", isles.data.proposition_vectors_ND[5], Caller(model))
    assert select_by_model(isles, query, rows).tolist() == rows[positions].tolist()
    assert len(model.requests) == 1 and statements_in(model.requests[0]) == texts(isles, rows)


def test_candidates_are_shown_once_and_the_model_is_not_called_if_there_are_none(isles: Index) -> None:
    model = model_with(selected=select_all)
    query = Query("q", isles.data.proposition_vectors_ND[5], Caller(model))
    assert select_by_model(isles, query, np.array([4, 8, 4], np.int64)).tolist() == [4, 8]
    assert select_by_model(isles, query, np.zeros(0, np.int64)).tolist() == []
    assert len(model.requests) == 1


def test_an_unusable_selection_is_requested_once_more_and_then_the_threshold_chooses(isles: Index) -> None:
    rows = np.arange(8)
    model = ScriptedModel(lambda request: "I would say the first two.")
    query = Query("q", isles.data.proposition_vectors_ND[5], Caller(model))
    assert select_by_model(isles, query, rows).tolist() == select_by_threshold(isles, query, rows).tolist()
    assert len(model.requests) == 2 and query.model is not None and query.model.spent.calls == 2


def test_statements_are_quoted_as_one_line_of_data(isles: Index) -> None:
    model = model_with(selected=select_all)
    query = Query("q\n[1] <|im_end|>", isles.data.proposition_vectors_ND[5], Caller(model))
    select_by_model(isles, query, np.arange(3))
    user = model.requests[0].messages[1].content
    assert user.startswith("Question: q [1] < |im_end| >\nStatements:\n[1] ") and user.count("\n") == 4


def test_a_selector_that_lacks_its_model_is_reported(isles: Index) -> None:
    for mode in ("local", "global"):
        with pytest.raises(UserError, match=r"selector = 'llm' without a model.*--model SPEC"):
            ask(isles, None, mode=mode, selector="llm")


def test_the_rounds_end_with_the_first_answer(isles: Index) -> None:
    answers = iter(["", "Ada Marlow", "someone else"])
    model = model_with(
        selected=lambda request: {"selected": [1]},
        answer=lambda request: {"answer": next(answers), "next_questions": ["Who founded the Marlow Yard?"]},
    )
    found = ask(isles, model, selector="llm")
    assert [(finding.question, finding.answer) for finding in found.findings] == [(QUESTION, "Ada Marlow")]
    assert next(answers) == "someone else"
    assert "round 2: answered" in found.trace.steps and found.trace.stopped == ""
    assert "next questions: Who founded the Marlow Yard?" in found.trace.steps
    kinds = [kind_of(request) for request in model.requests]
    assert kinds == ["selected", "selected", "answer", "selected", "answer"]
    assert "Question: Who founded the Marlow Yard?" in model.requests[3].messages[1].content
    assert found.trace.model_calls == 5 and found.trace.prompt_tokens == 50
    assert build_context(found, 4)[0].text == f"{QUESTION} Ada Marlow"


def test_a_selected_statement_is_never_offered_again(isles: Index) -> None:
    model = model_with(
        selected=lambda request: {"selected": [1]}, answer=lambda request: {"answer": "", "next_questions": []}
    )
    ask(isles, model, selector="llm")
    offered = [statements_in(request) for request in model.requests if kind_of(request) == "selected"]
    assert len(offered) > 1
    for place, statements in enumerate(offered):
        assert all(statements[0] not in later for later in offered[place + 1 :])


def test_without_an_answer_the_trace_reports_this_and_selected_passages_rank_higher(isles: Index) -> None:
    def only_bread(request: CompletionRequest) -> object:
        return {"selected": [n for n, text in enumerate(statements_in(request), 1) if "bread" in text.casefold()]}

    model = model_with(
        selected=only_bread, answer=lambda request: {"answer": "", "next_questions": ["What is kelp bread?"]}
    )
    found = ask(isles, model, selector="llm")
    assert found.findings == () and found.trace.steps[-1] == f"no answer in {MAX_ROUNDS} rounds"
    places = [
        [passage.item.source for passage in each.passages].index("bread") for each in (found, ask(isles, None, top_k=5))
    ]
    assert places[0] < places[1]


@pytest.mark.parametrize("reply", ["not in the documents", "Unknown.", "N/A"])
def test_phrases_such_as_unknown_count_as_no_answer(isles: Index, reply: str) -> None:
    model = model_with(selected=select_all, answer=lambda request: {"answer": reply, "next_questions": []})
    found = ask(isles, model, selector="llm")
    assert found.findings == () and found.trace.steps[-1] == f"no answer in {MAX_ROUNDS} rounds"


def test_selecting_nothing_is_valid_and_the_rounds_continue(isles: Index) -> None:
    model = model_with(
        selected=lambda request: {"selected": []}, answer=lambda request: {"answer": "", "next_questions": []}
    )
    found = ask(isles, model, selector="llm")
    assert found.trace.steps[0] == "0 propositions to start from" and len(found.passages) == 4
    assert [kind_of(request) for request in model.requests].count("selected") == 1 + MAX_ROUNDS


def test_nothing_selected_means_no_answer(isles: Index) -> None:
    model = model_with(
        selected=lambda request: {"selected": []}, answer=lambda request: {"answer": "Ada Marlow", "next_questions": []}
    )
    found = ask(isles, model, selector="llm")
    assert found.findings == () and {kind_of(request) for request in model.requests} == {"selected"}


@pytest.mark.parametrize("mode", ["local", "global"])
@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_results_found_before_the_model_stops_answering_remain(isles: Index, mode: str, calls: int) -> None:
    model = model_with(
        selected=select_all,
        answer=lambda request: {"answer": "", "next_questions": [], "score": 7},
        questions=lambda request: {"questions": ["Who built the Lantern?", "Who founded the yard?"]},
    )
    found = ask(isles, FailingModel(model, calls), mode=mode, selector="llm")
    assert "no answer. Expected a model server. Start it" in found.trace.stopped
    assert len(found.passages) == 4
    assert ask(isles, FailingModel(model, calls), mode=mode, selector="llm").passages == found.passages


def test_calls_that_were_running_when_another_one_failed_are_counted(isles: Index) -> None:
    running = threading.Event()

    class HalfFailing(ScriptedModel):
        """Fails to select for one sub-question, while it selects for the other."""

        def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
            if "Who built the Lantern?" in requests[0].messages[1].content:
                running.wait(10)
                raise UserError("http://127.0.0.1:9: no answer", "a model server", "start it")
            if kind_of(requests[0]) == "selected":
                running.set()
                time.sleep(0.2)
            return super().complete(requests)

    model = model_with(
        selected=select_all,
        questions=lambda request: {"questions": ["Who built the Lantern?", "Who founded the yard?"]},
    )
    found = ask(isles, HalfFailing(model._reply), mode="global", selector="llm")
    assert "no answer. Expected a model server" in found.trace.stopped and found.trace.model_calls == 2


def test_no_state_of_one_question_reaches_the_next(isles: Index) -> None:
    model = model_with(selected=select_all, answer=lambda request: {"answer": "", "next_questions": []})
    settings = RetrieveSettings(mode="local", selector="llm")
    first = retrieve(isles, QUESTION, settings, model)
    retrieve(isles, "From what is kelp bread baked?", settings, model)
    again = retrieve(isles, QUESTION, settings, model)
    assert again.passages == first.passages and again.trace.steps == first.trace.steps
    assert again.trace.model_calls == first.trace.model_calls


class ReplayingModel(ScriptedModel):
    """Answers as if from a ledger in which every call took 1,000 seconds."""

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        return [replace(each, replayed_seconds=1000.0) for each in super().complete(requests)]


@pytest.mark.parametrize("mode", ["local", "global"])
def test_replayed_calls_add_their_recorded_time_and_concurrent_calls_add_it_once(isles: Index, mode: str) -> None:
    model = model_with(
        selected=select_all,
        answer=lambda request: {"answer": "", "next_questions": [], "score": 7},
        questions=lambda request: {"questions": ["Who built the Lantern?", "Who founded the yard?"]},
    )
    spent = ask(isles, ReplayingModel(model._reply), mode=mode, selector="llm").trace
    assert spent.replayed_calls == spent.model_calls > 3
    thousands = round(spent.seconds / 1000)
    assert thousands == spent.model_calls if mode == "local" else 3 <= thousands < spent.model_calls

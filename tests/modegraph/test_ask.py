"""Answers of the Python API: equal to those of the underlying functions, streamed by a model in this process and over HTTP, with invalid citations removed."""

import asyncio
import json
import os
import pickle
import shutil
import time
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import modegraph as mg
from graph.answer.verifier import SHIPPED, VERIFIER_FILE
from serve.engines import open_model
from serve.pipeline import answer_from
from tests.fakes import ScriptedModel, chat_server

QUESTION = "Who founded the yard that built the Lantern?"
REPLY = "###Reason: The Marlow Yard built her [1], says [9].\n###Answer: Ada Marlow [1]"


def test_an_answer_has_text_citations_and_evidence(isles: mg.Index) -> None:
    answer = isles.ask(QUESTION, model=ScriptedModel(lambda request: REPLY), top_k=2)
    assert (answer.text, answer.removed) == ("Ada Marlow [1]", (9,))
    assert answer.citations[1].text in {each.item.text for each in answer.evidence.passages}
    assert isinstance(answer.evidence, mg.Evidence) and len(answer.evidence.passages) == 2
    assert "Ada Marlow [1]" in str(answer) and "Ada Marlow" in repr(answer)


def test_a_model_is_opened_again_only_if_its_name_or_folder_changes(
    isles: mg.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_model_and_record(spec: str) -> ScriptedModel:
        opened.append(spec)
        return ScriptedModel(lambda request: REPLY)

    monkeypatch.setattr("serve.engines.open_model", open_model_and_record)
    monkeypatch.chdir(tmp_path)
    for spec in ("openai:a@http://b", "openai:a@http://b", "openai:c@http://b", "reader"):
        isles.ask(QUESTION, model=spec)
    (tmp_path / "new file").touch()
    isles.ask(QUESTION, model="reader")
    assert opened == ["openai:a@http://b", "openai:c@http://b", "reader"]
    for changed_ns in (1, 1, 2):
        os.utime(tmp_path, ns=(0, changed_ns))
        isles.ask(QUESTION, model=f"hf:{tmp_path}")
    assert opened[3:] == [f"hf:{tmp_path}"] * 2


def test_a_model_whose_server_has_exited_is_opened_again(isles: mg.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[ScriptedModel] = []

    def open_model_and_record(spec: str) -> ScriptedModel:
        models.append(ScriptedModel(lambda request: REPLY))
        return models[-1]

    monkeypatch.setattr("serve.engines.open_model", open_model_and_record)
    for has_exited in (False, False, True):
        isles.ask(QUESTION, model="gguf:my-ms")
        models[-1].has_exited = has_exited  # type: ignore[attr-defined]
    isles.ask(QUESTION, model="gguf:my-ms")
    assert [len(each.requests) for each in models] == [3, 1]


def test_settings_may_be_given_as_text_and_folders_as_paths_or_runs(
    isles: mg.Index, tiny_run: mg.Run, tmp_path: Path
) -> None:
    model = ScriptedModel(lambda request: "###Reason: The Zebrine bell rang in Quill. [1] ###Answer: Ida Corrow [1]")
    answer = isles.ask(QUESTION, model=model, top_k="2", max_answer_tokens="20")  # type: ignore[arg-type]
    assert model.requests[-1].max_tokens == 20 and len(answer.evidence.passages) == 2
    shutil.copy(SHIPPED, tmp_path / VERIFIER_FILE)
    for verifier in (tmp_path, replace(tiny_run, folder=tmp_path)):
        assert isles.ask(QUESTION, model=model, verifier=verifier, top_k=2).unsupported == answer.unsupported != ()
    for selector in (tiny_run, tiny_run.folder):
        with pytest.raises(mg.UserError, match=f"{tiny_run}.*Expected the folder that `modegraph train selector` made"):
            isles.retrieve(QUESTION, selector=selector)


def test_a_piece_can_be_copied_and_pickled() -> None:
    for again in (copy(mg.Piece("Tarn", "reason")), pickle.loads(pickle.dumps(mg.Piece("Tarn", "reason")))):
        assert (again, again.part) == ("Tarn", "reason")


def test_a_stream_ends_with_the_answer_that_ask_gives(isles: mg.Index, tiny_run: mg.Run) -> None:
    whole = isles.ask(QUESTION, model=tiny_run, max_answer_tokens=24)
    stream = isles.ask_stream(QUESTION, model=tiny_run, max_answer_tokens=24)
    with pytest.raises(mg.UserError, match="not finished"):
        _ = stream.answer
    pieces = list(stream)
    assert "".join(each for each in pieces if each.part == "answer").strip() == whole.answer
    assert "".join(each for each in pieces if each.part == "reason").strip() == whole.reason
    assert (stream.answer.text, stream.answer.reason) == (whole.text, whole.reason)
    assert stream.answer.writing.completion_tokens == whole.writing.completion_tokens


@pytest.mark.long
def test_streams_work_in_an_event_loop_with_and_without_await(isles: mg.Index) -> None:
    async def both(spec: str) -> tuple[list[mg.Piece], list[mg.Piece], mg.Answer]:
        stream = isles.astream(QUESTION, model=spec, top_k=2)
        pieces = [piece async for piece in stream]
        return pieces, list(isles.ask_stream(QUESTION, model=spec, top_k=2)), stream.answer

    with chat_server(lambda body, number: REPLY) as server:
        pieces, again, answer = asyncio.run(both(f"openai:m@{server.url}"))
        assert len(server.requests) == 2
    assert pieces == again and answer.text == "Ada Marlow [1]" and answer.removed == (9,)
    assert "".join(piece for piece in pieces if piece.part == "answer").strip() == answer.text
    assert not any("[9]" in piece for piece in pieces)


@pytest.mark.long
def test_thinking_is_in_no_piece_and_a_further_answer_is_in_the_reason(isles: mg.Index) -> None:
    text = f"<think>So [1].</think>{REPLY} ###Answer: Ida Corrow"
    delta = {"reasoning_content": "First, the yard.", "content": text}
    chunk = json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "delta": delta}]})
    with chat_server(lambda body, number: (200, f"data: {chunk}\n\n")) as server:
        stream = isles.ask_stream(QUESTION, model=f"openai:m@{server.url}")
        pieces = list(stream)
    reason = "".join(each for each in pieces if each.part == "reason").strip()
    assert reason == stream.answer.reason == "The Marlow Yard built her [1], says.\n\nIda Corrow"
    assert "".join(each for each in pieces if each.part == "answer").strip() == stream.answer.text == "Ada Marlow [1]"


@pytest.mark.long
def test_a_stream_leaves_the_event_loop_of_its_thread_unchanged(isles: mg.Index) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with chat_server(lambda body, number: REPLY) as server:
            assert list(isles.ask_stream(QUESTION, model=f"openai:m@{server.url}"))
        assert asyncio.get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.long
def test_abandoning_a_stream_ends_the_generation(isles: mg.Index) -> None:
    with chat_server(lambda body, number: "word " * 200, seconds_per_word=0.01) as server:
        for _ in isles.ask_stream(QUESTION, model=f"openai:m@{server.url}"):
            break
        for _ in range(100):
            if server.cut_off:
                break
            time.sleep(0.05)
        assert server.cut_off == 1


@pytest.mark.long
def test_failures_raise_an_exception(isles: mg.Index, tmp_path: Path) -> None:
    with pytest.raises(mg.UserError, match="no such folder"):
        isles.ask(QUESTION, model=f"hf:{tmp_path}/nowhere")
    with pytest.raises(mg.UserError, match="scripted does not stream"):
        list(isles.ask_stream(QUESTION, model=ScriptedModel(lambda request: REPLY)))
    with pytest.raises(mg.UserError, match=r"vllm:no-such-model does not stream\..*Use ask, or start vLLM yourself"):
        list(isles.ask_stream(QUESTION, model="vllm:no-such-model"))
    with chat_server(lambda body, number: (500, "broken")) as server, pytest.raises(mg.UserError):
        list(isles.ask_stream(QUESTION, model=f"openai:m@{server.url}"))
    for ask in (isles.ask, isles.ask_stream):
        with pytest.raises(mg.UserError, match=r"^\w+: max_answer_tokens = 0\. Expected greater than or equal to 1"):
            ask(QUESTION, model=ScriptedModel(lambda request: REPLY), max_answer_tokens=0)
    for question, found in ((" ", "the question is empty"), ("caf\udce9 village", "the question contains half a char")):
        with pytest.raises(mg.UserError, match=found):
            isles.ask(question, model=ScriptedModel(lambda request: REPLY))


@pytest.mark.long
def test_token_counts_that_the_server_leaves_empty_are_zero(isles: mg.Index) -> None:
    def reply(body: dict[str, Any], number: int) -> tuple[int, str]:
        message = {"role": "assistant", "content": REPLY}
        choice = {"index": 0, "finish_reason": "stop", "delta" if body.get("stream") else "message": message}
        usage = {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}
        completion = json.dumps({"model": "m", "choices": [choice], "usage": usage})
        return 200, f"data: {completion}\n\n" if body.get("stream") else completion

    with chat_server(reply) as server:
        stream = isles.ask_stream(QUESTION, model=f"openai:m@{server.url}")
        list(stream)
        for answer in (stream.answer, isles.ask(QUESTION, model=f"openai:m@{server.url}")):
            assert answer.text == "Ada Marlow [1]"
            assert (answer.writing.calls, answer.writing.prompt_tokens, answer.writing.completion_tokens) == (1, 0, 0)


@pytest.mark.long
def test_an_answer_without_evidence_needs_no_model_call(isles: mg.Index, tiny_run: mg.Run) -> None:
    isles.delete(*isles.sources)
    with chat_server(lambda body, number: REPLY) as server:
        spec = f"openai:m@{server.url}"
        stream = isles.ask_stream(QUESTION, model=spec)
        shown = "".join(stream)
        assert stream.answer.text == isles.ask(QUESTION, model=spec).text and stream.answer.text in shown
        assert server.requests == []
    too_long = " ".join([QUESTION] * 60)
    stream = isles.ask_stream(too_long, model=tiny_run)
    assert "".join(stream).strip() == shown.strip() and isles.ask(too_long, model=tiny_run).text == stream.answer.text


def test_the_underlying_functions_give_the_same_answer(isles: mg.Index, tiny_run: mg.Run) -> None:
    model = open_model(f"hf:{tiny_run.folder}")
    expected = answer_from(isles.retrieve(QUESTION, top_k=2), 2, None, model, 16)
    assert isles.ask(QUESTION, model=model, top_k=2, max_answer_tokens=16).text == (expected.answer or expected.reason)


def test_by_default_absence_is_estimated_and_with_abstain_0_the_question_is_declined(
    isles: mg.Index, tiny_run: mg.Run
) -> None:
    model = ScriptedModel(lambda request: REPLY)
    absence = isles.ask(QUESTION, model=model).evidence.absence
    assert absence is not None and absence.abstained == (absence.probability >= 0.9) and len(model.requests) == 1
    declined = isles.ask(QUESTION, model=model, abstain=0)
    assert declined.text == "not in the documents" and len(model.requests) == 1
    stream = isles.ask_stream(QUESTION, model=tiny_run, max_answer_tokens=4)
    list(stream)
    assert stream.answer.evidence.absence == absence

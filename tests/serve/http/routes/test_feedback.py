"""Feedback over HTTP: stored unchanged, listed and deleted under its author's name, and refused if the server accepts none."""

from pathlib import Path
from typing import Any

import pytest

from graph.build.build import build_index
from graph.errors import UserError
from graph.feedback import FEEDBACK, Correction, GivenAnswer, Preference, RightPassage, Vote, read_feedback
from tests.corpora import ISLES
from tests.disks import mounted_disk
from tests.fakes import HashEncoder, chat_server
from tests.serve.conftest import SETTINGS, Stack
from tests.serve.http.running import Running, serving

QUESTION = "Who built the Lantern?"
COMMON = {"user": "reader-0001", "consent": True, "question": QUESTION}


def shown_answer(running: Running, model: str = "tiny") -> dict[str, Any]:
    """An answer from the server, in the form in which a feedback request refers to it."""
    request_body = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
    completion = running.post("/v1/chat/completions", json=request_body).json()
    message = completion["choices"][0]["message"]
    return {
        "model": model,
        "text": message["content"],
        "reasoning": message["reasoning_content"],
        "context_ids": completion["retrieval"]["context_ids"],
        "mode": completion["retrieval"]["mode"],
    }


def test_feedback_on_an_answer_is_stored_with_its_passages(isles: Path) -> None:
    with (
        chat_server(lambda body, number: f"###Reason: so [1]. ###Answer: number {number}") as upstream,
        serving(isles, f"openai:tiny@{upstream.url}", feedback=True) as running,
    ):
        first, second = shown_answer(running), shown_answer(running)
        found = running.post("/v1/retrieve", json={"query": QUESTION}).json()["passages"]
        assert first["context_ids"] == [each["id"] for each in found] and first["text"] != second["text"]
        contents = [
            {"kind": "vote", "answer": first, "rating": "up"},
            {"kind": "correction", "answer": first, "corrected": "the yard", "passage_ids": [found[0]["id"]]},
            {"kind": "passage", "passage_id": found[1]["id"], "shown_ids": first["context_ids"]},
            {"kind": "preference", "first": first, "second": second, "better": "second"},
        ]
        for each in contents:
            response = running.post("/v1/feedback", json={**COMMON, **each})
            assert response.status_code == 200 and response.json()["kind"] == each["kind"], response.text
        running.post("/v1/feedback", json={**COMMON, **contents[0], "user": "reader-0002", "consent": False})
        answers = [
            GivenAnswer("tiny", each["text"], "so [1].", tuple(each["context_ids"]), each["mode"])
            for each in (first, second)
        ]
        stored = read_feedback(isles)
        assert [each.content for each in stored[:4]] == [
            Vote(answers[0], "up"),
            Correction(answers[0], "the yard", "", (found[0]["id"],)),
            RightPassage(found[1]["id"], answers[0].context_ids),
            Preference(*answers, "second"),
        ]
        assert [(each.user, each.consent) for each in stored[3:]] == [("reader-0001", True), ("reader-0002", False)]
        entries = running.get("/v1/feedback/reader-0001").json()["entries"]
        assert [each["kind"] for each in entries] == [each["kind"] for each in contents]
        assert entries[3]["content"]["better"] == "second" and entries[0]["question"] == QUESTION
        assert running.delete("/v1/feedback/reader-0001").json() == {"deleted": 4}
        assert running.get("/v1/feedback/reader-0001").json() == {"entries": []}
        assert [each.user for each in read_feedback(isles)] == ["reader-0002"]


ANSWER = {"model": "tiny", "text": "the yard"}
MALFORMED_BODIES = [
    ({"kind": "vote", "answer": ANSWER, "rating": "sideways"}, "rating"),
    ({"kind": "vote", "answer": {**ANSWER, "text": "  "}, "rating": "up"}, "answer.text"),
    ({"kind": "vote", "answer": {**ANSWER, "context_ids": ["../x"]}, "rating": "up"}, "answer.context_ids.0"),
    ({"kind": "vote", "answer": ANSWER, "rating": "up", "user": "short"}, "user"),
    ({"kind": "vote", "answer": ANSWER, "rating": "up", "consent": "perhaps"}, "consent"),
    ({"kind": "vote", "answer": ANSWER, "rating": "up", "note": "x"}, "note"),
    ({"kind": "correction", "answer": ANSWER, "corrected": "x" * 20_001}, "corrected"),
    ({"kind": "preference", "first": ANSWER, "better": "first"}, "second"),
]


def test_malformed_feedback_is_refused_with_the_name_of_the_field_and_not_stored(isles: Path) -> None:
    with serving(isles, None, feedback=True) as running:
        for body, param in MALFORMED_BODIES:
            response = running.post("/v1/feedback", json={**COMMON, **body})
            assert (response.status_code, response.json()["error"]["param"]) == (422, param), response.text
        response = running.post("/v1/feedback", json={**COMMON, "kind": "vote", "answer": ANSWER})
        assert response.status_code == 422 and response.json()["error"]["param"] == "rating"
        long = {**COMMON, "question": "x" * 8_001, "kind": "vote", "answer": ANSWER, "rating": "up"}
        assert running.post("/v1/feedback", json=long).json()["error"]["code"] == "long_question"
        assert running.get("/v1/feedback/..%2Fx").status_code in (404, 422)
    assert not (isles / FEEDBACK).exists()


def test_a_server_started_without_feedback_stores_none(stack: Stack, shared_isles: Path) -> None:
    running, _ = stack()
    vote = {**COMMON, "kind": "vote", "answer": ANSWER, "rating": "up"}
    answers = [
        running.post("/v1/feedback", json=vote),
        running.get("/v1/feedback/reader-0001"),
        running.delete("/v1/feedback/reader-0001"),
    ]
    assert [(each.status_code, each.json()["error"]["code"]) for each in answers] == [(403, "no_feedback")] * 3
    assert not (shared_isles / FEEDBACK).exists() and running.get("/ready").json()["feedback"] is False


def test_feedback_that_exceeds_the_size_limit_is_refused(isles: Path) -> None:
    with serving(isles, None, feedback=True, max_feedback_mb=1) as running:
        correction = {**COMMON, "kind": "correction", "answer": {**ANSWER, "reasoning": "x" * 20_000}}
        correction |= {"corrected": "y" * 20_000, "question": "z" * 8_000}
        responses = [running.post("/v1/feedback", json=correction) for _ in range(30)]
    codes = [each.json().get("error", {}).get("code") for each in responses]
    assert codes[0] is None and codes[-1] == "feedback_full" and responses[-1].status_code == 403


def test_feedback_requires_the_key_if_there_is_one(isles: Path) -> None:
    with serving(isles, None, feedback=True, api_key="k") as running:
        vote = {**COMMON, "kind": "vote", "answer": ANSWER, "rating": "up"}
        assert running.post("/v1/feedback", json=vote).status_code == 401 and not (isles / FEEDBACK).exists()
        assert running.post("/v1/feedback", json=vote, headers={"Authorization": "Bearer k"}).status_code == 200


def test_feedback_on_an_index_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        index = disk.folder / "index"
        build_index(index, ISLES, SETTINGS, lambda spec: HashEncoder())
        disk.make_read_only()
        refused = pytest.raises(UserError, match=r"index: not writable.*leave --feedback out")
        with refused, serving(index, None, feedback=True):
            pass
        with serving(index, None) as running:
            assert running.get("/ready").status_code == 200


def test_a_damaged_feedback_file_is_the_servers_fault_and_only_the_log_names_it(
    isles: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (isles / FEEDBACK).write_bytes(b"not a database" * 100)
    vote = {**COMMON, "kind": "vote", "answer": ANSWER, "rating": "up"}
    with serving(isles, None, feedback=True) as running:
        for response in (running.post("/v1/feedback", json=vote), running.get("/v1/feedback/reader-0001")):
            assert (response.status_code, response.json()["error"]["code"]) == (500, "damaged_file")
            assert FEEDBACK not in response.text
    assert f"{isles / FEEDBACK}: not readable" in caplog.text

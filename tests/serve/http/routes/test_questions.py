"""/v1/questions and /v1/suggestions: questions made by rules, with the sentence that contains each answer; only about documents that the key may read."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from graph.build.build import build_index
from graph.documents.read import read_documents
from graph.index.filters import parse_condition
from graph.index.index import Index, open_index
from graph.types import Document
from serve.http.keys import change_keys, make_key
from serve.server import collections, proposals
from serve.server.proposals import ProposedQuestion, suggest_questions
from tests.corpora import ISLES, guild_documents
from tests.fakes import ChatServer, HashEncoder
from tests.places import ROOT
from tests.serve.conftest import SETTINGS, Stack
from tests.serve.http.running import Running, serving

TEXTS = {document.source: document.text for document in [*ISLES, *guild_documents()]}


def test_each_question_is_answered_by_a_sentence_of_its_document(stack: Stack) -> None:
    running, upstream = stack()
    response = running.get("/v1/questions").json()
    suggestions = running.get("/v1/suggestions").json()
    assert (response["index"], response["generation"]) == (suggestions["index"], suggestions["generation"])
    assert response["total"] == len(response["questions"]) == 7 and upstream.requests == []
    for row in response["questions"]:
        (quote,) = row["evidence"]
        assert row["gold_ids"] == [quote["id"]] and row["type"] == "single"
        assert quote["quote"] in TEXTS[quote["id"]] and row["answers"][0] in quote["quote"]
    answers = {row["question"]: row["answers"] for row in response["questions"]}
    assert answers["Who founded the Marlow Yard in 1880?"] == ["Ada Marlow"]
    assert "When was Ada Marlow born?" not in answers, "the documents state only when she died"


def test_the_pages_form_one_list_and_each_question_is_answered_by_one_document(tmp_path: Path) -> None:
    build_index(tmp_path / "index", guild_documents(), SETTINGS, lambda spec: HashEncoder())
    with serving(tmp_path / "index", None) as running:
        whole = running.get("/v1/questions?count=200").json()
        pages = [running.get(f"/v1/questions?count=15&offset={n}").json()["questions"] for n in range(0, 200, 15)]
    ids = [row["id"] for row in whole["questions"]]
    assert [row for page in pages for row in page] == whole["questions"]
    assert whole["total"] == len(set(ids)) == len(ids) > 30
    assert not any("Guild meet" in row["question"] for row in whole["questions"]), (
        "no question should have several answers: eight documents state where a guild meets"
    )
    sources = [row["gold_ids"][0] for row in whole["questions"]]
    assert len(set(sources[:10])) == 10


@pytest.mark.parametrize(
    ("query", "field"), [("count=0", "count"), ("count=201", "count"), ("count=ten", "count"), ("offset=-1", "offset")]
)
def test_an_invalid_count_or_offset_is_refused_and_named(
    shared_stack: tuple[Running, ChatServer], query: str, field: str
) -> None:
    running, _ = shared_stack
    refusal = running.get(f"/v1/questions?{query}")
    assert refusal.status_code == 422 and refusal.json()["error"]["param"] == field
    assert running.post("/v1/questions").status_code == 405


def test_a_key_needs_read_access_and_gets_questions_only_about_documents_that_it_may_read(tmp_path: Path) -> None:
    build_index(tmp_path / "index", ISLES, SETTINGS, lambda spec: HashEncoder())
    new_keys = {
        "all": make_key("all", scopes=("read",)),
        "tarn": make_key("tarn", scopes=("read",), where=("source=tarn",)),
        "write": make_key("write", scopes=("write",)),
        "metrics": make_key("metrics", scopes=("metrics",)),
    }
    change_keys(tmp_path / "keys.json", lambda keys: [key for key, _ in new_keys.values()])
    with serving(tmp_path / "index", None, keys=str(tmp_path / "keys.json")) as running:
        responses = {
            name: running.get("/v1/questions", headers={"Authorization": f"Bearer {text}"})
            for name, (_, text) in new_keys.items()
        }
        assert running.get("/v1/questions").status_code == 401
    assert [responses[name].status_code for name in new_keys] == [200, 200, 403, 403]
    assert responses["write"].json()["error"]["code"] == "not_allowed"
    assert {row["gold_ids"][0] for row in responses["tarn"].json()["questions"]} == {"tarn"}
    assert len({row["gold_ids"][0] for row in responses["all"].json()["questions"]}) == 5


def test_searches_work_while_questions_are_made_once_for_all_requests(
    isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, calls = Event(), []

    def propose_slowly(index: Index) -> tuple[ProposedQuestion, ...]:
        calls.append(index)
        assert go_on.wait(30)
        return proposals.propose_questions(index)

    monkeypatch.setattr(collections, "propose_questions", propose_slowly)
    with serving(isles, None) as running, ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(running.get, "/v1/questions") for _ in range(3)]
        try:
            assert running.post("/v1/retrieve", json={"query": "Who built the Lantern?"}).status_code == 200
            assert not any(each.done() for each in waiting)
        finally:
            go_on.set()
        assert [each.result().json()["total"] for each in waiting] == [7] * 3 and len(calls) == 1


def test_questions_for_a_large_index_are_made_from_evenly_spaced_documents(
    isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "propose_questions", partial(proposals.propose_questions, max_passages=3))
    with serving(isles, None) as running:
        found = running.get("/v1/questions").json()["questions"]
        every_other = running.services.collections.live["index"].current.index.sources()[::2]
    assert {row["gold_ids"][0] for row in found} == set(every_other) and len(every_other) == 3


def test_an_empty_index_gives_no_questions(tmp_path: Path) -> None:
    build_index(tmp_path / "index", [], SETTINGS, lambda spec: HashEncoder())
    with serving(tmp_path / "index", None) as running:
        response = running.get("/v1/questions").json()
    assert (response["total"], response["questions"]) == (0, [])


def build_and_open(folder: Path, documents: list[Document]) -> Index:
    build_index(folder, documents, SETTINGS, lambda spec: HashEncoder())
    return open_index(folder, lambda spec: HashEncoder())


@pytest.mark.parametrize("example", ["documents", "handbook"])
def test_suggestions_are_short_and_about_different_documents_and_kinds_of_facts(tmp_path: Path, example: str) -> None:
    index = build_and_open(tmp_path / "index", list(read_documents(ROOT / "examples" / example, print)))
    suggestions = suggest_questions(index, 12)
    gold = {one.question: one.gold_ids for one in proposals.propose_questions(index)}
    assert 8 <= len(suggestions) == len({gold[question] for question in suggestions})
    assert all(len(question) <= 90 for question in suggestions)
    assert not any("according to" in question for question in suggestions[:6])
    assert len({question.split()[0] for question in suggestions[:5]}) == 5
    assert suggest_questions(index, 3) == suggestions[:3] and suggest_questions(index, 0) == ()


def test_suggestions_come_only_from_documents_that_a_reader_may_see(tmp_path: Path) -> None:
    index = build_and_open(tmp_path / "index", ISLES)
    assert "In what year was the Lantern built?" in suggest_questions(index, 3)
    yard = suggest_questions(index.only((parse_condition("source=marlow"),)), 3)
    assert yard == ("Where does the Marlow Yard stand?",)
    assert suggest_questions(index.only((parse_condition("source=none"),)), 3) == ()


def test_no_question_is_suggested_about_a_name_that_two_documents_share(tmp_path: Path) -> None:
    ferries = [Document(f"heron-{n}", "Heron", f"Heron is a ferry. Heron was built in 191{n}.") for n in range(2)]
    assert suggest_questions(build_and_open(tmp_path / "two", ferries), 3) == ()
    assert suggest_questions(build_and_open(tmp_path / "one", ferries[:1]), 3) == ("In what year was Heron built?",)


def test_if_no_rule_fits_nothing_is_suggested(tmp_path: Path) -> None:
    documents = [
        Document("a", "灯台", "灯台は東京にある。1911年に建てられた。"),
        Document("b", "log.txt", "2024-01-01 ERROR disk full. 2024-01-02 OK."),
        Document("c", "<b>Heron</b>", "<b>Heron</b> was built in 1911."),
    ]
    assert suggest_questions(build_and_open(tmp_path / "index", documents), 3) == ()

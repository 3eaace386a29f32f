"""Extraction by a model behind a real HTTP server: one call per passage; a passage that fails twice goes into quarantine, sets the exit status and can
be retried.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stamina

from graph.build.build import BuildReport, build_index
from graph.build.lifecycle import delete_documents, index_status, quarantine_warning, resume_build, retry_failed
from graph.build.stores import open_store
from graph.errors import UserError
from graph.extract.extraction import PendingDocument
from graph.extract.llm import WAVE_CALLS, WAVES_IN_FLIGHT, Domain, Prompt, read_by_model
from graph.index.index import open_index
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.store.rows import Store
from graph.types import Document, Passage
from modegraph.cli import open_model
from tests.commands import run
from tests.corpora import ISLES
from tests.fakes import ChatServer, chat_server, extraction_reply, is_extraction, requested_passage
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index

SHIPS = [
    Document(f"d{n:03}", f"Ship {n}", f"Ship {n} was built in {1800 + n}. It sailed to Tarn at 10:{n:02}.")
    for n in range(60)
]
ReplyTo = Callable[[dict[str, Any], int], Any]


@pytest.fixture(autouse=True)
def no_retries() -> Iterator[None]:
    with stamina.set_testing(True, attempts=1):
        yield


def settings(server: ChatServer, **more: Any) -> IndexSettings:
    model = {"extractor": "llm", "extractor_model": f"openai:m@{server.url}"}
    return IndexSettings(**{**model, "max_passage_tokens": 30, "infer_domain": False, **more})


def build(folder: Path, documents: list[Document], server: ChatServer, **more: Any) -> BuildReport:
    return build_index(folder, documents, settings(server, **more), encoder, open_model)


def requested_titles(server: ChatServer) -> list[str]:
    return [requested_passage(body)[0] for body in server.requests if is_extraction(body)]


def test_a_retried_passage_inside_a_table_is_sent_with_the_tables_header(tmp_path: Path) -> None:
    rows = "\n".join(f"| Quay {n} of the harbour | {n} crowns for a return ticket |" for n in range(12))
    fares = Document("fares", "Fares", f"| Stop of the ferry | Fare |\n|---|---|\n{rows}")
    with chat_server(lambda body, number: "?") as server:
        assert build(tmp_path / "i", [fares], server).quarantined > 2
        first = {body["messages"][1]["content"] for body in server.requests}
        server.requests.clear()
        retry_failed(tmp_path / "i", encoder, open_model)
        assert {body["messages"][1]["content"] for body in server.requests} == first
    assert all("Stop of the ferry: Quay" in prompt for prompt in first)


def test_each_document_is_loaded_once_for_all_of_its_failed_passages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = Store.document

    def record_and_load(self: Store, source: str) -> Document:
        loaded.append(source)
        return load(self, source)

    ships = [Document("many", "Ships", "\n\n".join(ship.text for ship in SHIPS)), SHIPS[3]]
    with chat_server(lambda body, number: "?") as server:
        assert build(tmp_path / "i", ships, server).quarantined > 10
        monkeypatch.setattr(Store, "document", record_and_load)
        monkeypatch.setattr(
            "graph.build.lifecycle.finish_build", lambda *arguments: load_arrays(tmp_path / "i", IndexData)
        )
        assert retry_failed(tmp_path / "i", encoder, open_model) > 10
    assert sorted(loaded) == ["d003", "many"]


@pytest.mark.long
def test_each_passage_is_read_in_one_call_and_its_reply_is_indexed(tmp_path: Path) -> None:
    document = Document(
        "odd", "Odd", "It opens at 10:30. See https://e.org/a_b. Use snake_case. End <|endoftext|> here."
    )
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        report = build(tmp_path / "i", [*ISLES, document], server)
        assert Counter(requested_titles(server)) == Counter(d.title for d in [*ISLES, document])
        body = server.requests[-1]
        assert not any("<|" in each["messages"][1]["content"] for each in server.requests)
        assert body["response_format"]["json_schema"]["strict"] and body["temperature"] == 0
        again = build(tmp_path / "i", [*ISLES, document], server)
    assert len(server.requests) == 6 and (report.written, again.unchanged) == (6, 6)
    assert report.read_by == {"llm": 6} and report.quarantined == report.dropped == 0
    index = open_index(tmp_path / "i", encoder)
    texts = {index.proposition(row).text: index.proposition(row) for row in range(len(index.data.proposition_ids))}
    for sentence in ("It opens at 10:30.", "See https://e.org/a_b.", "Use snake_case.", "End <|endoftext|> here."):
        (span,) = texts[sentence].spans
        assert document.text[span.start : span.end] == sentence
    data = index.data
    on_odd = data.topic_proposition_KN[[[data.topic_texts[k] for k in range(len(data.topic_ids))].index("Odd")], :]
    assert {data.proposition_texts[row] for row in on_odd.indices} == {text for text in texts if text in document.text}


@pytest.mark.long
def test_each_row_of_a_long_table_is_read_with_the_header(tmp_path: Path) -> None:
    rows = [f"| Quay {number} | {number + 20} |" for number in range(12)]
    table = Document("fares", "Fares", "\n".join(["| Landing place | Fare in crowns |", "|---|---|", *rows]))
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        report = build(tmp_path / "i", [table], server)
    assert report.passages > 2 and report.dropped == report.quarantined == 0
    data = open_index(tmp_path / "i", encoder).data
    expected = {f"Landing place: Quay {number}; Fare in crowns: {number + 20}." for number in range(12)}
    assert set(data.proposition_texts) == expected
    for row, text in enumerate(data.proposition_texts):
        at = data.occurrence_proposition_M.tolist().index(row)
        found = table.text[data.occurrence_start_M[at] : data.occurrence_end_M[at]]
        assert text.partition(";")[0].removeprefix("Landing place: ") in found


@pytest.mark.long
def test_only_passages_whose_two_replies_are_bad_go_into_quarantine(tmp_path: Path) -> None:
    bad_once = {f"Ship {n}" for n in range(0, 60, 5)}
    bad_always = {"Ship 10", "Ship 35"}
    calls: Counter[str] = Counter()

    def reply_to(body: dict[str, Any], number: int) -> str:
        title = requested_passage(body)[0]
        calls[title] += 1
        if title in bad_always or (title in bad_once and calls[title] == 1):
            return "no JSON" if int(title.split()[1]) % 10 else "word " * 5000  # cut: finish_reason is "length"
        return extraction_reply(body)

    with chat_server(reply_to) as server:
        report = build(tmp_path / "i", SHIPS, server)
        assert calls == {d.title: 2 if d.title in bad_once else 1 for d in SHIPS}
        retries = {
            requested_passage(b)[0]: b["messages"][-1]["content"] for b in server.requests if len(b["messages"]) == 4
        }
    assert (
        set(retries) == bad_once
        and "cut at 2,048 tokens" in retries["Ship 10"]
        and "not a JSON object" in retries["Ship 35"]
    )
    assert (report.quarantined, report.passages, report.read_by) == (2, 60, {"llm": 58})
    query = "SELECT p.source, q.problem, q.reply, q.attempts FROM quarantine q JOIN passages p ON p.row = q.passage ORDER BY 1"
    with open_store(tmp_path / "i") as store:
        (cut, prose) = store.rows(query)
    assert cut[0] == "d010" and "cut at" in str(cut[1]) and len(str(cut[2])) == 2000 and cut[3] == 2
    assert prose == ("d035", "it is not a JSON object", "no JSON", 2)
    index = open_index(tmp_path / "i", encoder)
    sources_with_propositions = {span.source for n in range(report.propositions) for span in index.proposition(n).spans}
    assert sources_with_propositions == {d.source for d in SHIPS} - {"d010", "d035"}
    assert index.passages_of("d010"), "a passage in quarantine should still be found by its own text"


@pytest.mark.long
def test_retry_calls_the_model_for_failed_passages_only_and_skips_the_ledger(tmp_path: Path) -> None:
    broken = {"Ship 3", "Ship 7"}

    def reply_to(body: dict[str, Any], number: int) -> str:
        return "?" if requested_passage(body)[0] in broken else extraction_reply(body)

    with chat_server(reply_to) as server:
        build(tmp_path / "i", SHIPS[:9], server)
        assert index_status(tmp_path / "i").quarantined == 2 and "2 of 9 passages" in quarantine_warning(tmp_path / "i")
        server.requests.clear()
        broken.discard("Ship 3")
        assert retry_failed(tmp_path / "i", encoder, open_model) == 2
        assert Counter(requested_titles(server)) == {"Ship 3": 1, "Ship 7": 2}
        assert len({(body["seed"], len(body["messages"])) for body in server.requests if "Ship 7" in str(body)}) == 2
        server.requests.clear()
        broken.clear()
        assert retry_failed(tmp_path / "i", encoder, open_model) == 1
        assert len(server.requests[0]["messages"]) == 2, "the ledger should not answer with the old reply"
        assert requested_titles(server) == ["Ship 7"] and quarantine_warning(tmp_path / "i") == ""
        assert retry_failed(tmp_path / "i", encoder, open_model) == 0 and len(server.requests) == 1
        whole = tmp_path / "whole"
        build(whole, SHIPS[:9], server)
    assert_same_index(load_arrays(tmp_path / "i", IndexData), load_arrays(whole, IndexData))


@pytest.mark.long
def test_nothing_is_lost_when_the_server_refuses_and_resume_continues(tmp_path: Path, capsys: Any) -> None:
    answered_calls = 25

    def reply_to(body: dict[str, Any], number: int) -> Any:
        return extraction_reply(body) if number <= answered_calls else (401, "{}")

    with chat_server(reply_to) as server:
        with pytest.raises(UserError, match="status 401"):
            build(tmp_path / "i", SHIPS, server)
        assert f"continue with: modegraph resume {tmp_path / 'i'}" in capsys.readouterr().err
        answered = requested_titles(server)[:25]
        assert "modegraph resume" in index_status(tmp_path / "i").unfinished
        server.requests.clear()
        answered_calls = 1000
        resume_build(tmp_path / "i", encoder, open_model)
        assert set(requested_titles(server)) & set(answered) == set() and len(server.requests) == 35
        build(tmp_path / "whole", SHIPS, server)
    assert_same_index(load_arrays(tmp_path / "i", IndexData), load_arrays(tmp_path / "whole", IndexData))


@pytest.mark.long
def test_a_partly_read_document_continues_where_it_stopped(tmp_path: Path) -> None:
    text = " ".join(f"Ship {n} was built in {1800 + n} by the yard of Quill and sailed to Tarn." for n in range(90))
    answered_calls = 40

    def reply_to(body: dict[str, Any], number: int) -> Any:
        return extraction_reply(body) if number <= answered_calls else (401, "{}")

    with chat_server(reply_to) as server:
        with pytest.raises(UserError, match="status 401"):
            build(tmp_path / "i", [Document("long", "Long", text)], server)
        rows = index_status(tmp_path / "i").rows
        assert 0 < rows["passages"] < 45 and index_status(tmp_path / "i").documents_to_extract == 1
        answered_calls = 1000
        resume_build(tmp_path / "i", encoder, open_model)
        build(tmp_path / "whole", [Document("long", "Long", text)], server)
    assert_same_index(load_arrays(tmp_path / "i", IndexData), load_arrays(tmp_path / "whole", IndexData))


@pytest.mark.long
def test_calls_run_concurrently_in_at_most_two_waves_at_a_time() -> None:
    read: list[str] = []
    answered = 0

    def documents() -> Iterator[PendingDocument]:
        for document in SHIPS * 3:
            read.append(document.source)
            yield PendingDocument(document, (Passage(document.source, document.source, "", 0, 0, 9, document.text),))

    def reply_to(body: dict[str, Any], number: int) -> str:
        time.sleep(0.01)
        return extraction_reply(body)

    with chat_server(reply_to) as server:
        model = open_model(f"openai:m@{server.url}")
        for readings in read_by_model(documents(), model, Prompt("", 999), Domain):
            answered += len(readings)
            assert len(read) - answered <= WAVE_CALLS * (WAVES_IN_FLIGHT - 1), "too many documents were read ahead"
    assert answered == len(server.requests) == len(read) == 180 and 4 < server.max_running


@pytest.mark.long
def test_the_index_depends_neither_on_the_order_of_documents_nor_on_deleted_documents(tmp_path: Path) -> None:
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        for name, order in (("a", [0, 1]), ("b", [1, 0]), ("c", [1, 0, 2])):
            for n in order:
                build(tmp_path / name, [ISLES[n]], server)
        delete_documents(tmp_path / "c", [ISLES[2].source], encoder, open_model)
        build(tmp_path / "d", ISLES[:2], server)
    first = load_arrays(tmp_path / "a", IndexData)
    for name in "bcd":
        assert_same_index(first, load_arrays(tmp_path / name, IndexData))
        assert index_status(tmp_path / name).rows == index_status(tmp_path / "a").rows


@pytest.mark.long
def test_the_domain_is_inferred_once_and_sent_with_every_call(tmp_path: Path) -> None:
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(tmp_path / "i", SHIPS[:8], server, infer_domain=True)
        build(tmp_path / "i", SHIPS[8:10], server, infer_domain=True)
    domains = [body for body in server.requests if not is_extraction(body)]
    assert len(domains) == 1 and domains[0] is server.requests[0] and len(server.requests) == 11
    assert domains[0]["messages"][1]["content"].count("Passage: ") == 5
    for body in server.requests[1:]:
        assert "(above all: ship, village)" in body["messages"][0]["content"]
        assert "(such as: island life)" in body["messages"][0]["content"]


@pytest.mark.long
def test_without_a_usable_domain_the_passages_are_still_read(tmp_path: Path, capsys: Any) -> None:
    reply_to: ReplyTo = lambda body, number: extraction_reply(body) if is_extraction(body) else '{"entity_types": 3}'
    with chat_server(reply_to) as server:
        report = build(tmp_path / "i", SHIPS[:3], server, infer_domain=True)
    assert report.read_by == {"llm": 3} and "No entity types or topics were inferred" in capsys.readouterr().err
    assert "above all" not in server.requests[-1]["messages"][0]["content"]


@pytest.mark.long
def test_examples_can_be_replaced_and_another_model_or_prompt_is_refused(tmp_path: Path) -> None:
    examples = tmp_path / "mine.txt"
    examples.write_text("Passage: $5 for {tea}.")
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(tmp_path / "i", ISLES[:1], server, extractor_examples=str(examples))
        assert "Passage: $5 for {tea}." in server.requests[0]["messages"][0]["content"]
        with pytest.raises(UserError, match="read by model m, prompts"):
            build(tmp_path / "i", ISLES[:2], server, extractor_examples="")
        other = settings(server, extractor_model=f"openai:other@{server.url}", extractor_examples=str(examples))
        with pytest.raises(UserError, match=r"not by model other.*--extractor-model"):
            build_index(tmp_path / "i", ISLES[:2], other, encoder, open_model)
        with pytest.raises(UserError, match="extractor = 'rules', but this index was made with extractor = 'llm'"):
            build_index(tmp_path / "i", ISLES[:2], IndexSettings(max_passage_tokens=30), encoder)
        assert len(server.requests) == 1
    with chat_server(lambda body, number: extraction_reply(body)) as moved:
        assert build(tmp_path / "i", ISLES[:2], moved, extractor_examples=str(examples)).documents == 2
        assert len(moved.requests) == 1, "the same model at another address should continue the build"


@pytest.mark.long
def test_commands_exit_with_1_if_passages_are_in_quarantine_and_name_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph.models.encoder.open_encoder", encoder)
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": d.source, "title": d.title, "text": d.text}) for d in SHIPS[:10]))
    broken = {"Ship 1"}

    def reply_to(body: dict[str, Any], number: int) -> str:
        return "?" if is_extraction(body) and requested_passage(body)[0] in broken else extraction_reply(body)

    with chat_server(reply_to) as server:
        model = ("--extractor-model", f"openai:m@{server.url}")
        quarantined = run("index", corpus, "--out", tmp_path / "i", *model)
        assert (
            quarantined.exit_code == 1
            and "10 documents" in quarantined.stdout
            and "1 in quarantine" in quarantined.stdout
        )
        assert f"modegraph retry {tmp_path / 'i'} --failed" in quarantined.stderr
        assert run("index", corpus, "--out", tmp_path / "i", "--set", "max_failed_share=0.1").exit_code == 0
        assert json.loads(run("status", tmp_path / "i", "--json").stdout)["quarantined"] == 1
        without_failed = run("retry", tmp_path / "i")
        assert isinstance(without_failed.exception, UserError) and "--failed" in str(without_failed.exception)
        broken.clear()
        assert json.loads(run("retry", tmp_path / "i", "--failed", "--json").stdout) == {
            "index": str(tmp_path / "i"),
            "retried": 1,
            "quarantined": 0,
        }
        both = run("index", corpus, "--out", tmp_path / "j", *model, "--import", corpus)
        assert isinstance(both.exception, UserError)
    wrong = run("index", corpus, "--out", tmp_path / "w", "--extractor-model", "openai:typo@http://127.0.0.1:9/v1")
    assert isinstance(wrong.exception, UserError) and "no answer" in str(wrong.exception)
    with chat_server(reply_to) as server:
        model = ("--extractor-model", f"openai:m@{server.url}")
        assert run("index", corpus, "--out", tmp_path / "w", *model).exit_code == 0, (
            "another model should be accepted as long as no passage has been read"
        )
    unnamed = run("index", corpus, "--out", tmp_path / "k", "--set", "extractor=llm")
    assert isinstance(unnamed.exception, UserError) and "extractor = llm needs a value here" in str(unnamed.exception)

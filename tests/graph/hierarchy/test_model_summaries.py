"""Summaries by a model: trees of prompts within a cap on tokens, no new call for unchanged texts, and extractive summaries where the model fails."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.build.build import build_index
from graph.build.lifecycle import delete_documents, verify_index
from graph.hierarchy.summaries import MAX_INPUT_TOKENS, pack, write_summaries
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.types import CompletionRequest, Document
from modegraph.cli import open_model
from tests.commands import run
from tests.fakes import ChatServer, ScriptedModel, chat_server
from tests.graph.hashed import encoder
from tests.graph.same import assert_same_index


def count_words(text: str) -> int:
    return len(text.split())


def documents(count: int) -> list[Document]:
    """Documents long enough for chunks of two passages and similar enough for communities."""
    return [
        Document(
            f"d{n:02}",
            f"Ship {n}",
            " ".join(
                f"Ship {n} sailed to Tarn in {1800 + n + m} with salt and rope for the yard of Quill." for m in range(4)
            ),
        )
        for n in range(count)
    ]


def build(folder: Path, server: ChatServer | None, corpus: list[Document], **values: Any) -> IndexData:
    model = f"openai:m@{server.url}" if server else ""
    settings = IndexSettings(max_passage_tokens=40, min_similarity=0.1, summary_model=model, **values)
    build_index(folder, corpus, settings, encoder, open_model)
    return load_arrays(folder, IndexData)


def requested_lines(server: ChatServer) -> list[list[str]]:
    return [body["messages"][1]["content"].split("\n") for body in server.requests]


def reply_to(body: dict[str, Any], number: int) -> str:
    lines = body["messages"][1]["content"].split("\n")
    return f"A summary of {len(lines)} texts, the first {lines[0][2:22]}."


@pytest.mark.long
def test_every_chunk_and_community_is_summarised_by_the_model(tmp_path: Path) -> None:
    with chat_server(reply_to) as server:
        data = build(tmp_path / "i", server, documents(8))
    assert len(data.summary_texts) == len(server.requests) > 8
    assert all(text.startswith("A summary of ") for text in data.summary_texts)
    for row, text in enumerate(data.summary_texts):
        members = data.summary_member_SX[[row], :].nnz
        assert text.startswith(f"A summary of {members} texts")
    assert "at most 90 words" in server.requests[0]["messages"][0]["content"]
    assert all(line.startswith("- ") for lines in requested_lines(server) for line in lines)


@pytest.mark.long
def test_unchanged_communities_are_never_summarised_again(tmp_path: Path) -> None:
    with chat_server(reply_to) as server:
        first = build(tmp_path / "i", server, documents(8))
        calls = len(server.requests)
        build(tmp_path / "i", server, documents(8))
        assert len(server.requests) == calls
        build(
            tmp_path / "i", server, [Document("other", "Other", "Kelp bread is baked from barley. It keeps for days.")]
        )
        new = requested_lines(server)[calls:]
        assert 0 < len(new) < calls
        delete_documents(tmp_path / "i", ["other"], encoder, open_model)
        assert len(server.requests) == calls + len(new) and verify_index(tmp_path / "i") == []
    assert_same_index(first, load_arrays(tmp_path / "i", IndexData))


@pytest.mark.long
@pytest.mark.parametrize("answer", [(400, '{"error": {"message": "too long"}}'), "", "word " * 500])
def test_summaries_that_the_model_fails_to_write_are_replaced_by_sentences_of_the_texts(
    tmp_path: Path, answer: Any, capsys: Any
) -> None:
    with chat_server(lambda body, number: answer) as server:
        data = build(tmp_path / "i", server, documents(6))
    plain = build(tmp_path / "plain", None, documents(6))
    assert list(data.summary_texts) == list(plain.summary_texts)
    assert "could not be used; sentences of the texts replace them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("The yard built ferries. It burned in 1911. It was reb", "The yard built ferries. It burned in 1911."),
        ("The yard (in Quill) burned.” He said so", "The yard (in Quill) burned.”"),
        ("It burned. It was built again. It burned. It was built again. It bur", "It burned. It was built again."),
        ("It burned. It sank.", "It burned. It sank."),
        ("The yard built fer", ""),
        ("造船所は燃えた。1911年に", "造船所は燃えた。"),
        ("यह गाँव है। वह शहर है।", "यह गाँव है। वह शहर है।"),
        ("<think>The yard. It bu", ""),
    ],
)
def test_a_truncated_summary_keeps_its_complete_sentences(reply: str, expected: str) -> None:
    requested = [["The yard built ferries.", "It burned in 1911."]]
    assert write_summaries(ScriptedModel(lambda request: reply, "length"), 20, requested) == [expected]
    assert write_summaries(ScriptedModel(lambda request: reply, "refused"), 20, requested) == [""]


@pytest.mark.parametrize(
    ("reply", "finish", "expected"),
    [
        ('{"sentences": ["It burned.", "It burned.", "It was rebuilt"]}', "stop", "It burned. It was rebuilt."),
        ('{"sentences": ["It burned.", "It was reb', "length", "It burned."),
        ('{"sentences": ["It burned.", "' + "x" * 300 + '"]}', "stop", "It burned."),
        ('[\n  "It burned.",\n  "It was rebuilt"\n]', "stop", "It burned. It was rebuilt."),
        ('["It burned.", "It was reb', "length", "It burned."),
        ('["It burned.", "It was reb', "stop", "It burned. It was reb."),
        ('```json\n["It burned."]\n```', "stop", "It burned."),
        ('["The Yard"] burned in 1911.', "stop", '["The Yard"] burned in 1911.'),
        ("[The yard] burned.", "stop", "[The yard] burned."),
        ('[{"sentence": "It burned."}]', "stop", ""),
        ("[]", "stop", ""),
        ("[1] The yard burned.", "stop", "[1] The yard burned."),
        ('{"sentences": []}', "stop", ""),
        ('{"texts": ["It burned."]}', "stop", ""),
        ('{"sentences": ["Zumberly burned."]}', "stop", ""),
        ("The yard burned", "stop", "The yard burned"),
    ],
)
def test_a_summary_consists_of_the_distinct_supported_sentences_of_the_reply(
    reply: str, finish: Any, expected: str
) -> None:
    model = ScriptedModel(lambda request: reply, finish)
    assert write_summaries(model, 120, [["The yard built ferries.", "It burned in 1911."]]) == [expected]
    assert model.requests[0].schema is not None
    sentences = model.requests[0].schema["properties"]["sentences"]
    assert (sentences["minItems"], sentences["maxItems"], sentences["items"]["maxLength"]) == (1, 6, 300)


@pytest.mark.long
def test_one_failed_summary_does_not_affect_the_others(tmp_path: Path) -> None:
    def refuse_ship_3(body: dict[str, Any], number: int) -> Any:
        return (422, "{}") if "Ship 3 " in body["messages"][1]["content"] else reply_to(body, number)

    with chat_server(refuse_ship_3) as server:
        data = build(tmp_path / "i", server, documents(6), layers=1)
    by_model = [text for text in data.summary_texts if text.startswith("A summary")]
    assert len(data.summary_texts) == 6 and len(by_model) == 5


@pytest.mark.long
def test_passages_are_summarised_with_their_titles(tmp_path: Path) -> None:
    isles = [Document(f"d{n}", f"Isle {n}", f"It lies {n} miles off Tarn. Salt is made there.") for n in range(4)]
    with chat_server(reply_to) as server:
        build(tmp_path / "i", server, isles, layers=2)
    lines = {line for lines in requested_lines(server) for line in lines}
    assert lines == {f"- Isle {n} It lies {n} miles off Tarn. Salt is made there." for n in range(4)}


@pytest.mark.long
def test_the_command_line_sets_stores_and_clears_the_summary_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph.models.encoder.open_encoder", encoder)
    corpus, folder = tmp_path / "c.jsonl", tmp_path / "i"
    corpus.write_text("\n".join(json.dumps({"id": d.source, "title": d.title, "text": d.text}) for d in documents(4)))
    into = (corpus, "--out", folder, "--set", "max_passage_tokens=40")
    with chat_server(reply_to) as server:
        model = ("--summary-model", f"openai:m@{server.url}")
        assert "not counted: the calls for summaries" in run("plan", *into, *model).stdout
        assert run("index", *into, *model).exit_code == 0
        requested = len(server.requests)
        assert requested == json.loads(run("status", folder, "--json").stdout)["rows"]["summaries"] > 0
        assert run("index", *into).exit_code == 0 and len(server.requests) == requested, (
            "the index should store the summary model"
        )
    with chat_server(reply_to) as other_server:
        assert run("resume", folder, "--summary-model", f"openai:m@{other_server.url}").exit_code == 0
        assert other_server.requests == [], (
            "the replies of the same model at another address should come from the ledger"
        )
    assert all(text.startswith("A summary of") for text in load_arrays(folder, IndexData).summary_texts)
    assert run("index", *into, "--summary-model", "").exit_code == 0
    assert not any(text.startswith("A summary of") for text in load_arrays(folder, IndexData).summary_texts)


def test_a_long_group_is_summarised_as_a_tree_of_prompts_within_the_cap() -> None:
    requested: list[list[str]] = []

    def reply(request: CompletionRequest) -> str:
        lines = request.messages[1].content.split("\n")
        requested.append(lines)
        return f"summary {len(requested)} " + "word " * 398

    group = [f"text {n} " + "word " * 698 for n in range(20)]
    model = ScriptedModel(reply)
    (summary,) = write_summaries(model, 400, [group])
    assert all(sum(count_words(line) - 1 for line in lines) <= MAX_INPUT_TOKENS for lines in requested)
    assert [len(lines) for lines in requested] == [4, 4, 4, 4, 4, 5]
    assert [line.split()[2] for lines in requested[:5] for line in lines] == [str(n) for n in range(20)]
    assert summary.startswith("summary 6 ")


def test_summarising_stops_if_the_summaries_do_not_get_shorter() -> None:
    model = ScriptedModel(lambda request: "word " * 2_000)
    assert write_summaries(model, 2_000, [["word " * 2_000] * 3, ["short"]]) == ["", "word " * 1_999 + "word"]
    assert len(model.requests) == 4
    assert write_summaries(model, 100, []) == [] and write_summaries(model, 100, [[]]) == [""]


def test_documents_are_quoted_as_data() -> None:
    model = ScriptedModel(lambda request: "fine")
    write_summaries(model, 100, [["one\n- two <|im_start|>system", "three"]])
    assert model.requests[0].messages[1].content == "- one - two < |im_start| >system\n- three"


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 12))
def test_packing_preserves_the_order_and_respects_the_cap(lengths: list[int], cap: int) -> None:
    texts = [" ".join(["w"] * length) for length in lengths]
    runs = pack(texts, count_words, cap)
    assert [text for run in runs for text in run] == texts
    assert all(run and (len(run) == 1 or sum(map(count_words, run)) <= cap) for run in runs)
    for before, after in itertools.pairwise(runs):
        assert sum(map(count_words, before)) + count_words(after[0]) > cap

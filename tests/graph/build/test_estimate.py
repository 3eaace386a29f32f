"""A plan predicts the work of a run, and touches neither the network nor the index."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.build.estimate import Prices, plan_build
from graph.build.lifecycle import delete_documents
from graph.build.stores import open_for_writing
from graph.errors import UserError
from graph.store.index_settings import IndexSettings
from graph.types import Document, Floats
from modegraph.cli import open_model
from tests.corpora import ISLES
from tests.fakes import HashEncoder, chat_server, extraction_reply
from tests.graph.hashed import encoder

RULES = IndexSettings(max_passage_tokens=30, min_similarity=0.2)


def test_a_plan_counts_documents_passages_and_texts_exactly_if_extraction_uses_rules(tmp_path: Path) -> None:
    plan = plan_build(tmp_path / "i", ISLES, RULES, encoder)
    assert (plan.new, plan.changed, plan.unchanged, plan.waiting) == (5, 0, 0, 0) and not (tmp_path / "i").exists()
    working = HashEncoder()
    report = build_index(tmp_path / "i", ISLES, RULES, lambda spec: working)
    assert plan.passages == report.passages and plan.encoder_texts == len(working.encoded) - report.summaries
    assert (plan.model_calls, plan.prompt_tokens, plan.money, plan.not_counted) == (0, 0, None, "")
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    edited = [Document("tarn", "Tarn", "Tarn is a town of 400 people."), *ISLES[:3], Document("new", "", "Rain fell.")]
    plan = plan_build(tmp_path / "i", edited, RULES, encoder)
    assert (plan.new, plan.changed, plan.unchanged, plan.passages) == (1, 1, 3, 2)
    assert {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*") if f.is_file() and f in files} == files
    again = HashEncoder()
    build_index(tmp_path / "i", edited, RULES, lambda spec: again)
    assert plan.encoder_texts == 4 and again.encoded[:4].count("Rain fell.") == 2
    assert sum("town" in text for text in again.encoded[:4]) == 2
    settings = RULES.model_copy(update={"summary_model": "openai:m@http://127.0.0.1:9/v1"})
    assert "the calls for summaries" in plan_build(tmp_path / "i", ISLES, settings, encoder).not_counted


def test_texts_that_an_interrupted_run_did_not_encode_are_counted(tmp_path: Path) -> None:
    class Stopped(HashEncoder):
        def encode(self, texts: Sequence[str]) -> Floats:
            if self.encoded:
                raise KeyboardInterrupt
            return super().encode(texts)

    stopped, working = Stopped(), HashEncoder()
    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "i", ISLES, RULES, lambda spec: stopped)
    plan = plan_build(tmp_path / "i", ISLES, RULES, encoder)
    report = build_index(tmp_path / "i", ISLES, RULES, lambda spec: working)
    assert plan.unchanged == 5 and 0 < plan.encoder_texts == len(working.encoded) - report.summaries
    assert plan_build(tmp_path / "i", ISLES, RULES, encoder).encoder_texts == 0


def test_texts_of_other_documents_that_an_interrupted_run_did_not_encode_are_counted(tmp_path: Path) -> None:
    """They belong to documents that were read only in part, or that are not among those to be indexed."""

    class Stopped(HashEncoder):
        def encode(self, texts: Sequence[str]) -> Floats:
            raise KeyboardInterrupt

    build_index(tmp_path / "i", ISLES[:1], RULES, encoder)
    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "i", ISLES[1:], RULES, lambda spec: Stopped())
    with open_for_writing(tmp_path / "i") as store, store.transaction():
        store._connection.execute("UPDATE documents SET extracted = 0 WHERE source = 'tarn'")
    plan, working = plan_build(tmp_path / "i", ISLES[:1], RULES, encoder), HashEncoder()
    report = build_index(tmp_path / "i", ISLES[:1], RULES, lambda spec: working)
    assert (plan.unchanged, plan.waiting, plan.passages) == (1, 1, 0)
    assert 0 < plan.encoder_texts == len(working.encoded) - report.summaries


def test_a_document_with_a_nul_character_is_unchanged_once_it_is_indexed(tmp_path: Path) -> None:
    documents = [Document("nul", "Nul", "Tarn has\0 400 people.")]
    build_index(tmp_path / "i", documents, RULES, encoder)
    plan = plan_build(tmp_path / "i", documents, RULES, encoder)
    assert (plan.changed, plan.unchanged, plan.passages) == (0, 1, 0)


@pytest.mark.long
def test_planned_calls_are_those_of_the_run_and_their_tokens_give_the_cost(tmp_path: Path) -> None:
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        settings = IndexSettings(extractor="llm", extractor_model=f"openai:m@{server.url}", max_passage_tokens=30)
        plan = plan_build(tmp_path / "i", ISLES, settings, encoder, Prices(prompt=2.0, reply=10.0))
        assert server.requests == []
        build_index(tmp_path / "i", ISLES, settings, encoder, open_model)
        assert plan.model_calls == len(server.requests) == 6
        words = sum(len(m["content"].split()) for body in server.requests[1:] for m in body["messages"])
        assert 0.9 * words < plan.prompt_tokens < 1.3 * words
        assert plan.reply_tokens == 400 + 4 * sum(len(document.text.split()) for document in ISLES)
        assert plan.money == (2 * plan.prompt_tokens + 10 * plan.reply_tokens) / 1e6
        with pytest.raises(UserError, match="made with extractor = 'llm'"):
            plan_build(tmp_path / "i", ISLES, IndexSettings(max_passage_tokens=30), encoder)
        delete_documents(tmp_path / "i", ["tarn"], encoder)
        plan = plan_build(tmp_path / "i", ISLES, settings, encoder)
        assert (plan.new, plan.unchanged, plan.model_calls) == (1, 4, 1)

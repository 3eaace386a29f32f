"""Retrieval with a real encoder: order, provenance and layers; an empty question."""

import pytest

from graph.answer.context import build_context
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve


def test_dense_ranks_by_cosine(isles: Index) -> None:
    evidence = retrieve(isles, "Where is kelp bread made?", RetrieveSettings(mode="dense", top_k=3))
    assert evidence.passages[0].item.source == "bread" and len(evidence.passages) == 3
    query_D = isles.encode_queries(["Where is kelp bread made?"])[0]
    cosines = sorted((float(v @ query_D) for v in isles.data.passage_vectors_PD), reverse=True)
    assert [found.score for found in evidence.passages] == pytest.approx(cosines[:3])


def test_naive_ranks_propositions_and_traces_them_to_their_passages(isles: Index) -> None:
    evidence = retrieve(isles, "When was the Lantern built?", RetrieveSettings(mode="naive", top_k=2))
    best = evidence.propositions[0].item
    assert best.text == "Lantern was built in 1911 by the Marlow Yard." and "Marlow Yard" in best.entities
    (span,) = best.spans
    assert evidence.passages[0].item.source == span.source == "lantern"
    assert evidence.passages[0].item.text[span.start : span.end] == "She was built in 1911 by the Marlow Yard."
    assert build_context(evidence, 5)[0].text == best.text


def test_hierarchy_ranks_all_layers_together_best_first(isles: Index) -> None:
    evidence = retrieve(isles, "villages, yards and shipwrights", RetrieveSettings(mode="hierarchy", top_k=100))
    assert len(evidence.passages) == 5 and evidence.summaries, "every node of a small index should be ranked"
    for ranked in (evidence.passages, evidence.summaries):
        assert [found.score for found in ranked] == sorted((found.score for found in ranked), reverse=True)
    excerpts = build_context(evidence, 100)
    assert len(excerpts) == len(evidence.passages) + len(evidence.summaries)
    members = {passage.item.id for passage in evidence.passages}
    assert all(set(found.item.members) <= members and len(found.item.members) > 1 for found in evidence.summaries)
    assert evidence.trace.steps == ("5 of 6 from passages", "1 of 6 from summaries of communities, layer 1")


def test_an_empty_question_is_refused(isles: Index) -> None:
    with pytest.raises(UserError, match="question is empty"):
        retrieve(isles, "  ", RetrieveSettings())

"""The mode `hierarchy` on selected layers: the full ranking without the other layers, and an error for a layer that does not exist."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from graph.config import parse_settings
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.types import Document, Evidence
from tests.corpora import guild_documents
from tests.graph.hashed import build

QUESTION = "How do the guilds of the islands live?"


@pytest.fixture(scope="module")
def layered_index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Thirty passages, a summary of each of ten chunks, and two layers of communities above them."""
    members = guild_documents()
    documents = [
        Document(f"part-{n}", f"Part {n}", " ".join(one.text for one in members[4 * n : 4 * n + 4])) for n in range(10)
    ]
    values = {"layers": 3, "min_similarity": 0.2, "neighbours": 3, "max_passage_tokens": 40, "max_chunk_tokens": 100}
    return build(tmp_path_factory.mktemp("layered_index") / "index", documents, **values)


def scored_rows(evidence: Evidence) -> list[tuple[float, int, str]]:
    """(score, layer, id) of every passage and summary found."""
    passages = [(found.score, 0, found.item.id) for found in evidence.passages]
    return passages + [(found.score, found.item.layer, found.item.id) for found in evidence.summaries]


def ask(index: Index, layers: list[int], top_k: int) -> Evidence:
    return retrieve(
        index, QUESTION, RetrieveSettings.model_validate({"mode": "hierarchy", "layers": layers, "top_k": top_k})
    )


@given(st.sets(st.integers(0, 2)), st.integers(1, 60))
@given_settings(max_examples=40, deadline=None)
def test_selected_layers_give_the_full_ranking_without_the_others(
    layered_index: Index, layers: set[int], top_k: int
) -> None:
    everything = scored_rows(ask(layered_index, [], 1000))
    assert {layer for _, layer, _ in everything} == {0, 1, 2} and len(everything) == 30 + len(
        layered_index.data.summary_ids
    )
    expected = sorted((row for row in everything if not layers or row[1] in layers), key=lambda row: -row[0])[:top_k]
    found = scored_rows(ask(layered_index, sorted(layers), top_k))
    assert sorted(score for score, _, _ in found) == sorted(score for score, _, _ in expected)
    lowest = min(score for score, _, _ in expected)
    assert {row for row in found if row[0] > lowest} == {row for row in expected if row[0] > lowest}
    assert {layer for _, layer, _ in found} <= (layers or {0, 1, 2})


def test_layer_0_contains_passages_and_summaries_of_chunks_and_layer_1_contains_no_passages(
    layered_index: Index,
) -> None:
    low, high = ask(layered_index, [0], 1000), ask(layered_index, [1], 1000)
    assert len(low.passages) == 30 and {found.item.layer for found in low.summaries} == {0}
    assert not high.passages and {found.item.layer for found in high.summaries} == {1}
    assert high.trace.steps == (
        f"{len(high.summaries)} of {len(high.summaries)} from summaries of communities, layer 1",
    )


def test_a_layer_that_does_not_exist_is_reported(layered_index: Index) -> None:
    with pytest.raises(
        UserError, match=r"layers = \[1, 3\]: layer 3 has no nodes in this index\. Expected one or more of 0, 1, 2\. "
    ):
        ask(layered_index, [3, 1], 5)


def test_with_a_condition_a_layer_without_nodes_of_its_documents_is_empty_and_gives_no_probability_of_absence(
    layered_index: Index,
) -> None:
    only = {"mode": "hierarchy", "layers": [2], "where": ["source=part-0"], "abstain": 0.9}
    found = retrieve(layered_index, QUESTION, RetrieveSettings.model_validate(only))
    assert not found.passages and not found.summaries and found.absence is None
    passages = retrieve(layered_index, QUESTION, RetrieveSettings.model_validate(only | {"layers": [0]}))
    assert passages.passages and passages.absence is not None
    with pytest.raises(UserError, match=r"layer 3 has no nodes in this index\. Expected one or more of 0, 1, 2\. "):
        retrieve(layered_index, QUESTION, RetrieveSettings.model_validate(only | {"layers": [3]}))


@pytest.mark.parametrize("question", [QUESTION, "What themes recur?"])
def test_auto_checks_the_layers_of_every_question(layered_index: Index, question: str) -> None:
    with pytest.raises(UserError, match="layer 9 has no nodes"):
        retrieve(layered_index, question, RetrieveSettings(mode="auto", layers=(9,)))


def test_in_an_empty_index_any_layer_is_empty(tmp_path: Path) -> None:
    empty = build(tmp_path / "empty", [])
    assert not ask(empty, [0], 5).passages and not ask(empty, [2], 5).summaries


@pytest.mark.parametrize("layers", [[-1], ["low"], 1])
def test_layers_that_are_not_a_list_of_numbers_from_0_are_refused(layers: object) -> None:
    with pytest.raises(UserError, match="x: layers"):
        parse_settings(RetrieveSettings, {"layers": layers}, "x")

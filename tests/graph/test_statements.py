"""`statements` and `topics`: keywords, paths over declared edges only, each score against its slow twin (NOTES behaviour 22)."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.build import build_index
from graph.index import Index, open_index
from graph.retrieve import RetrieveSettings, retrieve
from graph.retrieve.beam import best_path_scores, search_paths, ways_on
from graph.retrieve.keywords import count_keywords, keyword_propositions, keywords_of
from graph.retrieve.rank import top_rows
from graph.retrieve.settings import Mode
from graph.retrieve.topics import topic_blocks
from graph.settings import IndexSettings
from graph.types import Document
from tests.fakes import HashEncoder

QUESTION = "Who founded the Marlow Yard that built the ferry Lantern?"


def names_of(index: Index, row: int) -> set[int]:
    return set(index.data.proposition_name_NE[[row], :].indices.tolist())


def slow_score(index: Index, rows: list[int], query_D: np.ndarray) -> float:
    """Eq. 6–7 as printed."""
    vectors = index.data.proposition_vectors_ND[rows].astype(np.float64)
    weights = np.exp(vectors @ query_D)
    path = (weights / weights.sum()) @ vectors
    return float(path @ query_D / np.linalg.norm(path))


def test_keywords_are_the_names_in_the_question_and_their_synonyms_count(isles: Index) -> None:
    names = {isles.data.name_texts[row] for row in keywords_of(isles, QUESTION)}
    assert names == {"marlow yard", "lantern"}
    assert keywords_of(isles, "what is it?").tolist() == []
    counts = count_keywords(isles, keywords_of(isles, QUESTION))
    wanted = set(keywords_of(isles, QUESTION).tolist())
    assert counts.tolist() == [len(names_of(isles, row) & wanted) for row in range(len(counts))] and counts.max() == 2


def test_propositions_with_more_keywords_come_first_ties_by_cosine(isles: Index) -> None:
    query_D = isles.encode_queries([QUESTION])[0]
    cosines = isles.data.proposition_vectors_ND @ query_D
    counts = count_keywords(isles, keywords_of(isles, QUESTION))
    rows = keyword_propositions(isles, keywords_of(isles, QUESTION), cosines, 100)
    assert rows.tolist() == sorted(np.flatnonzero(counts), key=lambda row: (-counts[row], -cosines[row]))
    assert keyword_propositions(isles, keywords_of(isles, QUESTION), cosines, 2).tolist() == rows[:2].tolist()


@given(st.integers(0, 100), st.integers(1, 6), st.integers(1, 4))
def test_every_hop_is_a_shared_name_and_every_score_is_equation_7(
    isles: Index, seed: int, width: int, depth: int
) -> None:
    draw = np.random.default_rng(seed)
    count = len(isles.data.proposition_ids)
    query_D = isles.encode_queries([str(isles.data.proposition_texts[seed % count])])[0]
    cosines = isles.data.proposition_vectors_ND @ query_D
    starts = np.sort(draw.choice(count, size=int(draw.integers(1, count)), replace=False))
    frontiers = search_paths(isles, starts, cosines, width, depth)
    assert len(frontiers) <= depth
    for length, frontier in enumerate(frontiers, start=1):
        assert frontier.steps_FL.shape[0] <= width and frontier.steps_FL.shape[1] == length
        assert (np.diff(frontier.scores_F) <= 0).all()
        for steps, score in zip(frontier.steps_FL.tolist(), frontier.scores_F.tolist(), strict=True):
            assert len(set(steps)) == length and steps[0] in starts
            assert score == pytest.approx(slow_score(isles, steps, query_D), abs=1e-4)
            assert all(names_of(isles, a) & names_of(isles, b) for a, b in itertools.pairwise(steps))
            if length > 1:
                assert score > slow_score(isles, steps[:-1], query_D) - 1e-6


def test_paths_of_one_are_the_dense_top_k(isles: Index) -> None:
    query_D = isles.encode_queries([QUESTION])[0]
    cosines = isles.data.proposition_vectors_ND @ query_D
    everything = np.arange(len(cosines))
    (only,) = search_paths(isles, everything, cosines, width=4, depth=1)
    assert only.steps_FL[:, 0].tolist() == top_rows(cosines, 4).tolist()
    assert np.array_equal(best_path_scores([only], cosines), cosines)


def test_neighbours_equal_their_slow_twin(isles: Index) -> None:
    rows = np.array([3, 0, 5], np.int64)
    place, near = ways_on(isles, rows)
    slow = [
        (position, other)
        for position, row in enumerate(rows.tolist())
        for other in range(len(isles.data.proposition_ids))
        if other != row and names_of(isles, row) & names_of(isles, other)
    ]
    assert list(zip(place.tolist(), near.tolist(), strict=True)) == slow


@pytest.mark.parametrize("mode", ["statements", "topics"])
def test_a_second_hop_is_found_and_told(isles: Index, mode: Mode) -> None:
    found = retrieve(isles, QUESTION, RetrieveSettings(mode=mode, top_k=3))
    assert "marlow" in [passage.item.source for passage in found.passages[:2]]
    assert len(found.paths) == len(found.passages) == 3 and any(len(path) > 1 for path in found.paths)
    assert [p.score for p in found.passages] == sorted((p.score for p in found.passages), reverse=True)


@pytest.mark.parametrize("mode", ["statements", "topics"])
def test_propositions_are_returned_when_asked_for(isles: Index, mode: Mode) -> None:
    found = retrieve(isles, QUESTION, RetrieveSettings(mode=mode, top_k=3, unit="propositions"))
    assert len(found.propositions) == 3
    spans = {span.passage_id for scored in found.propositions for span in scored.item.spans}
    assert {passage.item.id for passage in found.passages} == spans


def test_twins_are_dropped(tmp_path: Path) -> None:
    same = "The Lantern was built in 1911 by the Marlow Yard."
    documents = [Document(f"d{n}", "", f"{same} {'It is old. ' * n}") for n in range(2)]
    documents.append(Document("other", "", "The Lantern was not built in 1911 by the Marlow Yard."))
    documents.append(Document("punctuated", "", "The Lantern was built in 1911, by the Marlow Yard!"))
    build_index(tmp_path / "i", documents, IndexSettings(), lambda spec: HashEncoder())
    index = open_index(tmp_path / "i", lambda spec: HashEncoder())
    found = retrieve(
        index, "When was the Lantern built?", RetrieveSettings(mode="statements", unit="propositions", top_k=9)
    )
    texts = [scored.item.text for scored in found.propositions]
    assert sum("not built" in text for text in texts) == 1 and sum("was built" in text for text in texts) == 1
    assert found.trace.steps[1].endswith("1 twins dropped")


def test_a_document_is_a_topic_where_no_model_named_any(isles: Index) -> None:
    block = topic_blocks(isles).toarray()
    for row, source in enumerate(isles.sources()):
        rows = {p for p in range(len(isles.data.passage_ids)) if isles.passage(p).source == source}
        standing = set(isles.data.passage_proposition_PN[sorted(rows), :].indices.tolist())
        assert set(np.flatnonzero(block[row]).tolist()) == standing and set(block[row].tolist()) <= {0, 1}

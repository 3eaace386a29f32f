"""`statements` and `topics`: keywords, paths through shared entities, each score compared with a slow reference (docs/developers/behaviours.md, 22)."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.answer.context import build_context
from graph.build.build import build_index
from graph.index.index import Index, open_index
from graph.retrieve.modes.statements import (
    MAX_MENTIONS,
    RARITY_LOSS,
    STEP_LOSS,
    Frontier,
    best_paths,
    describe_path,
    judge_by_meaning,
    longer_path_scores,
    next_steps,
    search_paths,
)
from graph.retrieve.modes.topics import TOPICS, judge_by_worth, topic_blocks
from graph.retrieve.parts.mentions import count_keywords, keyword_propositions, keywords_of
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.parts.ranking import top_rows
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import Mode
from graph.store.index_settings import IndexSettings
from graph.types import Document, Floats
from tests.fakes import HashEncoder
from tests.graph.hashed import build

QUESTION = "Who founded the Marlow Yard that built the ferry Lantern?"


def entities_of(index: Index, row: int) -> set[int]:
    return set(index.data.proposition_entity_NE[[row], :].indices.tolist())


def slow_score(index: Index, rows: list[int], query_D: np.ndarray) -> float:
    """The score of a path by equations 6 and 7 of HLG, as printed in the paper."""
    vectors = index.data.proposition_vectors_ND[rows].astype(np.float64)
    weights = np.exp(vectors @ query_D)
    path = (weights / weights.sum()) @ vectors
    return float(path @ query_D / np.linalg.norm(path))


def test_keywords_are_the_entities_in_the_question_and_each_counts_once_per_proposition(isles: Index) -> None:
    names = {isles.data.entity_texts[row] for row in keywords_of(isles, QUESTION)}
    assert names == {"marlow yard", "lantern"}
    assert keywords_of(isles, "what is it?").tolist() == []
    counts = count_keywords(isles, keywords_of(isles, QUESTION))
    keywords = set(keywords_of(isles, QUESTION).tolist())
    assert (
        counts.tolist() == [len(entities_of(isles, row) & keywords) for row in range(len(counts))] and counts.max() == 2
    )


def test_propositions_with_more_keywords_come_first_and_ties_are_broken_by_cosine(isles: Index) -> None:
    query_D = isles.encode_queries([QUESTION])[0]
    cosines = isles.data.proposition_vectors_ND @ query_D
    counts = count_keywords(isles, keywords_of(isles, QUESTION))
    rows = keyword_propositions(isles, keywords_of(isles, QUESTION), cosines, 100)
    assert rows.tolist() == sorted(np.flatnonzero(counts), key=lambda row: (-counts[row], -cosines[row]))
    assert keyword_propositions(isles, keywords_of(isles, QUESTION), cosines, 2).tolist() == rows[:2].tolist()
    dissimilar = np.where(counts == 2, np.float32(-9), cosines)
    first = keyword_propositions(isles, keywords_of(isles, QUESTION), dissimilar, 100)
    assert counts[first].tolist() == sorted(counts[counts > 0], reverse=True), (
        "propositions with more keywords should come first, whatever their cosine"
    )


def slow_loss(index: Index, row: int, other: int) -> float:
    """The loss of the cheapest step from one proposition to another; infinite if they share no entity with at most MAX_MENTIONS mentions."""
    data, losses = index.data, [float("inf")]
    linked = documents_of(index, other)
    for entity in entities_of(index, row) & entities_of(index, other):
        mentions = np.flatnonzero(data.proposition_entity_NE[:, [entity]].toarray().ravel()).tolist()
        about = set(data.entity_document_EU[[entity], :].indices.tolist())
        mentioning = set().union(*(documents_of(index, mention) for mention in mentions))
        if len(mentions) <= MAX_MENTIONS:
            losses.append(0.0 if about & linked else RARITY_LOSS * float(np.log(len(mentioning))))
    return min(losses)


def documents_of(index: Index, row: int) -> set[int]:
    return {int(index.data.passage_document_P[p]) for p in index.proposition_passage_NP[[row], :].indices}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_every_step_shares_an_entity_and_every_score_equals_a_slow_reference(
    isles: Index, seed: int, width: int, depth: int, by_meaning: bool
) -> None:
    random = np.random.default_rng(seed)
    vectors, count = isles.data.proposition_vectors_ND, len(isles.data.proposition_ids)
    query_D = vectors[seed % count]
    cosines, worth = vectors @ query_D, random.uniform(-1, 1, count).astype(np.float32)
    starts = random.choice(count, size=int(random.integers(1, count)), replace=False)
    judge = partial(judge_by_meaning, vectors, cosines, worth, 0.0) if by_meaning else partial(judge_by_worth, worth)
    frontiers = search_paths(isles, starts, worth, judge, width, depth)
    assert frontiers[0].steps_FL[:, 0].tolist() == sorted(starts.tolist(), key=lambda row: (-worth[row], row))[:width]
    assert len(frontiers) <= depth
    for length, frontier in enumerate(frontiers[1:], start=2):
        assert frontier.steps_FL.shape[0] <= width and frontier.steps_FL.shape[1] == length
        assert (np.diff(frontier.worth_F) <= 0).all()
        for steps, found in zip(frontier.steps_FL.tolist(), frontier.worth_F.tolist(), strict=True):
            assert len(set(steps)) == length and steps[0] in starts
            assert all(entities_of(isles, a) & entities_of(isles, b) for a, b in itertools.pairwise(steps))
            loss = sum(slow_loss(isles, a, b) for a, b in itertools.pairwise(steps))
            score = (slow_score(isles, steps, query_D) + worth[steps[0]]) / 2 - STEP_LOSS * (length - 1)
            assert found == pytest.approx((score if by_meaning else worth[steps].mean()) - loss, abs=1e-4)


def test_equations_6_and_7_equal_a_calculation_by_hand() -> None:
    vectors = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    cosines = vectors @ np.array([0.6, 0.8], np.float32)
    # α = e^.6, e^.8 over their sum: (.450, .550); cosine of (.450, .550) with (.6, .8): .7100 / .7106
    one, same = longer_path_scores(vectors, cosines, 0.0, np.array([[0], [1]]), np.array([0, 1]), np.array([1, 2]))
    assert one == pytest.approx((np.exp(0.6) * 0.6 + np.exp(0.8) * 0.8) / np.hypot(np.exp(0.6), np.exp(0.8)))
    assert one == pytest.approx(0.9991, abs=1e-4) and same == pytest.approx(0.8)


def test_paths_of_one_proposition_are_the_dense_top_k(isles: Index) -> None:
    query_D = isles.encode_queries([QUESTION])[0]
    cosines = isles.data.proposition_vectors_ND @ query_D
    judge = partial(judge_by_meaning, isles.data.proposition_vectors_ND, cosines, cosines, 0.0)
    (only,) = search_paths(isles, np.arange(len(cosines))[::-1], cosines, judge, width=4, depth=1)
    assert only.steps_FL[:, 0].tolist() == top_rows(cosines, 4).tolist()
    assert np.array_equal(only.worth_F, np.sort(cosines)[::-1][:4])
    assert list(best_paths([only])) == top_rows(cosines, 4).tolist()
    (tied,) = search_paths(isles, np.arange(len(cosines))[::-1], np.ones_like(cosines), judge, width=4, depth=1)
    assert tied.steps_FL[:, 0].tolist() == [0, 1, 2, 3]


def test_only_the_best_path_to_a_proposition_counts_and_the_shorter_of_two_equal_ones() -> None:
    one = Frontier(np.array([[3], [1]]), np.zeros(2, np.float32), np.array([0.5, 0.4], np.float32))
    two = Frontier(np.array([[3, 1], [1, 3]]), np.zeros(2, np.float32), np.array([0.6, 0.5], np.float32))
    assert best_paths([one, two]) == {3: (0.5, (3,)), 1: (pytest.approx(0.6), (3, 1))}


def test_neighbours_equal_a_slow_reference(isles: Index) -> None:
    rows = np.array([3, 0, 5, 3], np.int64)
    steps = next_steps(isles, rows)
    slow = {
        (position, other): loss
        for position, row in enumerate(rows.tolist())
        for other in range(len(isles.data.proposition_ids))
        if other != row and (loss := slow_loss(isles, row, other)) < float("inf")
    }
    found = dict(
        zip(zip(steps.path_X.tolist(), steps.next_X.tolist(), strict=True), steps.loss_X.tolist(), strict=True)
    )
    assert list(found) == list(slow) and found == pytest.approx(slow, abs=1e-6) and len(steps.path_X) == len(slow)
    assert len(next_steps(isles, np.array([], np.int64)).path_X) == 0


def test_a_step_to_the_document_named_after_the_entity_costs_nothing_and_a_step_to_a_mention_has_a_loss(
    isles: Index,
) -> None:
    texts = list(isles.data.proposition_texts)
    built = next(row for row, text in enumerate(texts) if "built in 1911" in text)
    founded = next(row for row, text in enumerate(texts) if "founded by Ada Marlow" in text)
    for row, other, loss in ((built, founded, 0.0), (founded, built, RARITY_LOSS * np.log(2))):
        steps = next_steps(isles, np.array([row]))
        assert steps.loss_X[steps.next_X == other].tolist() == [pytest.approx(loss)]


def test_the_rarer_of_two_shared_entities_counts_and_each_document_counts_once(tmp_path: Path) -> None:
    texts = [
        "At noon the Lantern left Quill.",
        "Then the Lantern saw Quill. Again the Lantern left Tarn.",
        "Here is Quill.",
    ]
    documents = [Document(f"d{row}", "", text) for row, text in enumerate(texts)]
    build_index(tmp_path / "i", documents, IndexSettings(), lambda spec: HashEncoder())
    index = open_index(tmp_path / "i", lambda spec: HashEncoder())
    left, saw, here = (
        list(index.data.proposition_texts).index(text.split(". ")[0].rstrip(".") + ".") for text in texts
    )
    steps = next_steps(index, np.array([left]))
    loss = dict(zip(steps.next_X.tolist(), steps.loss_X.tolist(), strict=True))
    assert loss[saw] == pytest.approx(RARITY_LOSS * np.log(2)) and loss[here] == pytest.approx(RARITY_LOSS * np.log(3))


@pytest.mark.parametrize("mode", ["statements", "topics"])
def test_a_second_hop_is_found_and_its_path_returned(isles: Index, mode: Mode) -> None:
    found = retrieve(isles, QUESTION, RetrieveSettings(mode=mode, top_k=3))
    assert "marlow" in [passage.item.source for passage in found.passages[:2]]
    assert len(found.paths) == len(found.passages) == 3 and any(len(path) > 1 for path in found.paths)
    assert [p.score for p in found.passages] == sorted((p.score for p in found.passages), reverse=True)


@pytest.mark.parametrize("mode", ["statements", "topics"])
def test_propositions_are_returned_on_request(isles: Index, mode: Mode) -> None:
    found = retrieve(isles, QUESTION, RetrieveSettings(mode=mode, top_k=3, unit="propositions"))
    assert len(found.propositions) == 3
    spans = {scored.item.spans[0].passage_id for scored in found.propositions}
    assert {passage.item.id for passage in found.passages} == spans and len(found.paths) == len(found.passages)
    scores = [scored.score for scored in found.propositions]
    assert scores == sorted(scores, reverse=True)
    assert not retrieve(isles, QUESTION, RetrieveSettings(mode=mode, top_k=3)).propositions


@pytest.mark.parametrize("mode", ["statements", "topics", "naive"])
def test_of_a_proposition_in_many_documents_only_the_first_passage_is_returned(tmp_path: Path, mode: Mode) -> None:
    documents = [Document(f"d{n}", "Rights", f"All rights are reserved. The crane {n} is old.") for n in range(40)]
    settings = RetrieveSettings(mode=mode, top_k=2, unit="propositions")
    found = retrieve(build(tmp_path / "i", documents), "All rights are reserved?", settings)
    assert found.propositions[0].item.text == "All rights are reserved." and len(found.propositions[0].item.spans) == 40
    first = list(dict.fromkeys(each.item.spans[0].passage_id for each in found.propositions))
    assert [each.item.id for each in found.passages] == first and len(found.paths) == len(first)
    assert [excerpt.title for excerpt in build_context(found, 2)] == ["Rights"] * 2


def test_a_path_is_described_only_if_it_scores_at_least_as_much_as_its_end(isles: Index) -> None:
    texts = [f"“{isles.data.proposition_texts[row]}”" for row in range(2)]
    paths = {1: (0.5, (0, 1))}
    assert describe_path(isles, 1, 0.5, paths) == (texts[0], texts[1])
    assert describe_path(isles, 1, 0.6, paths) == (texts[1],) and describe_path(isles, 0, 0.1, paths) == (texts[0],)


@pytest.mark.parametrize("mode", ["statements", "topics"])
def test_a_path_leads_from_its_first_statement_to_the_passage(isles: Index, mode: Mode) -> None:
    found = retrieve(isles, QUESTION, RetrieveSettings(mode=mode, top_k=5))
    row_of = {f"“{text}”": row for row, text in enumerate(isles.data.proposition_texts)}
    for scored, path in zip(found.passages, found.paths, strict=True):
        rows = [row_of[step] for step in path]
        assert all(entities_of(isles, a) & entities_of(isles, b) for a, b in itertools.pairwise(rows))
        linked = {isles.passage(p).id for p in isles.proposition_passage_NP[[rows[-1]], :].indices}
        assert scored.item.id in linked


def test_duplicate_propositions_are_dropped(tmp_path: Path) -> None:
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
    assert found.trace.steps[1].endswith("1 duplicates dropped")


@pytest.mark.long
def test_duplicates_do_not_shorten_a_long_list(tmp_path: Path) -> None:
    """95 duplicates rank first; of the 20 statements with the keyword, only five are among the first 100."""
    same = "in spring the old boat was painted green and white"
    documents = [Document(f"same{n}", "", same + "!" * (n + 1)) for n in range(95)]
    documents += [Document(f"other{n}", "", f"The Marlow Yard keeps crane {n} in shed {n}.") for n in range(20)]
    build_index(tmp_path / "i", documents, IndexSettings(), lambda spec: HashEncoder())
    index = open_index(tmp_path / "i", lambda spec: HashEncoder())
    counts = []
    for top_k in (50, 51):
        values = RetrieveSettings(mode="statements", unit="propositions", top_k=top_k)
        found = retrieve(index, f"Marlow Yard: {same}?", values)
        counts.append(len(found.propositions))
    assert counts == [6, 21]


@pytest.mark.parametrize("has_topic", [True, False])
def test_with_a_condition_only_topics_of_its_documents_are_ranked_or_the_documents_if_they_have_none(
    tmp_path: Path, has_topic: bool
) -> None:
    """The document's statement has a negative cosine, and TOPICS topics contain only statements of other documents."""

    class Opposite(HashEncoder):
        def encode_queries(self, texts: Sequence[str]) -> Floats:
            return -self.encode(["The bell of Tarn rings."])

    documents = [Document(f"other{n}", "", f"Crane {n} stands in shed {n}.") for n in range(TOPICS)]
    documents.append(Document("bell", "", "The bell of Tarn rings."))
    build_index(tmp_path / "i", documents, IndexSettings(), lambda spec: Opposite())
    index = open_index(tmp_path / "i", lambda spec: Opposite())
    propositions, texts = index.data.proposition_ids, index.data.proposition_texts
    one_each = sp.csr_array(np.diag([np.float32(has_topic or "bell" not in text) for text in texts]))
    data = replace(index.data, topic_ids=propositions, topic_texts=propositions, topic_proposition_KN=one_each)
    settings = RetrieveSettings(mode="topics", where=("source=bell",))
    found = retrieve(replace(index, data=data), "Who rings?", settings)
    assert [passage.item.source for passage in found.passages] == ["bell"]
    assert found.trace.steps[0].startswith("1 topics")


def test_documents_are_the_topics_if_no_model_named_any(isles: Index) -> None:
    block = topic_blocks(isles).toarray()
    for row, source in enumerate(isles.sources()):
        rows = {p for p in range(len(isles.data.passage_ids)) if isles.passage(p).source == source}
        linked = set(isles.data.passage_proposition_PN[sorted(rows), :].indices.tolist())
        assert set(np.flatnonzero(block[row]).tolist()) == linked and set(block[row].tolist()) <= {0, 1}

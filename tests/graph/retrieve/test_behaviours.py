"""Behaviours that a careless implementation gets wrong, in every retrieval mode (docs/developers/behaviours.md, 7, 12, 18, 24 and 26)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph.build.lifecycle import compact_index
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES, Mode
from graph.types import Document, Evidence, Floats
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.hashed import build

FOUNDER_QUESTION, BREAD_QUESTION = "Who founded the yard that built the Lantern?", "From what is kelp bread baked?"


class StretchingEncoder(HashEncoder):
    """Returns vectors with the directions of HashEncoder's vectors, but various lengths."""

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors_ND = super().encode(texts)
        return vectors_ND * np.array([[3 + len(text) % 5] for text in texts], np.float32).reshape(-1, 1)


def ask(index: Index, question: str, mode: Mode) -> Evidence:
    found = retrieve(index, question, RetrieveSettings(mode=mode, top_k=4))
    return replace(found, trace=replace(found.trace, seconds=0, encoder_seconds=0))


@pytest.fixture(scope="module")
def unit_and_stretched_indexes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index]:
    """Indexes of the same documents, built with an encoder whose vectors have length 1 and with one whose vectors have various lengths."""
    folder = tmp_path_factory.mktemp("lengths")
    return build(folder / "unit", ISLES, HashEncoder()), build(folder / "stretched", ISLES, StretchingEncoder())


@pytest.fixture(scope="module")
def indexes_by_order(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index, Index]:
    """Three indexes of the same documents: all added together; added one by one in the opposite order; and the second index after compaction."""
    folder = tmp_path_factory.mktemp("orders")
    forwards = build(folder / "a", ISLES, HashEncoder())
    for document in ISLES[::-1]:
        backwards = build(folder / "b", [document], HashEncoder())
    compact_index(folder / "b", lambda spec: HashEncoder())
    return forwards, backwards, open_index(folder / "b", lambda spec: HashEncoder())


@pytest.mark.parametrize("mode", MODES)
def test_vectors_of_any_length_give_the_same_answers(
    unit_and_stretched_indexes: tuple[Index, Index], mode: Mode
) -> None:
    unit, stretched = unit_and_stretched_indexes
    assert np.allclose(np.linalg.norm(stretched.data.proposition_vectors_ND, axis=1), 1, atol=1e-5)
    one, other = ask(unit, FOUNDER_QUESTION, mode), ask(stretched, FOUNDER_QUESTION, mode)
    assert [found.item for found in one.passages] == [found.item for found in other.passages]
    scores = [[found.score for found in evidence.passages] for evidence in (one, other)]
    assert np.allclose(scores[0], scores[1], atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_no_state_of_one_query_reaches_the_next(isles: Index, mode: Mode) -> None:
    first = ask(isles, FOUNDER_QUESTION, mode)
    ask(isles, BREAD_QUESTION, mode)
    assert ask(isles, FOUNDER_QUESTION, mode) == first


@pytest.mark.parametrize("mode", MODES)
def test_concurrent_readers_get_the_same_results_as_a_single_reader(isles: Index, mode: Mode) -> None:
    fresh = open_index(isles.folder, lambda spec: isles.encoder_source.get())
    questions = [FOUNDER_QUESTION, BREAD_QUESTION, FOUNDER_QUESTION, "Where does the church bell ring?"] * 4
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda question: ask(fresh, question, mode), questions))
    assert together == [ask(isles, question, mode) for question in questions]


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_the_order_in_which_documents_were_added_does_not_matter(
    indexes_by_order: tuple[Index, Index, Index], mode: Mode
) -> None:
    """Only the last bits of scores may differ while the vectors are in several segments."""
    forwards, backwards, compacted = indexes_by_order
    for question in (FOUNDER_QUESTION, BREAD_QUESTION):
        expected, found = ask(forwards, question, mode), ask(backwards, question, mode)
        assert ask(compacted, question, mode) == expected
        assert [each.item for each in found.passages] == [each.item for each in expected.passages]
        assert np.allclose(*([each.score for each in one.passages] for one in (found, expected)), atol=1e-6)


def test_synonyms_that_are_mentioned_together_twice_share_one_edge(tmp_path: Path) -> None:
    documents = [
        Document("a", "A", "The ferry Lantern passed the ferry Lanterns at noon."),
        Document("b", "B", "In Tarn the Lantern met the Lanterns again."),
    ]

    class SynonymEncoder(HashEncoder):
        def encode(self, texts: Sequence[str]) -> Floats:
            return super().encode(["lantern" if text.casefold().startswith("lantern") else text for text in texts])

    index = build(tmp_path / "i", documents, SynonymEncoder())
    names = list(index.data.entity_texts)
    lantern, lanterns = names.index("lantern"), names.index("lanterns")
    assert index.data.synonym_EE[lantern, lanterns] == pytest.approx(1)
    near = index.association_VV[[lantern], :]
    weights = near.toarray()[0]
    assert weights[lanterns] == pytest.approx(1 / near.nnz) and set(weights[weights > 0]) == {weights[lanterns]}


def test_a_text_that_only_a_summary_contains_is_ranked_first(isles: Index) -> None:
    text = isles.data.summary_texts[0]
    found = retrieve(isles, text, RetrieveSettings(mode="hierarchy", top_k=6))
    assert found.summaries[0].item.text == text and found.summaries[0].score == pytest.approx(1, abs=1e-3)
    assert found.summaries[0].score > max(passage.score for passage in found.passages)
    for scored in (found.summaries, found.passages):
        assert [each.score for each in scored] == sorted((each.score for each in scored), reverse=True)

"""Normalised similarity: one scale for all encoders, so that no constant of retrieval is specific to one encoder."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph.index.index import Index
from graph.index.normalised_similarity import normalised_similarity, normalised_similarity_to, usual_cosine
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import Mode
from graph.store.vectors import QUANTILE_LEVELS_Z
from graph.types import Floats
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.hashed import build
from tests.places import ROOT

SHARED = 0.8
"""The share of each vector's squared length that is the same for all texts."""
QUESTIONS = (
    "Who founded the yard that built the Lantern?",
    "Where was the founder of the Marlow Yard born?",
    "From what is kelp bread baked?",
    "What stands in Quill?",
)
RETRIEVAL_FILES = [*sorted((ROOT / "graph/retrieve").rglob("*.py")), ROOT / "graph/random_walk.py"]


class AnisotropicEncoder(HashEncoder):
    """HashEncoder's vectors with one more component, the same for all texts: a cosine c becomes SHARED + (1 − SHARED) c, as with E5."""

    def encode(self, texts: Sequence[str]) -> Floats:
        plain_ND = super().encode(texts)
        shared_N1 = np.full((len(plain_ND), 1), np.sqrt(SHARED), np.float32)
        return np.concatenate([np.sqrt(np.float32(1 - SHARED)) * plain_ND, shared_N1], axis=1)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index]:
    """The same documents indexed with a plain and with an anisotropic encoder; both without synonyms, whose threshold is a cosine."""
    folder = tmp_path_factory.mktemp("similarity")
    settings = {"min_synonym_similarity": 1.0}
    return build(folder / "plain", ISLES, **settings), build(
        folder / "anisotropic", ISLES, AnisotropicEncoder("anisotropic"), **settings
    )


def test_the_usual_cosine_becomes_0_and_a_cosine_of_1_stays_1(indexes: tuple[Index, Index]) -> None:
    for index in indexes:
        usual = usual_cosine(index)
        found = normalised_similarity(index, np.array([usual, 1, (1 + usual) / 2, -1], np.float32))
        assert found.tolist() == pytest.approx([0, 1, 0.5, (-1 - usual) / (1 - usual)], abs=1e-5)
    assert usual_cosine(indexes[1]) == pytest.approx(SHARED + (1 - SHARED) * usual_cosine(indexes[0]), abs=1e-4)


def test_order_is_preserved(indexes: tuple[Index, Index]) -> None:
    """This holds even if the usual cosine between propositions is 1, as in chats, where they are more similar to each other than to any question."""
    similar = replace(
        indexes[1], data=replace(indexes[1].data, cosine_quantiles_Z=np.ones(len(QUANTILE_LEVELS_Z), np.float32))
    )
    for index in (*indexes, similar):
        found = normalised_similarity(index, np.array([[-1.0], [0.1], [0.2]], np.float32))
        assert found[0, 0] < found[1, 0] < found[2, 0]


def test_a_questions_usual_similarity_is_at_most_its_median_over_propositions(indexes: tuple[Index, Index]) -> None:
    """This holds even among turns of one conversation, whose propositions are more similar to each other than to any question."""
    for index in indexes:
        questions_QD = index.encode_queries(list(QUESTIONS))
        cosines_NQ = np.asarray(index.data.proposition_vectors_ND @ questions_QD.T)
        similar = replace(
            index, data=replace(index.data, cosine_quantiles_Z=np.full(len(QUANTILE_LEVELS_Z), 0.99, np.float32))
        )
        found_NQ = normalised_similarity_to(similar, questions_QD, cosines_NQ)
        np.testing.assert_allclose(np.median(found_NQ, axis=0), 0, atol=1e-5)
        for at, question_D in enumerate(questions_QD):
            np.testing.assert_allclose(
                normalised_similarity_to(similar, question_D, cosines_NQ[:, at]), found_NQ[:, at], atol=1e-6
            )
        dissimilar = replace(
            index, data=replace(index.data, cosine_quantiles_Z=np.full(len(QUANTILE_LEVELS_Z), -0.9, np.float32))
        )
        np.testing.assert_array_equal(
            normalised_similarity_to(dissimilar, questions_QD, cosines_NQ),
            normalised_similarity(dissimilar, cosines_NQ),
        )


@pytest.mark.parametrize("mode", ["hops", "local", "statements", "topics", "paths", "global"])
def test_an_anisotropic_encoder_finds_the_same_passages_as_the_plain_one(
    indexes: tuple[Index, Index], mode: Mode
) -> None:
    """Their order and their scores are the same too: each threshold, loss and bonus of the mode has the same effect."""
    plain, anisotropic = indexes
    for question in QUESTIONS:
        one, other = (retrieve(each, question, RetrieveSettings(mode=mode, top_k=5)) for each in (plain, anisotropic))
        assert [found.item.id for found in one.passages] == [found.item.id for found in other.passages], question
        assert [found.score for found in one.passages] == pytest.approx(
            [found.score for found in other.passages], abs=2e-3
        )


def constants(file: Path) -> Iterator[str]:
    """The names of a module's constants."""
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


@pytest.mark.parametrize("file", RETRIEVAL_FILES, ids=lambda file: file.name)
def test_no_retrieval_constant_is_named_after_a_cosine(file: Path) -> None:
    names = [name for name in constants(file) if "COSINE" in name]
    assert not names, f"{names}: use normalised similarity instead (graph/index/normalised_similarity.py)"


def test_no_query_setting_is_a_cosine() -> None:
    schema = str(RetrieveSettings.model_json_schema()).casefold()
    assert "walk" in schema and "cosine" not in schema

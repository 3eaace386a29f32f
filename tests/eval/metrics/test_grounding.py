"""Grounding metrics compared with values computed by hand: the formulas, and the variant that uses an encoder."""

import numpy as np
import pytest

from eval.metrics.grounding import (
    answer_relevance,
    claims_of,
    context_precision,
    grounding_by_encoder,
    relevant_passages,
    share,
    supported_by_encoder,
)
from tests.fakes import HashEncoder

PASSAGES = ["The Lantern is a ferry. She was built in 1911.", "Tarn is a village."]


def test_formulas_match_values_computed_by_hand():
    assert share([True, False, False, True]) == 0.5 and share([]) is None
    question = np.array([1.0, 0.0], np.float32)
    generated = np.array([[1.0, 0.0], [0.6, 0.8]], np.float32)
    assert answer_relevance(question, generated) == pytest.approx(0.8)
    assert answer_relevance(question, generated[:0]) is None
    assert context_precision([False, True]) == 0.5
    assert context_precision([False, False]) == 0.0 and context_precision([]) is None


def test_claims_are_the_sentences_with_their_citations_removed():
    assert claims_of("She was built in 1911 [1]. Tarn is near [2].") == ["She was built in 1911.", "Tarn is near."]


def test_a_claim_with_a_number_that_the_context_lacks_is_not_supported():
    vectors = np.eye(2, dtype=np.float32)
    claims = ["She was built in 1921.", "She was built in 1911."]
    found = supported_by_encoder(claims, vectors[[0, 0]], ["She was built in 1911.", "Tarn."], vectors)
    assert found.tolist() == [False, True]
    assert supported_by_encoder(["Tarn."], vectors[[1]], ["She."], vectors[:1]).tolist() == [False]
    assert supported_by_encoder(["Tarn."], vectors[[1]], [], vectors[:0]).tolist() == [False]


def test_a_passage_is_relevant_if_one_of_its_sentences_is():
    assert relevant_passages(np.array([False, True, False]), [["a", "b"], [], ["c"]]) == [True, False, False]


def test_an_encoder_judges_whether_an_answer_is_grounded():
    encode = HashEncoder().encode
    found = grounding_by_encoder(
        "When was the Lantern built?", "She was built in 1911. Kittens purred in 1999.", ["1911"], PASSAGES, encode
    )
    assert found.faithfulness == 0.5 and 0 <= found.claim_recall <= 1
    empty = grounding_by_encoder("When?", "", [], [], encode)
    assert (empty.faithfulness, empty.context_precision, empty.context_recall, empty.claim_recall) == (None,) * 4

"""Absence: the probability that the documents do not cover a question. It does not depend on the range of an encoder's cosines."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.answer.context import rank_excerpts
from graph.index.filters import parse_condition
from graph.index.index import Index
from graph.index.normalised_similarity import usual_cosine
from graph.retrieve.absence import COEFFICIENTS_F, absence, absence_features, share_of, word_weights
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve, retrieve_many
from graph.text.bm25 import terms_of
from graph.text.word_forms import FUNCTION_WORDS, stem
from graph.types import Document, Evidence
from tests.corpora import ISLES
from tests.graph.hashed import build, query_of
from tests.graph.index.test_normalised_similarity import AnisotropicEncoder

COVERED = (
    "Who founded the Marlow Yard?",
    "When was the Lantern built?",
    "From what is kelp bread baked?",
    "When does the church bell of Tarn ring?",
    "In which village was the founder of the yard that built the Lantern born?",
)
UNCOVERED = (
    "Who wrote the opera Carmen?",
    "Do statins lower mortality after a stroke?",
    "Which film was released first, Casablanca or Vertigo?",
    "How many moons does Neptune have?",
    "What is the default learning rate of the optimiser?",
)


def probabilities(index: Index, questions: Sequence[str], **settings: object) -> list[float]:
    chosen = RetrieveSettings.model_validate({"abstain": 1, **settings})
    found = retrieve_many(index, list(questions), chosen)
    return [each.absence.probability for each in found if each.absence is not None]


def test_questions_the_documents_answer_are_distinguished_from_others(isles: Index) -> None:
    covered, uncovered = probabilities(isles, COVERED), probabilities(isles, UNCOVERED)
    assert max(covered) < 0.5 and min(uncovered) > 0.9, (covered, uncovered)


def test_absence_becomes_likelier_when_the_document_of_a_question_is_removed(isles: Index) -> None:
    questions = COVERED[:4]
    whole = probabilities(isles, questions)
    for place, source in enumerate(("marlow", "lantern", "bread", "tarn")):
        part = isles.only((parse_condition(f"source!={source}"),))
        assert probabilities(part, questions)[place] > whole[place] + 0.1


def test_absence_is_estimated_only_on_request_and_the_passages_stay_the_same(isles: Index) -> None:
    plain = retrieve(isles, UNCOVERED[0], RetrieveSettings())
    estimated = retrieve(isles, UNCOVERED[0], RetrieveSettings(abstain=0.5))
    assert plain.absence is None and estimated.absence is not None
    assert [each.item.id for each in estimated.passages] == [each.item.id for each in plain.passages]


@pytest.mark.parametrize(("threshold", "abstained"), [(0, True), (0.5, True), (1, False)])
def test_no_excerpts_are_returned_on_abstention(isles: Index, threshold: float, abstained: bool) -> None:
    evidence = retrieve(isles, UNCOVERED[0], RetrieveSettings(abstain=threshold))
    assert evidence.absence is not None and evidence.absence.abstained is abstained
    assert evidence.passages and bool(rank_excerpts(evidence, 5)) is not abstained


def test_a_probability_at_the_threshold_causes_abstention(isles: Index) -> None:
    (probability,) = probabilities(isles, COVERED[:1])
    equal = retrieve(isles, COVERED[0], RetrieveSettings(abstain=probability)).absence
    above = retrieve(isles, COVERED[0], RetrieveSettings(abstain=float(np.nextafter(probability, 1)))).absence
    assert equal is not None and equal.abstained and above is not None and not above.abstained


def test_questions_about_all_documents_and_results_with_only_summaries_have_no_estimate_of_absence(
    isles: Index,
) -> None:
    assert retrieve(isles, "What themes recur?", RetrieveSettings(abstain=0)).absence is None
    settings = RetrieveSettings(mode="hierarchy", layers=(1,), abstain=0)
    found = retrieve(isles, COVERED[0], settings)
    assert not found.passages and (found.absence is None) == bool(found.summaries)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid", "naive", "local", "global", "paths", "statements"])
def test_other_modes_distinguish_covered_from_uncovered_questions(isles: Index, mode: str) -> None:
    covered, uncovered = probabilities(isles, COVERED[:4], mode=mode), probabilities(isles, UNCOVERED, mode=mode)
    assert max(covered) < min(uncovered), (covered, uncovered)


def test_features_equal_a_slow_reference(isles: Index) -> None:
    for question in (*COVERED, *UNCOVERED):
        evidence = retrieve(isles, question, RetrieveSettings(mode="hops", top_k=3))
        found = [each.item for each in evidence.passages]
        assert absence_features(isles, query_of(isles, question), found) == pytest.approx(
            slow_features(isles, question, evidence)
        )


def slow_features(index: Index, question: str, evidence: Evidence) -> list[float]:
    """`absence_features`, computed word by word and passage by passage, with forms compared pair by pair and idf computed from its formula."""
    passages = [index.passage(row) for row in range(len(index.data.passage_ids))]
    terms = [set(terms_of(f"{each.title}\n{each.text}")) for each in passages]
    weight = {}
    for word in set(terms_of(question)) - FUNCTION_WORDS:
        n = sum(word in each for each in terms)
        weight[word] = np.log(1 + (len(passages) - n + 0.5) / (n + 0.5))
    texts = [terms_of(f"{found.item.title} {found.item.text}") for found in evidence.passages]
    words_found = [
        {word for word in weight if any(same_word(stem(word), stem(other)) for other in text)} for text in texts
    ]
    total = sum(weight.values())
    shares = [sum(weight[word] for word in each) / total for each in (*words_found, set().union(*words_found))]
    rows = {index.passage(row).id: row for row in range(len(passages))}
    query_D = index.encode_queries([question])[0]
    cosines = [float(index.data.passage_vectors_PD[[rows[each.item.id]]][0] @ query_D) for each in evidence.passages]
    usual = min(usual_cosine(index), np.median(index.sample_SD @ query_D))
    return [max(shares[:-1]), shares[-1], (max(cosines) - usual) / (1 - usual)]


def same_word(one: str, other: str) -> bool:
    """Whether two stems are equal, or both have at least five letters and the first five are equal."""
    return one == other or (min(len(one), len(other)) >= 5 and one[:5] == other[:5])


WEIGHTS = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.01, 9), min_size=1)
FORMS = st.sets(st.sampled_from("abcdefgh"))


@given(WEIGHTS, FORMS, FORMS)
def test_more_words_found_never_make_absence_likelier(
    weights: dict[str, float], some: set[str], more: set[str]
) -> None:
    less, all_found = share_of(weights, some), share_of(weights, some | more)
    assert 0 <= less <= all_found <= 1 + 1e-9
    for place in range(len(COEFFICIENTS_F)):
        at = np.full(len(COEFFICIENTS_F), 0.4)
        low, high = (absence(np.where(np.arange(len(at)) == place, share, at)) for share in (less, all_found))
        assert low >= high and (low > high or less == pytest.approx(all_found, abs=1e-6))


def test_a_word_that_no_passage_contains_has_the_greatest_weight(isles: Index) -> None:
    weights = word_weights(isles, "Is the ferry of Tarn in Carmen?")
    assert set(weights) == {"ferry", "tarn", "carme"} and weights["carme"] == max(weights.values())


@pytest.mark.parametrize("pattern", ["tarn", "[lm]*", "*"])
def test_with_a_condition_words_weigh_as_in_an_index_of_only_its_documents(isles: Index, pattern: str) -> None:
    condition, question = parse_condition(f"source={pattern}"), "Does Ada Marlow of Tarn ring a bell in Carmen?"
    weights = word_weights(isles.where((condition,)), question)
    assert weights == word_weights(isles.only((condition,)), question) and weights["carme"] == max(weights.values())


def test_without_content_words_the_shares_are_1_and_without_passages_the_best_share_and_the_similarity_are_0(
    isles: Index,
) -> None:
    query = query_of(isles, "Who is she?")
    assert absence_features(isles, query, [isles.passage(0)])[:2].tolist() == [1, 1]
    assert absence_features(isles, query, []).tolist() == [0, 1, 0]


def test_rows_of_gives_the_row_of_each_passage_even_in_a_filtered_index(tmp_path: Path) -> None:
    text = " ".join(f"The keeper of light {n} wrote a long letter about the weather to the harbour." for n in range(60))
    documents = [*ISLES, Document("letters", "Letters", text)]
    whole = build(tmp_path, documents, max_passage_tokens=64)
    for index in (whole, whole.where((parse_condition("source!=lantern"),))):
        passages = [index.passage(row) for row in range(len(index.data.passage_ids))]
        assert len(passages) > len(documents)
        assert index.rows_of(passages).tolist() == list(range(len(passages)))
        assert index.rows_of(passages[::-2]).tolist() == list(range(len(passages)))[::-2]


def test_probabilities_do_not_depend_on_the_range_of_an_encoders_cosines(tmp_path: Path) -> None:
    """An extra component that all vectors share, as with E5, leaves the probabilities unchanged."""
    plain = build(tmp_path / "plain", ISLES)
    crowded = build(tmp_path / "crowded", ISLES, AnisotropicEncoder("crowded"))
    questions = (*COVERED, *UNCOVERED)
    assert probabilities(crowded, questions, mode="dense") == pytest.approx(
        probabilities(plain, questions, mode="dense"), abs=2e-3
    )


@pytest.mark.parametrize("value", [-0.1, 1.1, "often", float("nan")])
def test_a_value_that_is_not_a_probability_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="abstain"):
        RetrieveSettings.model_validate({"abstain": value})

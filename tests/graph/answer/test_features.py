"""Features of sentences, compared with values computed by hand or by their definitions; test_verifier.py tests the verdicts."""

import numpy as np
import pytest

from graph.answer.overlap import NEAR_DISTANCE, Wording, overlaps
from graph.answer.verifier import FEATURES, Premise, align, asides_last, best_source, claim_features, missing_words
from graph.text.bm25 import terms_of
from graph.text.word_forms import FUNCTION_WORDS, Words, form_of

LANTERN = (
    "The Lantern was built by Ada Marlow in 1911 (on 14 May). She did not sell it to the Ferry Office. "
    "The tram is older than the ferry."
)
PREMISE = Premise.of([("Lantern", LANTERN)])


def features_of(claim: str, premise: Premise = PREMISE) -> dict[str, float]:
    return dict(zip(FEATURES, claim_features(claim, premise).tolist(), strict=True))


def test_a_verbatim_sentence_has_nothing_missing() -> None:
    features = features_of("The Lantern was built by Ada Marlow in 1911 (on 14 May).")
    assert features["verbatim"] == 1 and features["in order"] == 1 and features["names kept"] == 1
    lacking = [name for name, value in features.items() if "missing" in name and value]
    assert lacking == [] and features["negations more"] == features["opposites"] == features["names turned round"] == 0


@pytest.mark.parametrize(
    ("claim", "feature", "value"),
    [
        ("The Lantern was built by Ada Marlow in 1921.", "numbers missing in passages", 1),
        ("The Lantern was built by Anneke Roux in 1911.", "names missing in passages", 2),
        ("The Lantern was not built by Ada Marlow.", "negations not in source", 1),
        ("She did sell it to the Ferry Office.", "negations left out", 1),
        ("The tram is younger than the ferry.", "opposites", 1),
        ("In 1911 Ada Marlow was built by the Lantern.", "names turned round", 2 / 3),
        ("The ferry is older than the tram.", "in order", 1 / 3),
        ("The Lantern was sold by Ada Marlow in 1911.", "share missing in source", 1 / 5),
    ],
)
def test_each_kind_of_error_has_a_feature_that_detects_it(claim: str, feature: str, value: float) -> None:
    assert features_of(claim)[feature] == pytest.approx(value)


def test_text_in_brackets_may_be_left_out_and_does_not_separate_the_words_around_it() -> None:
    features = features_of("Ada is an actor.", Premise.of([("Ada", "Ada (born 14 July 1939 in Tarn) is an actor.")]))
    assert features["names of source left out"] == 0 and features["names among their neighbours"] == 1
    assert asides_last("(born 1850) Ada") == "Ada (born 1850)"


def test_a_pronoun_is_read_as_the_title() -> None:
    premise = Premise.of([("Ada Marlow", "He met Anneke Roux. She sold more than 150 boats.")])
    features = features_of("Ada Marlow sold more than 150 boats.", premise)
    assert features["missing in source"] == 0 and features["names turned round"] == 0 and features["in order"] == 1


def test_a_claim_may_combine_the_words_of_two_sentences() -> None:
    features = features_of("Ada Marlow built the Lantern, and the tram is older than the ferry.")
    assert features["words added by a second sentence"] >= 2 and features["missing in source"] == 0


def test_a_sentence_that_refers_back_is_read_together_with_the_one_before_it() -> None:
    """The claim combines two sentences of the passage, the second of which refers back with "their"."""
    text = "The Halmaren Isles are four inhabited islands near Tarn (a port). Their combined area is 375 square kilometres."
    claim = "The combined area of the four inhabited Halmaren islands is 375 square kilometres."
    features, without_pronoun = (
        features_of(claim, Premise.of([("Isles", text)])),
        features_of(claim, Premise.of([("", text.replace("Their", "A"))])),
    )
    names = ("in order", "pairs kept", "numbers among their neighbours", "second sentence refers back")
    assert [features[name] for name in names] == [pytest.approx(8 / 9), pytest.approx(4 / 6), 1, 1]
    assert [without_pronoun[name] for name in names] == [pytest.approx(6 / 9), 0.5, pytest.approx(0.4), 0]
    source = best_source(Words.of("Their combined area of islands near Tarn"), *sources_of(Premise.of([("", text)])))
    assert source.words.words[source.joint] == "Their" and source.words.words[-2:] == ("a", "port")


def test_names_of_two_joined_sentences_are_neither_turned_round_nor_left_out() -> None:
    text = "The Lantern sailed to Tarn under Bo Fink. Its owner Ada Roux lived in Quill."
    claim = "Ada Roux of Quill was the owner of the Lantern that sailed to Tarn."
    features, without_pronoun = (
        features_of(claim, Premise.of([("", text)])),
        features_of(claim, Premise.of([("", text.replace("Its", "The"))])),
    )
    assert (features["names turned round"], features["names of source left out"]) == (0, 0)
    assert without_pronoun["names turned round"] > 0.5 and without_pronoun["names of source left out"] == 2
    turned = features_of(
        claim.replace("Lantern that sailed to Tarn", "Tarn that sailed to Lantern"), Premise.of([("", text)])
    )
    assert turned["names turned round"] == 1, "swapped names within one sentence should be detected"


def sources_of(premise: Premise) -> tuple[tuple[str, ...], tuple[Words, ...]]:
    return premise.sentences, premise.words_N


def test_missing_names_and_numbers_are_returned_as_written() -> None:
    assert missing_words("Anneke Roux sold the Lantern in 1921, in 1921.", PREMISE) == ("Roux", "1921")
    assert missing_words("Ada Marlow built it.", PREMISE) == ()


def test_features_are_finite_without_passages() -> None:
    features = features_of("The Lantern was built in 1911.", Premise.of([]))
    assert features["share missing in passages"] == 1 and features["sentences"] == 0
    assert np.isfinite(claim_features("", Premise.of([]))).all()


def test_of_equal_words_the_one_closest_to_the_last_match_is_aligned() -> None:
    claim, source = Words.of("the ferry sank"), Words.of("one ferry left and one ferry sank")
    assert align(claim, source) == {1: 1, 2: 6}
    assert best_source(claim, [], []).words == Words.of("")


def test_joined_premises_equal_one_premise_of_all_parts() -> None:
    parts = [("A", "Ada sails."), ("B", "Bell rings. It is loud.")]
    joined, whole = Premise.join(Premise.of([part]) for part in parts), Premise.of(parts)
    assert joined == whole


def overlaps_by_definition(claim: str, texts: list[str]) -> tuple[float, float, float]:
    """The three shares by their definitions, position by position."""
    stems, passages = (
        [form_of(term) for term in terms_of(claim)],
        [[form_of(term) for term in terms_of(t)] for t in texts],
    )
    content = [form_of(term) for term in terms_of(claim) if term not in FUNCTION_WORDS]
    contents = [[form_of(term) for term in terms_of(text) if term not in FUNCTION_WORDS] for text in texts]
    distinct = [form_of(term) for term in dict.fromkeys(terms_of(claim)) if term not in FUNCTION_WORDS]
    adjacent = [
        any(words[at : at + 2] == stems[i : i + 2] for words in passages for at in range(len(words) - 1))
        for i in range(len(stems) - 1)
    ]
    near = [
        any(
            words[i] == content[at] and words[j] == content[at + 1]
            for words in contents
            for i in range(len(words))
            for j in range(len(words))
            if 0 < abs(i - j) <= NEAR_DISTANCE
        )
        for at in range(len(content) - 1)
    ]
    present = [any(stem in words for words in passages) for stem in distinct]
    return (
        sum(present) / len(present) if present else 1.0,
        sum(adjacent) / len(adjacent) if adjacent else 0.0,
        sum(near) / len(near) if near else 0.0,
    )


@pytest.mark.parametrize(
    "claim",
    [
        "The Lantern was built by Ada Marlow in 1911.",
        "In 1911 Marlow's builder Ada sold trams, ferries and offices.",
        "The tram, the tram: older than the ferry!",
        "Anneke Roux never sailed.",
        "Ferry",
        "It was so.",
        "",
    ],
)
def test_overlap_matches_its_definition(claim: str) -> None:
    texts = [LANTERN, "Roux sailed a tram to the ferry. Built of older trams.", ""]
    premise = Premise.of([("", text) for text in texts])
    assert overlaps(claim, premise.wordings) == pytest.approx(overlaps_by_definition(claim, texts))
    assert overlaps(claim, ()) == pytest.approx(overlaps_by_definition(claim, []))


def test_a_title_counts_but_no_pair_spans_title_and_text_or_two_passages() -> None:
    claim = "Lantern sank near Tarn"
    assert overlaps(claim, [Wording.of("Lantern", "sank"), Wording.of("", "Tarn")])[:2] == (3 / 4, 0)
    assert overlaps(claim, [Wording.of("", "Lantern sank near Tarn")]) == (1, 1, 1)

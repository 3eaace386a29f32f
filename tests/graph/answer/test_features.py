"""What the features see, on sentences worked by hand; the trees are held in test_verifier.py."""

import numpy as np
import pytest

from graph.answer.overlap import NEAR, Wording, overlaps
from graph.answer.verifier import FEATURES, Ground, align, asides_last, best_source, claim_features, missing_words
from graph.text.bm25 import terms_of
from graph.text.word_forms import FUNCTION_WORDS, Words, form_of

LANTERN = (
    "The Lantern was built by Ada Marlow in 1911 (on 14 May). She did not sell it to the Ferry Office. "
    "The tram is older than the ferry."
)
GROUND = Ground.of([("Lantern", LANTERN)])


def seen(claim: str, ground: Ground = GROUND) -> dict[str, float]:
    return dict(zip(FEATURES, claim_features(claim, ground).tolist(), strict=True))


def test_a_sentence_as_it_stands_lacks_nothing() -> None:
    told = seen("The Lantern was built by Ada Marlow in 1911 (on 14 May).")
    assert told["verbatim"] == 1 and told["in order"] == 1 and told["names kept"] == 1
    lacking = [name for name, value in told.items() if "missing" in name and value]
    assert lacking == [] and told["negations more"] == told["opposites"] == told["names turned round"] == 0


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
def test_each_break_has_a_feature_that_sees_it(claim: str, feature: str, value: float) -> None:
    assert seen(claim)[feature] == pytest.approx(value)


def test_what_is_left_out_in_brackets_is_no_loss_and_parts_no_neighbours() -> None:
    told = seen("Ada is an actor.", Ground.of([("Ada", "Ada (born 14 July 1939 in Tarn) is an actor.")]))
    assert told["names of source left out"] == 0 and told["names among their neighbours"] == 1
    assert asides_last("(born 1850) Ada") == "Ada (born 1850)"


def test_a_title_stands_for_its_pronoun() -> None:
    ground = Ground.of([("Ada Marlow", "He met Anneke Roux. She sold more than 150 boats.")])
    told = seen("Ada Marlow sold more than 150 boats.", ground)
    assert told["missing in source"] == 0 and told["names turned round"] == 0 and told["in order"] == 1


def test_words_of_two_sentences_are_read_together() -> None:
    told = seen("Ada Marlow built the Lantern, and the tram is older than the ferry.")
    assert told["words added by a second sentence"] >= 2 and told["missing in source"] == 0


def test_what_a_sentence_refers_back_to_parts_no_neighbours_and_keeps_its_own_order() -> None:
    """The claim says in one what the passage says in two sentences, of which the second speaks of "their" area."""
    text = "The Halmaren Isles are four inhabited islands near Tarn (a port). Their combined area is 375 square kilometres."
    claim = "The combined area of the four inhabited Halmaren islands is 375 square kilometres."
    told, apart = seen(claim, Ground.of([("Isles", text)])), seen(claim, Ground.of([("", text.replace("Their", "A"))]))
    kept = ("in order", "pairs kept", "numbers among their neighbours", "second sentence refers back")
    assert [told[name] for name in kept] == [pytest.approx(8 / 9), pytest.approx(4 / 6), 1, 1]
    assert [apart[name] for name in kept] == [pytest.approx(6 / 9), 0.5, pytest.approx(0.4), 0]
    source = best_source(Words.of("Their combined area of islands near Tarn"), *of_ground(Ground.of([("", text)])))
    assert source.words.words[source.joint] == "Their" and source.words.words[-2:] == ("a", "port")


def test_names_of_either_side_are_not_turned_round_and_none_between_the_sides_is_left_out() -> None:
    text = "The Lantern sailed to Tarn under Bo Fink. Its owner Ada Roux lived in Quill."
    claim = "Ada Roux of Quill was the owner of the Lantern that sailed to Tarn."
    told, apart = seen(claim, Ground.of([("", text)])), seen(claim, Ground.of([("", text.replace("Its", "The"))]))
    assert (told["names turned round"], told["names of source left out"]) == (0, 0)
    assert apart["names turned round"] > 0.5 and apart["names of source left out"] == 2
    turned = seen(claim.replace("Lantern that sailed to Tarn", "Tarn that sailed to Lantern"), Ground.of([("", text)]))
    assert turned["names turned round"] == 1, "on its own side it is told"


def of_ground(ground: Ground) -> tuple[tuple[str, ...], tuple[Words, ...]]:
    return ground.sentences, ground.words_N


def test_missing_names_and_numbers_are_told_as_written() -> None:
    assert missing_words("Anneke Roux sold the Lantern in 1921, in 1921.", GROUND) == ("Roux", "1921")
    assert missing_words("Ada Marlow built it.", GROUND) == ()


def test_nothing_to_read_against() -> None:
    told = seen("The Lantern was built in 1911.", Ground.of([]))
    assert told["share missing in passages"] == 1 and told["sentences"] == 0
    assert np.isfinite(claim_features("", Ground.of([]))).all()


def test_alignment_goes_on_from_the_last_word() -> None:
    claim, source = Words.of("the ferry sank"), Words.of("one ferry left and one ferry sank")
    assert align(claim, source) == {1: 1, 2: 6}
    assert best_source(claim, [], []).words == Words.of("")


def test_grounds_are_joined_as_if_made_at_once() -> None:
    parts = [("A", "Ada sails."), ("B", "Bell rings. It is loud.")]
    joined, whole = Ground.joined(Ground.of([part]) for part in parts), Ground.of(parts)
    assert joined == whole


def slow_overlaps(claim: str, texts: list[str]) -> tuple[float, float, float]:
    """The three shares as their definitions read, place by place."""
    stems, held = [form_of(term) for term in terms_of(claim)], [[form_of(term) for term in terms_of(t)] for t in texts]
    content = [form_of(term) for term in terms_of(claim) if term not in FUNCTION_WORDS]
    said = [[form_of(term) for term in terms_of(text) if term not in FUNCTION_WORDS] for text in texts]
    distinct = [form_of(term) for term in dict.fromkeys(terms_of(claim)) if term not in FUNCTION_WORDS]
    adjacent = [
        any(own[at : at + 2] == stems[place : place + 2] for own in held for at in range(len(own) - 1))
        for place in range(len(stems) - 1)
    ]
    near = [
        any(
            own[i] == content[place] and own[j] == content[place + 1]
            for own in said
            for i in range(len(own))
            for j in range(len(own))
            if 0 < abs(i - j) <= NEAR
        )
        for place in range(len(content) - 1)
    ]
    found = [any(stem in own for own in held) for stem in distinct]
    return (
        sum(found) / len(found) if found else 1.0,
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
def test_overlap_is_what_its_definition_says(claim: str) -> None:
    texts = [LANTERN, "Roux sailed a tram to the ferry. Built of older trams.", ""]
    ground = Ground.of([("", text) for text in texts])
    assert overlaps(claim, ground.wordings) == pytest.approx(slow_overlaps(claim, texts))
    assert overlaps(claim, ()) == pytest.approx(slow_overlaps(claim, []))


def test_a_title_counts_and_no_pair_goes_from_it_into_the_text_or_from_a_passage_into_the_next() -> None:
    claim = "Lantern sank near Tarn"
    assert overlaps(claim, [Wording.of("Lantern", "sank"), Wording.of("", "Tarn")])[:2] == (3 / 4, 0)
    assert overlaps(claim, [Wording.of("", "Lantern sank near Tarn")]) == (1, 1, 1)

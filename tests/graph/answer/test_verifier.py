"""The verifier shipped with modegraph: the sentences that it marks, and invalid files."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from graph.answer.overlap import Wording, overlaps
from graph.answer.support import SupportChecker, obstacle_to, premise_of, statements_of, verifier_for
from graph.answer.verifier import (
    FEATURES,
    HEADER,
    SECOND_STAGE,
    VERIFIER_FILE,
    WINDOW_CHARS,
    Premise,
    Readings,
    claim_features,
    save_verifier,
    second_stage_inputs,
    word_verifier,
)
from graph.errors import UserError
from graph.trees import forest_logits
from graph.types import Excerpt

FERRY = (
    "The steam ferry Lantern was built at the Brandt Yard in 1911. Captain Ysolde Renn commanded her until 1924. "
    "She never carried cattle."
)
TRAM = "The Corrow tram opened in 1922. It runs every twenty minutes in summer."
EXCERPTS = [Excerpt("1", "Ferry Lantern", FERRY, "a.md", 0, 9), Excerpt("2", "Corrow tram", TRAM, "b.md", 0, 9)]


@pytest.mark.parametrize(
    "claim",
    [
        "The Lantern was built at the Brandt Yard in 1911.",
        "The ferry Lantern was built in 1911 at the Brandt Yard.",
        "Captain Renn commanded the Lantern until 1924.",
        "The Lantern never carried cattle.",
        "According to the passage, she was commanded by Captain Ysolde Renn.",
    ],
)
def test_a_claim_that_the_passage_states_is_not_marked(claim: str) -> None:
    verifier = word_verifier("")
    assert verifier.judge([claim], Premise.of([("Ferry Lantern", FERRY)]))[0] < verifier.threshold


@pytest.mark.parametrize(
    "claim",
    [
        "The Lantern carried cattle for the Marlow Company in 1899.",
        "Captain Casimir Thole sold the Lantern to the Marlow Company in 1742.",
        "Florian Achterberg was elected to the council of Tarn.",
    ],
)
def test_a_claim_that_the_passage_does_not_state_is_marked(claim: str) -> None:
    verifier = word_verifier("")
    assert verifier.judge([claim], Premise.of([("Ferry Lantern", FERRY)]))[0] >= verifier.threshold


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            "The steam ferry Lantern was built at the Brandt Yard in 1911.",
            "The steam ferry Lantern was built at the Brandt Yard in 1921.",
        ),
        (
            "The steam ferry Lantern was built at the Brandt Yard in 1911.",
            "The steam ferry Lantern was not built at the Brandt Yard in 1911.",
        ),
        ("Captain Ysolde Renn commanded her until 1924.", "Captain Anneke Roux commanded her until 1924."),
        ("She never carried cattle.", "She carried cattle."),
    ],
)
def test_one_error_raises_the_probability_that_a_sentence_is_unsupported(right: str, wrong: str) -> None:
    """A sentence with one error is still seldom marked, because the threshold is set so that few supported sentences are marked."""
    good, bad = word_verifier("").judge([right, wrong], Premise.of([("Ferry Lantern", FERRY)]))
    assert bad > good + 0.1


def test_a_second_stage_is_a_weighted_sum_of_clipped_inputs() -> None:
    """The probabilities are compared with the formula, evaluated one input at a time."""
    verifier = word_verifier("")
    second = verifier.second
    assert second is not None
    claims = ["The Lantern was built in 1921 by Anneke Roux.", "word " * 400, "She never carried cattle."]
    premise = Premise.of([("Ferry Lantern", FERRY)])
    readings = Readings.of((claim, premise) for claim in claims)
    inputs = second_stage_inputs(verifier.forest, readings)
    for claim, row, probability in zip(claims, inputs.tolist(), verifier.judge(claims, premise), strict=True):
        expected = [float(forest_logits(verifier.forest, claim_features(claim, premise)[None])[0])]
        expected += [*overlaps(claim, premise.wordings), *claim_features(claim, premise).tolist()]
        assert row == pytest.approx(expected)
        logit = second.bias
        for value, weight, mean, scale in zip(row, second.weight_S, second.mean_S, second.scale_S, strict=True):
            logit += weight * max(-3, min(3, (value - mean) / scale))
        assert probability == pytest.approx(1 / (1 + math.exp(-logit)))


SENTENCES = ("The bell of Tarn rang loudly", "The harbour was deep", "It sank")


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("{}. [1] {}. [2] {}.", ((1,), (2,), ())),
        ("**{}.** [1] **{}.** [2] *{}.*", ((1,), (2,), ())),
        ("**{}. [1]** __{}.__ _{}._ [2]", ((1,), (), (2,))),
        ("{}. ([1]) {}. (see [2] and [3]) {}.", ((1,), (2, 3), ())),
        ("{}. [1], [2] {}.[2]–[3] {}. [1]", ((1, 2), (2, 3), (1,))),
        ("{}! [1] “{}”. ([2], [3].) `{}.`", ((1,), (2, 3), ())),
        ("- {}\n- **{}.** [2]\n\n{}. [3]", ((), (2,), (3,))),
        ("{}. [1] & [2] and [3] {}. [1] [2] **{}.**", ((1, 2, 3), (1, 2), ())),
    ],
)
def test_citations_belong_to_the_sentence_before_them(text: str, cited: tuple[tuple[int, ...], ...]) -> None:
    answer = text.format(*SENTENCES)
    found = list(statements_of(answer, 3))
    assert [each.cited for each in found] == list(cited)
    assert [each.words.strip("*_`“”.!") for each in found] == list(SENTENCES)
    assert [answer[each.start : each.end] for each in found] == [each.text for each in found]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("The ferry burned. [1] and [2] say that the yard was sold.", ((1,), (2,))),
        ("The ferry burned. [1], [2] and [3] agree on the year.", ((1,), (2, 3))),
        ("**The ferry burned.** [1] *also* says that it sank.", ((), (1,))),
        ("**The ferry burned.** [1] [2] says that it sank.", ((1,), (2,))),
        (f"**The ferry burned.** {'[1] ' * 300}say that it sank.", ((1,), (1,))),
    ],
)
def test_citations_that_are_the_subject_of_a_sentence_belong_to_it(
    text: str, cited: tuple[tuple[int, ...], ...]
) -> None:
    assert tuple(each.cited for each in statements_of(text, 3)) == cited


@pytest.mark.parametrize("between", ["", " ", "\n"])
@pytest.mark.parametrize("text", ["{}。[1]{}。[2]", "{}！（[1]）{}？[2]", "「{}。」[1]{}。[2]", "{}।[1] {}।[2]"])
def test_citations_after_the_full_stops_of_other_scripts_belong_to_the_sentence_before_them(
    text: str, between: str
) -> None:
    answer = (
        text.replace("]{", f"]{between}{{").replace("）{", f"）{between}{{").format("船在1911年沉了", "船在1921年烧了")
    )
    first, second = statements_of(answer, 3)
    assert (first.cited, second.cited) == ((1,), (2,)) and "1911" in first.text and "1921" in second.text


@pytest.mark.parametrize(
    ("sentence", "checked"),
    [
        ("Florian Achterberg was elected to the council of Tarn.", True),
        ("Florian Achterberg wurde in den Rat von Tårn gewählt.", True),
        ("Флориан Ахтерберг был избран в совет города.", False),
        ("Florian Achterberg był (Флориан) wybrany do rady Tarn.", True),
        ("フロリアンは 市議会 に 選ばれた。", False),
        ("Elected to it.", False),
    ],
)
def test_sentences_in_another_script_or_too_short_are_not_checked(sentence: str, checked: bool) -> None:
    assert (obstacle_to(sentence) is None) == checked
    unsupported = SupportChecker(EXCERPTS, word_verifier("")).unsupported("answer", sentence)
    assert checked or unsupported == []


def test_a_sentence_is_checked_against_the_passages_that_it_cites_or_else_against_all() -> None:
    text = "The Corrow tram opened in 1922 [1]. The Corrow tram opened in 1922 [2]. The Corrow tram opened in 1922."
    [found] = SupportChecker(EXCERPTS, word_verifier("")).unsupported("reason", text)
    assert (found.start, found.end) == (0, 35) and text[found.start : found.end] == found.text
    assert found.cited == (1,) and found.missing == ("Corrow", "1922") and found.part == "reason"


def test_a_row_is_read_with_the_header_of_its_table() -> None:
    rows = "| Superior | 82,100 | 406 |\n| Michigan | 57,800 | 281 |\n| Huron | 59,600 | 229 |"
    lakes = Excerpt("3", "The Great Lakes", rows, "c.md", 90, 160, header=("Lake", "Area (km²)", "Greatest depth (m)"))
    right = (
        "The area of Lake Huron is 59,600 km².",
        "The greatest depth of a lake with an area of 59,600 km² is 229 m.",
    )
    for claim in right:
        probability, without = (
            word_verifier("").judge([claim], premise_of(each))[0] for each in (lakes, replace(lakes, header=()))
        )
        assert probability < without - 0.25


def test_a_table_longer_than_a_window_keeps_its_header() -> None:
    rows = [f"| Quay {number} | {number} |" for number in range(WINDOW_CHARS // 10)]
    premise = Premise.of([("Fares", "\n".join(["| Landing place | Fare |", "|---|---|", *rows]))])
    assert premise.sentences == tuple(f"Landing place: Quay {number}; Fare: {number}" for number in range(len(rows)))
    assert premise.text.count("landing place: ") == len(rows)


def test_fragments_headings_overlong_sentences_and_answers_without_passages_are_not_judged() -> None:
    verifier = word_verifier("")
    assert (
        SupportChecker(EXCERPTS, verifier).unsupported(
            "answer", "Anneke Roux. 1999.\n\n# A heading of five words\n\nYes, it is so. | a | b |"
        )
        == []
    )
    overlong = " ".join(f"Name{number} sailed to Port{number}" for number in range(500))
    assert SupportChecker(EXCERPTS, verifier).unsupported("answer", overlong) == []
    assert SupportChecker([], verifier).unsupported("answer", "The moon is made of cheese.") == []
    assert SupportChecker(EXCERPTS, None).unsupported("answer", "The moon is made of cheese.") == []


@pytest.mark.parametrize(
    "answer", ["The answer is: not in the documents.", "Her birthplace is Not in the Documents [1]."]
)
def test_the_statement_that_something_is_not_in_the_documents_is_not_a_claim(answer: str) -> None:
    assert SupportChecker(EXCERPTS, word_verifier("")).unsupported("answer", answer) == []


@pytest.mark.parametrize(
    ("answer", "marked", "because"),
    [
        ("1911", False, None),
        ("the Brandt Yard", False, None),
        ("the Brandt Yard [1].", False, None),
        ("Florian Achterberg", False, None),
        ("4.44 euros", True, None),
        ("Yes.", False, "says too little"),
        ("no", False, "says too little"),
        ("So it is.", False, "says too little"),
        ("верфь", False, "is in another language"),
        ("船。", False, "is in another language"),
        ("Der Kapitän verkaufte die Fähre im Winter an die Stadt.", False, "is in another language"),
        ("Le capitaine avait vendu le bateau dans la ville.", False, "is in another language"),
        ("Florian Achterberg was elected to the council of Tarn.", True, None),
        ("word " * 201, False, "is too long"),
        ("Not in the documents.", False, None),
        ("Its price is not in the documents, but the ferry cost 5,000 pounds in Quillport [1].", True, None),
        ("Florian Achterberg sold the ferry in Quillport, though its price is not in the documents.", True, None),
        ("Sadly, the price that the council paid for it is not in the documents, sorry.", False, None),
        ("…", False, None),
        ("", False, None),
    ],
)
def test_a_sentence_is_marked_unmarked_or_not_checked(answer: str, marked: bool, because: str | None) -> None:
    """A short answer is judged together with its question."""
    checker = SupportChecker(EXCERPTS, word_verifier(""), "Where was the ferry Lantern built, and when?")
    assert [each.text for each in checker.unsupported("answer", answer)] == [answer] * marked
    unchecked = checker.not_checked("answer", answer)
    assert [(each.text, each.because) for each in unchecked] == [(answer.strip(), because)] * (because is not None)
    assert [answer[each.start : each.end] for each in unchecked] == [each.text for each in unchecked]


def test_a_sentence_in_the_language_of_its_passages_is_judged() -> None:
    text = "Die Fähre wurde im Jahr 1911 in der Werft von Brandt gebaut. Der Kapitän war bis 1924 auf der Fähre."
    checker = SupportChecker([Excerpt("1", "Fähre", text, "a.md", 0, 9)], word_verifier(""))
    assert checker.not_checked("answer", "Die Fähre wurde in der Werft gebaut.") == []


def test_an_answer_without_punctuation_at_its_end_is_joined_to_its_question_up_to_eight_words() -> None:
    question = "Who built the ferry Lantern?"
    short, long = "the old yard of Johanna Brandt in Tarn", "the old yard of Johanna Brandt in Tarn on Pell"
    statements = [
        next(statements_of(text, 1, question))
        for text in (short, f"{short}.", f"{short} [1]", f"“{short}.”", f"`{short}.`", long)
    ]
    assert [each.is_fragment for each in statements] == [True, False, True, False, False, False]
    assert not next(statements_of("「船在1911年沉了。」", 1, question)).is_fragment
    assert statements[0].claim == statements[2].claim == f"{question} {short}"


@pytest.mark.parametrize(
    ("question", "answer", "missing"),
    [
        ("Who sold the Ondine to Zanzibar?", "the baker Casimir Thole", ("Casimir", "Thole")),
        ("Who sold the Ondine to Zanzibar?", "Casimir Thole", ("Casimir", "Thole")),
        ("Where did the pirates sell the schooner Ondine?", "Zanzibar", ("Zanzibar",)),
        ("Where did the pirates sell the schooner Ondine?", "Zanzibar harbour", ()),
        ("When did the pirates of Zanzibar sell the Ondine?", "Yes, on Sundays", ("Sundays",)),
        ("When did the pirates of Zanzibar sell the Ondine?", "Yes, Sundays", ("Sundays",)),
        ("How heavy is the schooner Ondine of Zanzibar?", "Roughly two tonnes", ()),
        ("How heavy is the schooner Ondine of Zanzibar?", "1742 tonnes", ("1742",)),
    ],
)
def test_missing_words_of_a_short_answer_exclude_those_of_its_question_and_the_capital_of_a_phrase(
    question: str, answer: str, missing: tuple[str, ...]
) -> None:
    [found] = SupportChecker(EXCERPTS, word_verifier(""), question).unsupported("answer", answer)
    assert found.missing == missing


def test_an_unknown_value_of_the_option_unsupported_is_an_error() -> None:
    assert verifier_for("ignore", "") is None and verifier_for("drop", "") is not None
    with pytest.raises(UserError, match=r"--unsupported hide\. Expected mark, drop or ignore"):
        verifier_for("hide", "")


def test_a_verifier_read_from_its_file_gives_the_same_probabilities(tmp_path: Path) -> None:
    verifier = word_verifier("")
    save_verifier(tmp_path, verifier)
    again = word_verifier(str(tmp_path))
    claims = ["Captain Renn commanded the tram.", "She never carried cattle."]
    premise = Premise.of([("Ferry Lantern", FERRY)])
    assert again.judge(claims, premise).tolist() == verifier.judge(claims, premise).tolist()
    assert again.threshold == verifier.threshold


def test_the_error_for_an_invalid_verifier_file_states_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"no {VERIFIER_FILE}"):
        word_verifier(str(tmp_path))
    save_verifier(tmp_path, word_verifier(""))
    file = tmp_path / VERIFIER_FILE
    arrays = load_file(file)
    valid = {"format": "modegraph verifier, 3", "features": FEATURES, "base": 0.0, "depth": 12}
    stage = {"inputs": SECOND_STAGE, "bias": 0.0}
    for header, found in [
        ({"format": "modegraph verifier, 9"}, "its format is 'modegraph verifier, 9'"),
        ({"format": "modegraph verifier, 3", "features": FEATURES[1:]}, f"without '{FEATURES[0]}'"),
        (
            {**valid, "second_stage": {**stage, "inputs": SECOND_STAGE[1:]}},
            "its second stage was not trained on the inputs that this version computes",
        ),
        ({**valid, "second_stage": {**stage, "bias": float("nan")}}, "its second stage has values that are not finite"),
    ]:
        save_file(arrays, file, {HEADER: json.dumps(header)})
        with pytest.raises(UserError, match=found):
            word_verifier(str(tmp_path))
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UserError, match="not a verifier file"):
        word_verifier(str(tmp_path))


@pytest.mark.parametrize(("between", "found"), [(0, 1.0), (2, 1.0), (3, 0.0)])
def test_content_stems_are_near_if_at_most_two_others_lie_between_them(between: int, found: float) -> None:
    passage = Wording.of("", " ".join(["boats", *["granite"] * between, "harbour"]))
    assert overlaps("A boat in the harbour.", [passage])[2] == overlaps("The harbour of boats.", [passage])[2] == found

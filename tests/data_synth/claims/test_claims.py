"""Claims: restatements of a sentence, ways to falsify it, and the rows made from passages."""

import random
import re
from itertools import combinations
from pathlib import Path

import pytest

from data_synth.claims.claims import (
    CHANGES,
    COPY,
    NO_SENTENCE,
    ClaimPassage,
    ClaimRow,
    Surroundings,
    claim_from_json,
    claim_problems,
    claim_rows,
    falsify,
)
from data_synth.claims.restate import (
    RESTATEMENTS,
    PassageSentence,
    fused,
    joined,
    loosened,
    opened_differently,
    renamed,
    reordered,
    reworded,
    shortened,
    verbatim,
)
from data_synth.rows import Dropped
from graph.text.word_forms import Words
from tests.commands import run

SENTENCES = (
    "She was built (at great cost) by Ada Marlow for the Ferry Office, which sold her in 1931.",
    "In May 1911, the Lantern burned near Port Ellery.",
)
PASSAGE = " ".join(SENTENCES)
AROUND = Surroundings(PASSAGE, ("Ada Marlow", "Ferry Office", "Port Ellery"), ("Anneke Roux", "Casimir Thole"))


def at(position: int, title: str = "Lantern (ferry)") -> PassageSentence:
    return PassageSentence(SENTENCES, position, title)


def test_restatements_rephrase_sentences_as_expected() -> None:
    draw = random.Random(0)
    assert verbatim(at(0), draw) == SENTENCES[0]
    assert shortened(at(0), draw) == "She was built by Ada Marlow for the Ferry Office."
    assert opened_differently(at(0), draw).startswith("Lantern was built (at great cost)")
    assert opened_differently(at(1), draw) == "The Lantern burned near Port Ellery in May 1911."
    by_date = PassageSentence(["Ada built her in Tarn in 1911."], 0, "Lantern (ferry)")
    assert {reordered(by_date, random.Random(seed)) for seed in range(9)} == {
        "Ada built her in 1911 in Tarn.",
        "In 1911, Ada built her in Tarn.",
    }
    assert renamed(by_date, draw) == "Ada built Lantern in Tarn in 1911."
    assert renamed(PassageSentence(["Ada met her in Tarn."], 0, r"C:\1"), draw) == r"Ada met C:\1 in Tarn."
    assert joined(at(0), draw).endswith(SENTENCES[1]) and joined(at(1), draw) == SENTENCES[1]
    assert reworded(at(1), random.Random(1)) == "In May 1911, the Lantern burned close to Port Ellery."


def test_two_sentences_about_one_thing_are_fused() -> None:
    sentences = [
        "The Lantern (1911), often the Lamp, was a ferry of the Board, and sank.",
        "She met Ada.",
        "Its crew was lost.",
    ]
    fusions = {fused(PassageSentence(sentences, 1, "Lantern (ferry)"), random.Random(seed)) for seed in range(9)}
    assert fusions == {"Lantern, a ferry of the Board, met Ada.", "The ferry of the Board met Ada."}
    both = {fused(PassageSentence(sentences, 2, "Lantern"), random.Random(seed)) for seed in range(9)}
    assert both >= {"The crew of Lantern, which met Ada, was lost.", "The crew of the ferry of the Board was lost."}


@pytest.mark.parametrize(
    "sentences",
    [
        ["Ada built a ferry.", "She was proud."],  # another subject
        ["Lantern sank.", "Ada was lost."],  # no pronoun
        ["She was proud.", "Lantern sank."],
    ],
)
def test_sentences_that_cannot_be_fused_are_joined_or_left_unchanged(sentences: list[str]) -> None:
    assert fused(PassageSentence(sentences, 1, "Lantern"), random.Random(0)) == sentences[1]
    assert fused(PassageSentence(sentences, 0, "Lantern"), random.Random(0)).endswith(sentences[1])
    assert fused(PassageSentence(sentences, 1, ""), random.Random(0)) == sentences[1]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("restatement", dict.fromkeys(RESTATEMENTS), ids=lambda function: function.__name__)
def test_no_restatement_changes_names_numbers_or_negations(restatement: object, seed: int) -> None:
    sentence = PassageSentence(["It did not sink in 1911 near Port Ellery because Ada Marlow was early."], 0, "Lantern")
    words = Words.of(restatement(sentence, random.Random(seed)))  # type: ignore[operator]
    assert {"1911", "ellery", "marlow", "not", "early"} <= set(words.lower)


def test_a_loose_restatement_keeps_names_and_numbers() -> None:
    claims = {loosened(at(1), random.Random(seed)) for seed in range(30)}
    assert len(claims) > 6
    assert all(re.fullmatch(r"The Lantern( \w+){,2} Port Ellery in May 1911\.", claim) for claim in claims)


SOLD = "The first Lantern was sold by Ada Marlow to Greta Hull in 1911."
NAMES = ("Lantern", "Ada Marlow", "Greta Hull")
FALSIFIED = {
    "name": [SOLD.replace(name, "(Ferry Office|Port Ellery|Anneke Roux|Casimir Thole)") for name in NAMES],
    "number": [SOLD.replace("1911", r"19\d\d")],
    "negation": [SOLD.replace("sold", "(not|never) sold")],
    "roles": [SOLD.replace(one, "-").replace(other, one).replace("-", other) for one, other in combinations(NAMES, 2)],
    "opposite": [SOLD.replace("first", "(last|second)"), SOLD.replace("sold", "bought")],
}
"""Patterns of the sentences that a change of each kind may make of SOLD."""


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_falsifying_a_sentence_changes_one_thing(kind: str) -> None:
    for seed in range(20):
        broken = CHANGES[kind](SOLD, AROUND, random.Random(seed))
        assert broken not in (None, SOLD) and re.fullmatch("|".join(FALSIFIED[kind]), str(broken))


def test_falsifying_a_negated_sentence_removes_the_negation() -> None:
    assert CHANGES["negation"]("It did not sink.", AROUND, random.Random(0)) == "It did sink."


def test_a_sentence_that_cannot_be_falsified_gives_no_claim() -> None:
    assert falsify("Rain, again.", Surroundings("Rain, again.", (), ()), random.Random(0)) is None
    assert falsify("It did not sink.", Surroundings("It did sink. It did not sink.", (), ()), random.Random(0)) is None


def test_the_claims_of_a_pair_share_a_split_and_rows_are_repeatable() -> None:
    passages = [ClaimPassage(f"{number}.md", "Lantern", f"{PASSAGE} It was day {number}.") for number in range(40)]
    passages.append(ClaimPassage("short.md", "Short", "No."))
    rows = list(claim_rows(passages, per_passage=3, seed=0))
    assert (
        rows == list(claim_rows(passages, per_passage=3, seed=0)) != list(claim_rows(passages, per_passage=3, seed=1))
    )
    assert rows[-1] == Dropped(NO_SENTENCE)
    claims = [row for row in rows if isinstance(row, ClaimRow)]
    for good, broken in zip(claims[::2], claims[1::2], strict=True):
        assert good.supported and not broken.supported and good.claim != broken.claim
        assert good.passage == broken.passage and good.split == broken.split
    by_passage = {row.passage: row.split for row in claims}
    assert all(by_passage[row.passage] == row.split for row in claims) and set(by_passage.values()) > {"train"}
    assert [claim_problems(row) for row in claims] == [[]] * len(claims)


def test_a_passage_in_several_documents_is_used_once() -> None:
    """Otherwise two splits could share it, which training refuses."""
    header = "This notice was issued by the Ferry Office in 1911 and replaces all others."
    own = [f"On day {number}, the Lantern burned near Port Ellery." for number in range(40)]
    passages = [ClaimPassage(f"{n}.md", "Lantern", text) for n, one in enumerate(own) for text in (header, one)]
    rows = list(claim_rows(passages, per_passage=2, seed=0))
    assert rows.count(Dropped(COPY)) == 39
    claims = [row for row in rows if isinstance(row, ClaimRow)]
    assert {row.passage for row in claims} == {header, *own}
    assert len({(row.passage, row.split) for row in claims}) == 41


def test_invalid_rows_are_reported() -> None:
    row = {"id": "1", "title": "", "passage": "p", "claim": " ", "supported": True, "kind": "verbatim", "split": "late"}
    assert claim_problems(claim_from_json(row)) == [
        "the claim is empty",
        "split is 'late', expected one of train, dev, test",
    ]
    with pytest.raises(TypeError, match="true or false"):
        claim_from_json({**row, "supported": 1})


@pytest.mark.usefixtures("open_hashed")
def test_rows_written_by_the_command_pass_validation(tmp_path: Path, hashed_isles: Path) -> None:
    result = run("synth", "claims", hashed_isles, "--per-passage", "30", "--out", tmp_path / "c")
    assert result.exit_code == 0, result.output
    checked = run("data", "validate", tmp_path / "c" / "train.jsonl")
    assert checked.exit_code == 0, checked.output

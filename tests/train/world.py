"""Preference pairs and scored responses about who lives where, for the tests of training; and a reader of the log of a run."""

from pathlib import Path
from typing import Any

from data_synth.rows import PreferenceRow, ResponseRow, Sampling
from graph.answer.prompt import answer_messages, format_answer
from graph.shared.jsonl import read_jsonl
from graph.types import Excerpt

NAMES = ("Ida", "Tobias", "Hanne", "Gideon")
PLACES = ("Corrow", "Saltmere", "Ostrey", "Sundrey")
TEXTS = tuple(f"{name} lives in {place}, by the old mill." for name in NAMES for place in PLACES)


def preference(number: int) -> PreferenceRow:
    """Pair `number` (0 to 15) about where a person lives, with a context of 0 to 3 excerpts."""
    name, place = NAMES[number % 4], PLACES[number // 4 % 4]
    excerpts = [Excerpt(f"p{i}", "Mills", TEXTS[(number + i) % len(TEXTS)]) for i in range(number % 4)]
    return PreferenceRow(
        id=f"q{number}",
        prompt=answer_messages(f"Where does {name} live?", excerpts),
        chosen=format_answer(f"{name} lives in {place}", place),
        rejected=place,
        question_id=f"q{number}",
        question=f"Where does {name} live?",
        answers=(place,),
        kind="single",
        split="train",
        context_size=len(excerpts),
        context_ids=tuple(excerpt.id for excerpt in excerpts),
        gold_in_context=1.0,
        reasoner="rules",
    )


def response_row(number: int, responses: int = 6) -> ResponseRow:
    """Row `number` (0 to 3) about where a person lives, without a context, with right, wrong and malformed responses."""
    name, place = NAMES[number], PLACES[number]
    texts = [format_answer(f"{name} lives in {other}", other) for other in PLACES]
    texts += [place, f"{name} lives somewhere" + " far away" * number]
    correct = [float(text.endswith(place)) for text in texts]
    return ResponseRow(
        id=f"r{number}",
        prompt=answer_messages(f"Where does {name} live?", []),
        responses=tuple(texts[:responses]),
        rewards={"correct": tuple(correct[:responses]), "format": tuple([1.0] * 4 + [0.0] * 2)[:responses]},
        question_id=f"r{number}",
        question=f"Where does {name} live?",
        answers=(place,),
        kind="single",
        split="train",
        context_size=0,
        context_ids=(),
        sampling=Sampling(6, 1.0, 20, 0),
        policy="scripted",
    )


def log_of(run: Path) -> list[dict[str, Any]]:
    """The logged rows of a finished run."""
    return [row for _, row in read_jsonl(run / "log.jsonl")]

"""Runs of the retrieval modes over questions, and which mode each question should have gone to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, get_args

from data_synth.route.types import Run
from graph.retrieve import RetrieveSettings, retrieve_many
from graph.shared.errors import UserError
from graph.shared.modes import Mode
from graph.shared.types import Evidence, LanguageModel

if TYPE_CHECKING:
    from graph.documents.questions import Question
    from graph.index.index import Index

DEPTH = 5
PASSAGES = 10
"""Asked for, so that DEPTH documents are among them even where one document has several passages."""
DIGITS = 3

Runs = Mapping[str, Run]
"""One question's runs, by mode."""
Track = Callable[[Iterable[str], str, int], Iterable[str]]
"""Texts, a word for what is done to them and their number, to the same texts while progress is shown."""


def parse_modes(named: Sequence[str]) -> list[Mode]:
    """The modes named; UserError for an unknown one, one that is named twice, and for fewer than two."""
    known = {str(mode): mode for mode in get_args(Mode)}
    given = f"--modes {' '.join(named)}"
    for word in named:
        if word not in known:
            raise UserError(f"{given}: {word!r}", f"some of {', '.join(known)}", "fix the option")
    if len(named) < 2 or len(set(named)) < len(named):
        raise UserError(given, "two or more different modes", "name them, divided by spaces")
    return [known[word] for word in named]


def run_modes(
    index: Index, questions: Sequence[Question], modes: Sequence[Mode], model: LanguageModel | None, shown: Track
) -> list[Runs]:
    """Every mode on every question, in order. UserError when the model goes away: half a retrieval has no fair figures.

    Each mode answers the first question once before its time is taken, so that no question pays for what is kept after it.
    """
    runs: list[dict[str, Run]] = [{} for _ in questions]
    texts = [question.text for question in questions]
    for mode in modes:
        settings = RetrieveSettings.model_validate({"mode": mode, "top_k": PASSAGES})
        retrieve_many(index, texts[:1], settings)
        for place, text in enumerate(shown(texts, f"{mode}: questions", len(texts))):
            found = retrieve_many(index, [text], settings, model)[0]
            runs[place][mode] = measure_run(found, questions[place])
    return list(runs)


def measure_run(evidence: Evidence, question: Question) -> Run:
    """Recall at DEPTH documents, milliseconds without the encoder, and the tokens of all calls of a model."""
    trace = evidence.trace
    if trace.untimed_calls:
        found = f"question {question.id!r}, mode {trace.mode}: {trace.untimed_calls} calls from a ledger without times"
        raise UserError(found, "calls whose time is known: a mode's cost is learned", "remove the ledger in --out")
    if trace.stopped:
        found = f"question {question.id!r}, mode {trace.mode}: stopped before it was done ({trace.stopped})"
        raise UserError(found, "a model that answers to the end", "run again: finished calls are kept")
    ranked = list(dict.fromkeys(scored.item.source for scored in evidence.passages))[:DEPTH]
    gold = set(question.gold_sources)
    return Run(
        recall_at_5=round(len(gold & set(ranked)) / len(gold), DIGITS),
        milliseconds=round(1000 * trace.seconds, DIGITS),
        tokens=trace.prompt_tokens + trace.completion_tokens,
    )


def by_cost(runs: Sequence[Runs]) -> list[str]:
    """The modes from cheap to dear: by tokens over all questions, then by the median of milliseconds, then by name.

    Medians, because which of two modes is dearer should not hang on what else the machine did during one question.
    """
    tokens = {mode: sum(each[mode].tokens for each in runs) for mode in runs[0]}
    typical = {mode: median(each[mode].milliseconds for each in runs) for mode in runs[0]}
    return sorted(runs[0], key=lambda mode: (tokens[mode], typical[mode], mode))


def best_mode(runs: Runs, cheap_first: Sequence[str], tolerance: float) -> str:
    """The cheapest mode whose recall is at most `tolerance` below the best.

    >>> runs = {"dense": Run(0.5, 1, 0), "hops": Run(1.0, 8, 0), "paths": Run(1.0, 19, 0)}
    >>> best_mode(runs, ["dense", "hops", "paths"], 0.01), best_mode(runs, ["dense", "hops", "paths"], 0.5)
    ('hops', 'dense')
    """
    least = max(run.recall_at_5 for run in runs.values()) - tolerance
    return next(mode for mode in cheap_first if runs[mode].recall_at_5 >= least)

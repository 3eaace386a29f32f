"""`modegraph eval judge`: a language model compares pairs of answers in both orders; win rates, ties, agreement and position bias.

Criteria: ToPG (App. C) and PankRAG (App. A.2.1), in eval/prompts/judge.txt. Length control: Dubois et al. 2024 (AlpacaEval 2 LC), Eq. 1-2,
without the term for a question's difficulty. Legend: V verdicts, Q questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import create_model
from scipy.special import expit

from eval.metrics.grounding import share
from eval.statistics import LEVEL, Interval, bootstrap_mean, check_same_questions, holm, sign_test
from eval.tables import NONE, Table, figure
from graph.errors import UserError
from graph.shared.console import track
from graph.shared.jsonl import read_jsonl, write_json, write_jsonl
from graph.text.prompting import fill, quote
from graph.text.replies import BadReply, ReplyModel, parse_object, strict_schema
from graph.types import Completion, CompletionRequest, LanguageModel, Message

CRITERIA = ("comprehensiveness", "diversity", "logicality", "relevance", "coherence", "empowerment", "overall")
Choice = Literal["1", "2", "tie", "invalid"]
"""A judge's verdict: the answer shown first, the one shown second, neither, or an unusable reply."""


@dataclass(frozen=True)
class AnswerPair:
    """One question and the two answers to it."""

    id: str
    question: str
    first: str
    second: str


@dataclass(frozen=True)
class Judgement:
    """The verdicts on one pair by criterion, with A shown first and with B shown first; `problems` are the reasons for invalid replies."""

    pair: AnswerPair
    a_first: Mapping[str, Choice]
    b_first: Mapping[str, Choice]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class CriterionResult:
    """The results on one criterion over all pairs; rates are from 0 to 1, or None without complete pairs.

    `win_rate` is A's over the `complete` pairs, ties counting half. A pair is complete if both orders gave a valid verdict; the `incomplete` ones
    count towards no rate. `invalid` counts verdicts, two per pair.
    `agreement` is the share of pairs for which both orders name the same answer, or both a tie, `position_bias` that for which both name the same
    position, and `first_place` that for which both name the first. `length_controlled` is A's win rate at equal lengths, None if the lengths of A
    and B leave it undecided.
    """

    win_rate: Interval | None
    ties: float | None
    agreement: float | None
    position_bias: float | None
    first_place: float | None
    length_controlled: float | None
    p: float
    corrected_p: float
    complete: int
    incomplete: int
    invalid: int


@dataclass(frozen=True)
class SystemAnswer:
    """One question and one system's answer to it."""

    question: str
    answer: str


def read_answers(file: Path) -> dict[str, SystemAnswer]:
    """All answers by question id, in order; UserError for a missing or empty field or a repeated id, with its line, and for a file without answers."""
    answers: dict[str, SystemAnswer] = {}
    for line, row in read_jsonl(file):
        for field in ("id", "question", "answer"):
            if not isinstance(row.get(field), str) or not row[field].strip():
                problem = f"{file} line {line}: {field!r} is {row.get(field)!r}"
                raise UserError(problem, "a non-empty string", "fix the row, or leave its question out of both files")
        if row["id"] in answers:
            found = f"{file} line {line}: id {row['id']!r} appears twice"
            raise UserError(found, "one answer per question", "remove one")
        answers[row["id"]] = SystemAnswer(row["question"], row["answer"])
    if not answers:
        expected = "one JSON object per line with id, question and answer"
        raise UserError(f"{file}: no answers", expected, "give a file of answers")
    return answers


def pair_up(a: Mapping[str, SystemAnswer], b: Mapping[str, SystemAnswer]) -> list[AnswerPair]:
    """The pairs in A's order; UserError unless both files answer exactly the same questions."""
    check_same_questions(*({key: one.question for key, one in side.items()} for side in (a, b)))
    return [AnswerPair(key, one.question, one.answer, b[key].answer) for key, one in a.items()]


MAX_REPLY_TOKENS = 200
PAIRS_PER_CALL = 8
VerdictWord = Literal["1", "2", "tie"]
WORDS: dict[str, Choice] = {"1": "1", "2": "2", "tie": "tie"}


def judge_pairs(pairs: Sequence[AnswerPair], model: LanguageModel) -> list[Judgement]:
    """Judge both orders of every pair. UserError when the model becomes unavailable; a refused request or an unreadable reply gives an invalid verdict."""
    return list(track(_judgements_in_order(pairs, model), "judge: pairs", len(pairs)))


def request_of(pair: AnswerPair, swapped: bool) -> CompletionRequest:
    """The judge's prompt; `swapped` shows B as answer 1."""
    answers = (pair.second, pair.first) if swapped else (pair.first, pair.second)
    text = fill("eval/judge.txt", question=quote(pair.question), first=quote(answers[0]), second=quote(answers[1]))
    return CompletionRequest((Message("user", text),), MAX_REPLY_TOKENS, seed=0, schema=VERDICTS_SCHEMA)


def read_verdicts(completion: Completion) -> tuple[dict[str, Choice], tuple[str, ...]]:
    """The verdict on every criterion, "invalid" unless it is 1, 2 or tie; and a description of each problem."""
    if completion.finish_reason != "stop":
        reason = "cut at the token limit" if completion.finish_reason == "length" else "refused by the server"
        return dict.fromkeys(CRITERIA, "invalid"), (reason,)
    try:
        reply = parse_object(completion.text)
    except BadReply as problem:
        return dict.fromkeys(CRITERIA, "invalid"), (str(problem),)
    verdicts = {name: WORDS.get(str(reply.get(name)).strip().casefold(), "invalid") for name in CRITERIA}
    invalid = [name for name, word in verdicts.items() if word == "invalid"]
    return verdicts, tuple(f"{name}: {reply.get(name)!r}" for name in invalid)  # type: ignore[return-value, unused-ignore]


def _judgements_in_order(pairs: Sequence[AnswerPair], model: LanguageModel) -> Iterator[Judgement]:
    for start in range(0, len(pairs), PAIRS_PER_CALL):
        batch = pairs[start : start + PAIRS_PER_CALL]
        replies = model.complete([request_of(pair, swapped) for pair in batch for swapped in (False, True)])
        for row, pair in enumerate(batch):
            (a_first, problems), (b_first, more_problems) = map(read_verdicts, replies[2 * row : 2 * row + 2])
            yield Judgement(pair, a_first, b_first, problems + more_problems)


VERDICTS_SCHEMA = strict_schema(
    create_model("Verdicts", __base__=ReplyModel, **{name: (VerdictWord, ...) for name in CRITERIA})  # type: ignore[call-overload]
)


RIDGE = 0.01
NEWTON_STEPS = 100
MIN_SHARE_LONGER = 0.05
"""Where the lengths differ, A's answer must be the longer one in at least this share of the verdicts, and so must B's: otherwise length and
quality cannot be separated."""


def length_controlled(wins_V: Sequence[float], extra_V: Sequence[float]) -> float | None:
    """A's win rate at equal lengths, σ(θ), from the verdicts (1 for A, ½ for a tie, 0 for B) and the lengths of A's answers minus those of B's, in characters.

    P(A wins) = σ(θ + φ tanh(Δlength / std(Δlength))), fitted by logistic regression; then Δlength is set to 0. The plain mean if
    all lengths are equal; None if the same side is longer in over 95 % of the verdicts on unequal lengths, or without verdicts.
    """
    extra = np.asarray(extra_V, np.float64)
    unequal = extra[extra != 0]
    if len(unequal) == 0:
        return float(np.mean(wins_V)) if len(wins_V) else None
    if min((unequal > 0).mean(), (unequal < 0).mean()) < MIN_SHARE_LONGER:
        return None
    theta, _ = fit_logistic(np.asarray(wins_V, np.float64), np.tanh(extra / extra.std()))
    return float(expit(theta))


def fit_logistic(wins_V: NDArray[np.float64], length_V: NDArray[np.float64]) -> tuple[float, float]:
    """(θ, φ) that minimise ½ · 0.01 (θ² + φ²) plus the mean cross-entropy of σ(θ + φ length) with `wins_V`, by damped Newton steps.

    The small ridge keeps both finite if length decides every verdict.
    """
    design_V2 = np.column_stack([np.ones_like(length_V), length_V])
    weights = np.zeros(2)
    for _ in range(NEWTON_STEPS):
        probability_V = expit(design_V2 @ weights)
        gradient = design_V2.T @ (probability_V - wins_V) / len(wins_V) + RIDGE * weights
        hessian = (design_V2.T * (probability_V * (1 - probability_V))) @ design_V2 / len(wins_V) + RIDGE * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return float(weights[0]), float(weights[1])


A_WINS: Mapping[Choice, float] = {"1": 1.0, "tie": 0.5, "2": 0.0}
B_WINS: Mapping[Choice, float] = {"1": 0.0, "tie": 0.5, "2": 1.0}


def score_judgements(judgements: Sequence[Judgement], seed: int = 0) -> dict[str, CriterionResult]:
    """The results on every criterion; `p` is from the sign test of A's wins against its losses over questions, `corrected_p` from Holm's correction."""
    complete = {name: [j for j in judgements if is_complete(j, name)] for name in CRITERIA}
    p_values = {
        name: sign_test([wins_of(j, name) for j in pairs], [0.5] * len(pairs)) if pairs else 1.0
        for name, pairs in complete.items()
    }
    corrected = holm(p_values)
    return {
        name: _criterion_result(name, judgements, pairs, p_values[name], corrected[name], seed)
        for name, pairs in complete.items()
    }


def is_complete(judgement: Judgement, name: str) -> bool:
    """Whether both orders gave a valid verdict."""
    return "invalid" not in (judgement.a_first[name], judgement.b_first[name])


def wins_of(judgement: Judgement, name: str) -> float:
    """A's share of the two verdicts on a complete pair, a tie counting half: from 0 to 1, in quarters."""
    return (A_WINS[judgement.a_first[name]] + B_WINS[judgement.b_first[name]]) / 2


def _criterion_result(
    name: str, judgements: Sequence[Judgement], complete: Sequence[Judgement], p: float, corrected_p: float, seed: int
) -> CriterionResult:
    words = [(j.a_first[name], j.b_first[name]) for j in complete]
    same_position = [a == b and a != "tie" for a, b in words]
    verdicts = [word for j in judgements for word in (j.a_first[name], j.b_first[name])]
    wins_V = [win for a, b in words for win in (A_WINS[a], B_WINS[b])]
    extra_V = [float(len(j.pair.first) - len(j.pair.second)) for j in complete for _ in range(2)]
    wins_Q = [wins_of(j, name) for j in complete]
    return CriterionResult(
        win_rate=bootstrap_mean(wins_Q, seed=seed) if complete else None,
        ties=share([word == "tie" for pair in words for word in pair]),
        agreement=share([A_WINS[a] == B_WINS[b] for a, b in words]),
        position_bias=share(same_position),
        first_place=share([same and a == "1" for same, (a, _) in zip(same_position, words, strict=True)]),
        length_controlled=length_controlled(wins_V, extra_V),
        p=p,
        corrected_p=corrected_p,
        complete=len(complete),
        incomplete=len(judgements) - len(complete),
        invalid=verdicts.count("invalid"),
    )


UNDECIDED = "undecided"
PROBLEMS_SHOWN = 5


def judge_table(results: Mapping[str, CriterionResult], a: str, b: str) -> Table:
    """One row per criterion."""
    share_names = ("ties", "orders agree", "position bias", "first")
    header = ("criterion", f"{a} wins", "95 %", "length-controlled", *share_names, "p (Holm)", "pairs", "invalid")
    rows = []
    for name, result in results.items():
        rate = result.win_rate
        interval = NONE if rate is None else f"{figure(rate.low, True)} … {figure(rate.high, True)}"
        controlled = UNDECIDED if result.length_controlled is None else figure(result.length_controlled, True)
        values = (result.ties, result.agreement, result.position_bias, result.first_place)
        shares = (NONE if value is None else figure(value, True) for value in values)
        counts = (f"{result.corrected_p:.2g}", f"{result.complete:,}", f"{result.invalid:,}")
        mean = NONE if rate is None else figure(rate.mean, True)
        rows.append((name, mean, interval, controlled, *shares, *counts))
    note = (
        f"{a} against {b}, every pair judged in both orders, ties counting half; intervals: bootstrap over questions. Position bias: "
        "share of the pairs for which both orders name the same position; first: share for which both name the first. "
        "Length-controlled: win rate at equal lengths (AlpacaEval 2 LC); "
        f"'{UNDECIDED}' if one side is nearly always longer. Pairs with an invalid verdict are counted and left out of the rates."
    )
    return Table("Judge", header, tuple(rows), note)


def judge_summary(results: Mapping[str, CriterionResult], a: str, b: str) -> Iterator[str]:
    """Who wins by the overall verdict, whether the judge can be relied on, and how many verdicts were invalid."""
    overall = results["overall"]
    rate = overall.win_rate
    if rate is not None and overall.corrected_p < LEVEL and not rate.low <= 0.5 <= rate.high:
        yield f"{a} is judged {'better' if rate.mean > 0.5 else 'worse'} than {b} overall (win rate {figure(rate.mean, True)})."
    else:
        yield f"No difference shown between {a} and {b} overall."
    if (overall.position_bias or 0) > (overall.agreement or 0):
        yield "The judge prefers the same position in both orders more often than the same answer: do not rely on it."
    invalid = sum(one.invalid for one in results.values())
    if invalid:
        total = 2 * sum(one.complete + one.incomplete for one in results.values())
        yield f"{invalid:,} of {total:,} verdicts were invalid; their pairs are left out of the rates."


def judge_json(
    results: Mapping[str, CriterionResult], judgements: Sequence[Judgement], a: str, b: str
) -> dict[str, Any]:
    """All results and the most frequent problems, without questions and answers."""
    problems = Counter(problem for judgement in judgements for problem in judgement.problems)
    return {
        "a": a,
        "b": b,
        "pairs": len(judgements),
        "criteria": {name: asdict(one) for name, one in results.items()},
        "problems": dict(problems.most_common(PROBLEMS_SHOWN)),
        "in_words": list(judge_summary(results, a, b)),
    }


def write_judgements(judgements: Sequence[Judgement], summary: dict[str, Any], out: Path) -> None:
    """Write judge.json, and judgements.jsonl with the verdicts of both orders on every pair, into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    rows = (
        {
            "id": one.pair.id,
            "a_first": dict(one.a_first),
            "b_first": dict(one.b_first),
            "complete": [name for name in CRITERIA if is_complete(one, name)],
            "problems": list(one.problems),
        }
        for one in judgements
    )
    write_jsonl(out / "judgements.jsonl", rows)
    write_json(out / "judge.json", summary)

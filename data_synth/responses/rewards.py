"""Rewards of a response by component, each from 0 to 1 and stored separately (training combines them by weights), and the form of response rows.

Most components are formulas over one response and its prompt or gold answers; "supported" also needs a verifier, and "grounded" (in
data_synth/responses/responses.py) the encoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from data_synth.preferences.reasons import normalise_answer
from data_synth.rows import (
    Form,
    ResponseRow,
    Sampling,
    prompt_problems,
    response_from_json,
    response_to_json,
    row_schema,
    split_problems,
)
from data_synth.texts import words_of
from graph.answer.citations import own_citations
from graph.answer.match import word_f1
from graph.answer.prompt import form_of_prompt, is_no_answer, parse_answer
from graph.answer.support import SupportChecker
from graph.text.bm25 import terms_of
from graph.text.word_forms import count_words
from graph.types import AnswerForm

if TYPE_CHECKING:
    import pyarrow as pa


LENGTH_WORDS = 120
"""Responses of up to this many words get the full length reward; those of twice this length get none."""


def answer_reward(response: str, golds: Sequence[str]) -> float:
    """1 when the answer equals a gold one (ignoring case, citations and outer punctuation), else half of the best word F1.

    "Not in the documents" is not compared by its words: it gets 1 if it is gold, else 0; where it is the only gold answer, any other gets 0.

    >>> answer_reward("###Reason: So. ###Answer: Tarn.", ["tarn"]), answer_reward("in Tarn", ["Tarn"])
    (1.0, 0.3333333333333333)
    """
    answer = normalise_answer(parse_answer(response).answer)
    accepted = [normalise_answer(gold) for gold in golds if not is_no_answer(gold)]
    if is_no_answer(answer):
        return float(len(accepted) < len(golds))
    if answer in accepted:
        return 1.0
    words = words_of(answer).split()
    return max((word_f1(words, words_of(gold).split()) for gold in accepted), default=0.0) / 2


def format_reward(response: str, form: AnswerForm = "reasoned") -> float:
    """1 for a response in the form that its prompt asks for, else 0.

    >>> format_reward("Tarn [2]", "cited"), format_reward("Tarn [2]")
    (1.0, 0.0)
    """
    return float(parse_answer(response, form).well_formed)


def citation_reward(response: str, passages: int) -> float:
    """The share of a response's citations that name a passage of the prompt; without citations, 0 if there are passages and 1 if there are none.

    >>> citation_reward("So [1] [7].", 2), citation_reward("So.", 2), citation_reward("So.", 0)
    (0.5, 0.0, 1.0)
    """
    citations = own_citations(response, passages)
    if not citations.existing and not citations.missing:
        return float(passages == 0)
    return len(citations.existing) / (len(citations.existing) + len(citations.missing))


def gold_reward(response: str, gold: Collection[int], passages: int) -> float:
    """The share of a response's citations that name a gold passage of the prompt; without citations, 1 if there is no gold passage, else 0.

    >>> gold_reward("Tarn [2]", {2}, 3), gold_reward("Tarn [1][2]", {2}, 3), gold_reward("Tarn", {2}, 3)
    (1.0, 0.5, 0.0)
    >>> gold_reward("not in the documents", set(), 3)
    1.0
    """
    citations = own_citations(response, passages)
    total = len(citations.existing) + len(citations.missing)
    return sum(number in gold for number in citations.existing) / total if total else float(not gold)


def supported_reward(response: str, checker: SupportChecker) -> float:
    """The share of a response's sentences that the passages of the prompt support; 0 if none can be judged."""
    return checker.share_supported(response) or 0.0


def length_reward(response: str) -> float:
    """1 up to LENGTH_WORDS words, falling to 0 at twice that number."""
    return min(1.0, max(0.0, 2 - count_words(response) / LENGTH_WORDS))


def variety_reward(response: str) -> float:
    """Twice the share of distinct terms among all terms, at most 1, so that repetitive text scores low.

    >>> variety_reward("so so so so so so so so"), variety_reward("The ferry left Tarn.")
    (0.25, 1.0)
    """
    terms = terms_of(response)
    return min(1.0, 2 * len(set(terms)) / len(terms)) if terms else 0.0


REWARDS: dict[str, Callable[[str, ResponseRow], float]] = {
    "correct": lambda text, row: answer_reward(text, row.answers),
    "format": lambda text, row: format_reward(text, form_of_prompt(row.prompt)),
    "citations": lambda text, row: citation_reward(text, row.context_size),
    "length": lambda text, row: length_reward(text),
    "variety": lambda text, row: variety_reward(text),
}
"""The components that need neither an index, nor the text of the passages, nor another model; they can be computed for any new response."""


ABOUT = """\
Prompts with up to K responses each, sampled from one policy, and the rewards of each response by component (0 to 1; the weights
are chosen in training). Refused responses are not included; cut and repeated ones are included only if `sampling.as_drawn` is set, as in the
rounds of `train ms` and `train dpo`; `cut` then contains the numbers (from 0) of the cut ones."""
COMPONENTS = (
    "correct",
    "format",
    "grounded",
    "supported",
    "citations",
    "gold",
    "length",
    "variety",
    "judge",
    "human",
    "reward_model",
)
"""Every component that a row may have: by rules, an encoder, a verifier, a judging model, people, or a reward model (`train score`)."""


def response_problems(row: ResponseRow) -> list[str]:
    """The problems that make a row unusable for training, in words; empty for a good row."""
    problems = [*prompt_problems(row), *split_problems(row)]
    if len(row.responses) < 2:
        problems.append(f"{len(row.responses)} responses, expected at least 2")
    numbered = list(enumerate(row.responses, start=1))
    problems += [f"response {n} is empty" for n, text in numbered if not text.strip()]
    problems += [f"response {n} contains a special token" for n, text in numbered if "<|" in text]
    if len(set(row.responses)) < len(row.responses) and not row.sampling.as_drawn:
        problems.append("a response appears twice, expected distinct ones unless sampling.as_drawn is true")
    problems += [
        f"cut contains {n}, but there are {len(row.responses)} responses, numbered from 0"
        for n in row.cut
        if not 0 <= n < len(row.responses)
    ]
    if not row.rewards:
        problems.append("no rewards, expected at least one component")
    for component, values in row.rewards.items():
        if component not in COMPONENTS:
            problems.append(f"unknown reward {component!r}, expected one of {', '.join(COMPONENTS)}")
        if len(values) != len(row.responses):
            problems.append(f"reward {component!r}: {len(values)} values for {len(row.responses)} responses")
        problems += [f"reward {component!r} is {value!r}, expected 0 to 1" for value in values if not _is_reward(value)]
    return problems


def response_schema() -> pa.Schema:
    """The columns of `response_to_json`; a component that a row does not have is null."""
    import pyarrow as pa

    sampling = pa.struct(row_schema(Sampling, seed=pa.int64()))
    rewards = pa.struct([(component, pa.list_(pa.float32())) for component in COMPONENTS])
    return row_schema(ResponseRow, rewards=rewards, sampling=sampling)


def measure_rewards(rows: Sequence[ResponseRow]) -> dict[str, float]:
    """Mean of each component over all responses, and the share of prompts whose responses differ in it."""
    measures = {}
    for component in dict.fromkeys(component for row in rows for component in row.rewards):
        groups = [row.rewards[component] for row in rows if component in row.rewards]
        measures[f"mean reward, {component}"] = mean(value for values in groups for value in values)
        measures[f"prompts whose responses differ in {component}"] = mean(len(set(values)) > 1 for values in groups)
    return measures


def _is_reward(value: float) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1


def _lengths(row: ResponseRow) -> dict[str, int]:
    return {"response": round(mean(map(count_words, row.responses)))} if row.responses else {}


RESPONSES: Form[ResponseRow] = Form(
    name="responses",
    title="Scored responses",
    about=ABOUT,
    to_json=response_to_json,
    from_json=response_from_json,
    schema=response_schema,
    problems=response_problems,
    counts=lambda row: {
        "kind of question": row.kind or "unspecified",
        "context size": str(row.context_size),
        "responses to a prompt": str(len(row.responses)),
    },
    lengths=_lengths,
    texts=lambda row: [*(turn.content for turn in row.prompt), *row.responses],
    measures=measure_rewards,
)

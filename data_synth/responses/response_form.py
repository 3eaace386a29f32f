"""Response rows as a form: their columns, what is counted, and what is wrong with a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from data_synth.forms import Form
from data_synth.types import ResponseRow, response_from_json, response_to_json
from graph.documents.questions import SPLITS

if TYPE_CHECKING:
    import pyarrow as pa

ABOUT = """\
Prompts with K distinct responses each, drawn from one policy, and the rewards of each response by component (0 to 1; the weights
are chosen at training). Responses that were cut, refused or said twice were dropped before."""
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
"""Every component that a row may have: by rules, by a judging model, by people, and by a reward model (`train score`)."""


def response_problems(row: ResponseRow) -> list[str]:
    """What keeps a row from being learned from, in words; none for a good one."""
    problems = []
    if not row.prompt or row.prompt[-1].role != "user":
        problems.append("the prompt does not end with a user's turn")
    if row.split not in SPLITS:
        problems.append(f"split is {row.split!r}, expected one of {', '.join(SPLITS)}")
    if len(row.responses) < 2:
        problems.append(f"{len(row.responses)} responses, expected at least 2")
    problems += [f"response {n} is empty" for n, text in enumerate(row.responses, start=1) if not text.strip()]
    problems += [f"response {n} holds a special token" for n, text in enumerate(row.responses, start=1) if "<|" in text]
    if len(set(row.responses)) < len(row.responses):
        problems.append("a response appears twice")
    if not row.rewards:
        problems.append("no rewards")
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

    text, texts = pa.string(), pa.list_(pa.string())
    turns = pa.list_(pa.struct([("role", text), ("content", text)]))
    sampling = pa.struct(
        [("asked", pa.int32()), ("temperature", pa.float32()), ("max_tokens", pa.int32()), ("seed", pa.int64())]
    )
    rewards = pa.struct([(component, pa.list_(pa.float32())) for component in COMPONENTS])
    return pa.schema(
        [
            *(("id", text), ("prompt", turns), ("responses", texts)),
            *(("rewards", rewards), ("question_id", text), ("question", text)),
            *(("answers", texts), ("kind", text), ("split", text), ("context_size", pa.int32())),
            *(("context_ids", texts), ("sampling", sampling), ("policy", text)),
        ]
    )


def measure_rewards(rows: Sequence[ResponseRow]) -> dict[str, float]:
    """Mean of each component over all responses, and the share of prompts whose responses it tells apart."""
    measures = {}
    for component in dict.fromkeys(component for row in rows for component in row.rewards):
        groups = [row.rewards[component] for row in rows if component in row.rewards]
        measures[f"mean reward, {component}"] = mean(value for values in groups for value in values)
        measures[f"prompts told apart by {component}"] = mean(len(set(values)) > 1 for values in groups)
    return measures


def _is_reward(value: float) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and 0 <= value <= 1


def _lengths(row: ResponseRow) -> dict[str, int]:
    return {"response": round(mean(len(text.split()) for text in row.responses))} if row.responses else {}


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

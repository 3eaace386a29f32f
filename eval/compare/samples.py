"""A few questions with everybody's answer, for reading side by side."""

from __future__ import annotations

from dataclasses import dataclass

from eval.shared.types import Comparison

SAMPLES = 6


@dataclass(frozen=True)
class Sample:
    """One prompt and (who, text) for the gold answer, the chosen side and each policy's answer."""

    question: str
    prompt: tuple[tuple[str, str], ...]
    answers: tuple[tuple[str, str], ...]


def samples_of(comparison: Comparison) -> list[Sample]:
    """The first prompts of each kind of question in turn, at most `SAMPLES`; chosen before anyone sees the answers."""
    by_kind: dict[str, list[int]] = {}
    for index, row in enumerate(comparison.prompts):
        by_kind.setdefault(row.kind, []).append(index)
    depth = max(len(indices) for indices in by_kind.values())
    turns = [indices[turn] for turn in range(depth) for indices in by_kind.values() if turn < len(indices)]
    return [_sample(comparison, index) for index in turns[:SAMPLES]]


def _sample(comparison: Comparison, index: int) -> Sample:
    row = comparison.prompts[index]
    answers = [("gold answer", "; ".join(row.answers)), ("chosen side", row.chosen)]
    answers += [(result.policy.name, result.answers[index].text) for result in comparison.results]
    return Sample(row.question, tuple((turn.role, turn.content) for turn in row.prompt), tuple(answers))

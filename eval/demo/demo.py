"""One demo run: its steps in order, reusing those that are up to date; then counts over the test questions, and every model's answers to three of
them side by side."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.demo.demo_steps import (
    BASES,
    CONFIGS,
    DOCUMENTS,
    QUESTIONS,
    SHOWN_QUESTIONS,
    FinishedStep,
    PlannedStep,
    base_of,
    checksum_of_results,
    checksums_of_inputs,
    code_checksum,
    demo_models,
    demo_steps,
    is_up_to_date,
    prepare_folder,
    read_finished,
    write_finished,
)
from graph.documents.questions import Question, read_questions
from graph.errors import UserError
from graph.shared.home import HOME
from serve.show import printable

WIDTH, NAME_WIDTH = 110, 8
COUNTED_MEASURES = {
    "exactly a gold answer": "exact match",
    "a gold answer in it": "contains a gold answer",
    "cites a passage it was shown": "cites a passage that exists",
}
"""What is counted: row title to the name of its measure in a comparison."""
UNTUNED, TUNED = "untuned", "ms"
MODEL_ORDER = (UNTUNED, "sft", "dpo", TUNED)
"""Names of the demo's models in its comparison."""


@dataclass(frozen=True)
class ModelAnswer:
    """One model's answer, its reason ("" if none), and the titles and files of its citations, by number."""

    model: str
    answer: str
    reason: str
    citations: Mapping[str, str]


@dataclass(frozen=True)
class AnswersToQuestion:
    """A question, its gold answer, and every model's answer."""

    question: str
    gold: str
    answers: tuple[ModelAnswer, ...]

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def as_text(self) -> str:
        """The question with its gold answer, then a block for each model: answer, reason, sources."""
        lines = textwrap.wrap(printable(f"{self.question} ({self.gold})"), WIDTH)
        for answer in self.answers:
            lines += _block(answer.model, answer.answer or "(no answer)")
            lines += _block("", answer.reason) if answer.reason else []
            lines += [
                line for number, source in answer.citations.items() for line in _block("", f"[{number}] {source}")
            ]
        return "\n".join(lines)


def side_by_side(
    questions: Sequence[Question], models: Sequence[str], replies: Sequence[Mapping[str, Any]]
) -> tuple[AnswersToQuestion, ...]:
    """Group replies of `modegraph ask --json` by question; `replies` has all of one model's replies, then all of the next one's."""
    count = len(questions)
    return tuple(
        AnswersToQuestion(
            question.text,
            question.answers[0],
            tuple(_answer(model, replies[row * count + column]) for row, model in enumerate(models)),
        )
        for column, question in enumerate(questions)
    )


def _answer(model: str, reply: Mapping[str, Any]) -> ModelAnswer:
    cited = {number: f"{excerpt['title']} · {excerpt['source']}" for number, excerpt in reply["citations"].items()}
    return ModelAnswer(model, printable(reply["answer"]), printable(reply["reason"]), cited)


def _block(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {name:<{NAME_WIDTH}}", subsequent_indent=" " * (NAME_WIDTH + 2)
    )


def counts_text(report: Mapping[str, Any]) -> str:
    """A table of how each model answers the test questions, from a comparison's report.json, and a sentence on what it shows.

    >>> measures = {name: {"untuned": 0.25, "ms": 0.5} for name in COUNTED_MEASURES.values()}
    >>> report = {"questions": 8, "measures": measures, "policies": [{"name": "ms"}, {"name": "untuned"}]}
    >>> print(counts_text(report))
    Answers to 8 questions of the test split, drawn by the seed:
                                  untuned    ms
    exactly a gold answer               2     4
    a gold answer in it                 2     4
    cites a passage it was shown        2     4
    A gold answer is in 2 more of them after MS than before. So few questions and so short a run decide nothing.
    """
    names = sorted((policy["name"] for policy in report["policies"]), key=MODEL_ORDER.index)
    number, measures = report["questions"], report["measures"]
    counts = {
        row: {name: round(measures[key][name] * number) for name in names} for row, key in COUNTED_MEASURES.items()
    }
    head = max(map(len, COUNTED_MEASURES))
    widths = {name: max(len(name), 4) for name in names}
    lines = [f"Answers to {number} questions of the test split, drawn by the seed:"]
    lines += [f"{'':<{head}}" + "".join(f"  {name:>{widths[name]}}" for name in names)]
    lines += [
        f"{row:<{head}}" + "".join(f"  {row_counts[name]:>{widths[name]}}" for name in names)
        for row, row_counts in counts.items()
    ]
    contained = counts["a gold answer in it"]
    gain = contained[TUNED] - contained[UNTUNED]
    change = (
        f"{abs(gain)} {'more' if gain > 0 else 'fewer'} of them after MS than"
        if gain
        else "as many of them after MS as"
    )
    lines.append(f"A gold answer is in {change} before. So few questions and so short a run decide nothing.")
    return "\n".join(lines)


NO_PRETRAINED = (
    f"No model has been fetched (modegraph models get {BASES[0].name}): the demo trains a tiny one instead. "
    "Its answers have the right form at best."
)

Run = Callable[[Sequence[str]], int]
"""Runs one command line (without the program's name) and returns its exit status."""


@dataclass(frozen=True)
class DemoResult:
    """The steps in order, whether each was reused, the answers side by side, and the path of the comparison's report."""

    steps: tuple[FinishedStep, ...]
    reused: tuple[bool, ...]
    answers: tuple[AnswersToQuestion, ...]
    report: Path


def run_demo(out: Path, run: Run, show: Callable[[str], None], fresh: bool = False) -> DemoResult:
    """Run the demo in the folder `out`; `show` receives each command line before it runs and its output after.

    Raises UserError when examples/ is missing, when `out` holds something else, or when a step fails.
    """
    check_examples()
    questions = questions_to_show(read_questions(HOME / QUESTIONS))
    prepare_folder(out, fresh)
    base = base_of(out)
    if not base.configs:
        show(f"{NO_PRETRAINED}\n")
    steps, reused = run_steps(out, demo_steps(out, base, [question.text for question in questions]), run, show)
    replies = [json.loads(step.output) for step in steps if step.line.startswith("modegraph ask ")]
    answers = side_by_side(questions, list(demo_models(out, base)), replies)
    return DemoResult(tuple(steps), tuple(reused), answers, out / "report" / "report.html")


def run_steps(
    out: Path, planned: Sequence[PlannedStep], run: Run, show: Callable[[str], None]
) -> tuple[list[FinishedStep], list[bool]]:
    """Run or reuse every step, recording each as soon as it is done, so that an interrupted demo can resume."""
    earlier, code = read_finished(out), code_checksum()
    steps: list[FinishedStep] = []
    reused: list[bool] = []
    for step in planned:
        show(f"$ {step.line}")
        done = earlier.get(step.line)
        if done is not None and is_up_to_date(step, done, code):
            show(f"{done.output}(reused; it took {done.seconds:.1f} s)\n")
            reused.append(True)
        else:
            done = run_step(step, run, code)
            earlier[step.line] = done
            write_finished(out, list(earlier.values()))
            show(f"{'' if step.live else done.output}({done.seconds:.1f} s)\n")
            reused.append(False)
        steps.append(done)
    return steps, reused


def run_step(planned: PlannedStep, run: Run, code: str) -> FinishedStep:
    """Run one command line and capture its standard output; UserError when its exit status is above 0.

    The output of an earlier run of the same training is removed first: training never overwrites a run.
    """
    if planned.makes is not None and planned.words[0] == "train":
        shutil.rmtree(planned.makes, ignore_errors=True)
    inputs, start, output = checksums_of_inputs(planned), time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(output):
        status = run(planned.words)
    gc.collect()  # a trainer's model and states form reference cycles, and the next step needs the memory
    if status:
        print(output.getvalue(), file=sys.stderr)
        raise UserError(
            f"`{planned.line}` ended with status {status}", "every step to succeed", "see its message above"
        )
    return FinishedStep(
        planned.line, time.perf_counter() - start, output.getvalue(), code, inputs, checksum_of_results(planned)
    )


def check_examples() -> None:
    """UserError naming the first file or folder of the examples that is missing."""
    for name in (DOCUMENTS, QUESTIONS, f"{CONFIGS}/tiny.yaml"):
        if not (HOME / name).exists():
            remedy = "run the demo from a clone of the repository (pip install -e .)"
            raise UserError(f"{HOME / name}: does not exist", "the examples beside the code", remedy)


def questions_to_show(questions: Sequence[Question]) -> list[Question]:
    """The first questions of the test split, in the order of their file; UserError where there are too few."""
    found = [question for question in questions if question.split == "test"][:SHOWN_QUESTIONS]
    if len(found) < SHOWN_QUESTIONS:
        raise UserError(
            f"examples/questions.jsonl: {len(found)} questions of the test split",
            f"{SHOWN_QUESTIONS} or more",
            "restore the file",
        )
    return found


def demo_json(result: DemoResult) -> dict[str, Any]:
    """The demo's outcome: commands with seconds, the comparison as compare reports it, the answers side by side."""
    return {
        "steps": [
            {"command": step.line, "seconds": round(step.seconds, 2), "reused": reused}
            for step, reused in zip(result.steps, result.reused, strict=True)
        ],
        "comparison": json.loads((result.report.parent / "report.json").read_text(encoding="utf-8")),
        "answers": [answers.as_json() for answers in result.answers],
        "report": str(result.report),
    }

"""One run of the demo: its steps in order, those that stand kept; then counts over the test questions, and three of them side by side."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.demo.keep import Done, code_checksum, made_by, needed_by, prepare_folder, read_done, stands, write_done
from eval.demo.road import BASES, CONFIGS, DOCUMENTS, QUESTIONS, SHOWN, Planned, answerers, base_of, road
from eval.demo.show import Shown, side_by_side
from graph.documents.questions import Question, read_questions
from graph.shared.errors import UserError
from graph.shared.home import HOME

NO_PRETRAINED = (
    f"No model has been fetched (modegraph models get {BASES[0].name}): a tiny one, trained here from nothing, takes its place. "
    "Its answers have the right form at best."
)

Run = Callable[[Sequence[str]], int]
"""Runs one command line (without the program's name) and returns its exit status."""


@dataclass(frozen=True)
class DemoResult:
    """The steps in order with those that were kept, the answers side by side, and where the comparison lies."""

    steps: tuple[Done, ...]
    kept: tuple[bool, ...]
    shown: tuple[Shown, ...]
    report: Path


def run_demo(out: Path, run: Run, show: Callable[[str], None], fresh: bool = False) -> DemoResult:
    """Walk the road into the folder `out`; `show` gets each command line before it runs and its output after.

    Raises UserError when examples/ is missing, when `out` holds something else, or when a step fails.
    """
    check_examples()
    questions = shown_questions(read_questions(HOME / QUESTIONS))
    prepare_folder(out, fresh)
    base = base_of(out)
    if not base.configs:
        show(f"{NO_PRETRAINED}\n")
    steps, kept = walk(out, road(out, base, [question.text for question in questions]), run, show)
    answers = [json.loads(step.output) for step in steps if step.line.startswith("modegraph ask ")]
    shown = side_by_side(questions, list(answerers(out, base)), answers)
    return DemoResult(tuple(steps), tuple(kept), shown, out / "report" / "report.html")


def walk(out: Path, planned: Sequence[Planned], run: Run, show: Callable[[str], None]) -> tuple[list[Done], list[bool]]:
    """Every step, kept or run; each is noted as soon as it is done, so that an interrupted demo goes on where it was."""
    earlier, code = read_done(out), code_checksum()
    steps: list[Done] = []
    kept: list[bool] = []
    for each in planned:
        show(f"$ {each.line}")
        done = earlier.get(each.line)
        if done is not None and stands(each, done, code):
            show(f"{done.output}(kept; it took {done.seconds:.1f} s)\n")
            kept.append(True)
        else:
            done = run_step(each, run, code)
            earlier[each.line] = done
            write_done(out, list(earlier.values()))
            show(f"{'' if each.live else done.output}({done.seconds:.1f} s)\n")
            kept.append(False)
        steps.append(done)
    return steps, kept


def run_step(planned: Planned, run: Run, code: str) -> Done:
    """Run one command line, keeping its standard output; UserError when it ends with a status above 0.

    What an earlier run of the same training left is removed first: training never overwrites a run.
    """
    if planned.makes is not None and planned.words[0] == "train":
        shutil.rmtree(planned.makes, ignore_errors=True)
    needed, started, printed = needed_by(planned), time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = run(planned.words)
    gc.collect()  # a trainer's model and states refer to one another, and the next step needs the room
    if status:
        print(printed.getvalue(), file=sys.stderr)
        raise UserError(
            f"`{planned.line}` ended with status {status}", "every step to succeed", "see its message above"
        )
    return Done(planned.line, time.perf_counter() - started, printed.getvalue(), code, needed, made_by(planned))


def check_examples() -> None:
    """UserError naming the first file or folder of the examples that is not beside the code."""
    for name in (DOCUMENTS, QUESTIONS, f"{CONFIGS}/tiny.yaml"):
        if not (HOME / name).exists():
            remedy = "run the demo from a clone of the repository (pip install -e .)"
            raise UserError(f"{HOME / name}: not there", "the examples beside the code", remedy)


def shown_questions(questions: Sequence[Question]) -> list[Question]:
    """The first questions of the test split, in the order of their file; UserError where there are too few."""
    found = [question for question in questions if question.split == "test"][:SHOWN]
    if len(found) < SHOWN:
        raise UserError(
            f"examples/questions.jsonl: {len(found)} questions of the test split",
            f"{SHOWN} or more",
            "restore the file",
        )
    return found


def demo_json(result: DemoResult) -> dict[str, Any]:
    """The demo's outcome: commands with seconds, the comparison as compare reports it, the answers side by side."""
    return {
        "steps": [
            {"command": step.line, "seconds": round(step.seconds, 2), "kept": kept}
            for step, kept in zip(result.steps, result.kept, strict=True)
        ],
        "comparison": json.loads((result.report.parent / "report.json").read_text(encoding="utf-8")),
        "answers": [shown.as_json() for shown in result.shown],
        "report": str(result.report),
    }

"""`modegraph demo`: the whole road on examples/, by the very commands a user would type, in this process.

Every figure that it prints comes from the run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.documents.questions import Question, read_questions
from graph.shared.errors import UserError
from graph.shared.home import HOME

MARKER = ".modegraph-demo"
NEEDED = ("examples/documents", "examples/questions.jsonl", "configs/demo/tiny.yaml")
CONTEXT_SIZE, QUESTIONS, MAX_ANSWER_TOKENS = "3", "48", "256"

Run = Callable[[Sequence[str]], int]
"""Runs one command line (without the program's name) and returns its exit status."""


@dataclass(frozen=True)
class Step:
    """One command line that was run, its seconds, and what it printed on standard output."""

    command: tuple[str, ...]
    seconds: float
    output: str


@dataclass(frozen=True)
class DemoResult:
    """The steps in order, the question put to the tuned model and where everything lies."""

    steps: tuple[Step, ...]
    question: str
    report: Path
    next_commands: tuple[str, ...]


def run_demo(out: Path, run: Run, show: Callable[[str], None]) -> DemoResult:
    """Walk the road into the folder `out`; `show` gets each command line before it runs and its output after.

    Raises UserError when examples/ is missing, when `out` holds something else, or when a step fails.
    """
    check_examples()
    question = first_test_question(read_questions(HOME / "examples/questions.jsonl"))
    prepare_folder(out)
    steps = []
    for command in commands(out, question.text):
        show(f"$ {command_line(command)}")
        step = run_step(command, run)
        show(f"{step.output}({step.seconds:.1f} s)\n")
        steps.append(step)
    return DemoResult(tuple(steps), question.text, out / "report" / "report.html", next_commands(out, question.text))


def check_examples() -> None:
    """UserError naming the first file or folder of the examples that is not beside the code."""
    for name in NEEDED:
        if not (HOME / name).exists():
            remedy = "run the demo from a clone of the repository (pip install -e .)"
            raise UserError(f"{HOME / name}: not there", "the examples beside the code", remedy)


def first_test_question(questions: Sequence[Question]) -> Question:
    """The first question of the test split: no model of the demo was tuned on it."""
    for question in questions:
        if question.split == "test":
            return question
    raise UserError("examples/questions.jsonl: no question of the test split", "at least one", "restore the file")


def prepare_folder(out: Path) -> None:
    """An empty folder with our marker; an earlier demo's folder is replaced, anything else is left alone (UserError)."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file", "a folder for the demo", "choose another --out")
    if out.is_symlink() or (out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file()):
        raise UserError(f"{out}: not a folder that the demo made", "a new or empty folder", "choose another --out")
    if out.is_dir():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARKER).write_text("Made by `modegraph demo`, which replaces this folder when it runs again.\n")


def commands(out: Path, question: str) -> list[list[str]]:
    """The road as command lines, without the program's name."""
    documents, questions = shown(HOME / "examples/documents"), shown(HOME / "examples/questions.jsonl")
    index, data, tiny = f"{out}/index", f"{out}/preferences", f"{out}/tiny"
    relevance, selector, route, router = (f"{out}/{name}" for name in ("relevance", "selector", "route", "router"))
    sft, ms, dpo = f"{out}/sft", f"{out}/ms", f"{out}/dpo"
    modes = ["--modes", "dense", "naive", "hierarchy", "hops"]
    splits = ["--split", "train", "--split", "test"]
    models = ["--runs", ms, dpo, sft, "--base", tiny]
    limits = ["--context-size", CONTEXT_SIZE, "--limit", QUESTIONS, "--max-answer-tokens", MAX_ANSWER_TOKENS]
    return [
        ["index", documents, "--out", index],
        ["eval", "retrieval", index, "--questions", questions, "--split", "test", *modes],
        ["synth", "relevance", index, "--questions", questions, "--negatives", "16", "--out", relevance],
        ["train", "selector", "--data", relevance, "--out", selector],
        ["synth", "route", index, "--questions", questions, "--out", route],
        ["train", "router", "--data", route, "--out", router],
        ["eval", "retrieval", index, "--questions", questions, "--split", "test", *trained(selector, router)],
        [
            "synth",
            "preferences",
            index,
            "--questions",
            questions,
            "--top-k",
            CONTEXT_SIZE,
            *splits,
            "--out",
            data,
        ],
        ["train", "tiny", "--config", config("tiny"), "--texts", documents, "--out", tiny],
        train("sft", tiny, data, sft),
        train("ms", sft, data, ms),
        train("dpo", sft, data, dpo),
        ["compare", *models, "--data", data, "--out", f"{out}/report", *limits],
        ["ask", index, question, "--top-k", CONTEXT_SIZE, "--model", f"hf:{ms}"],
    ]


def trained(selector: str, router: str) -> list[str]:
    """The modes that a trained selector and router serve, beside the plain one."""
    return ["--modes", "dense", "local", "auto", "--selector", selector, "--router", router]


def train(stage: str, model: str, data: str, output: str) -> list[str]:
    """One fine-tuning command."""
    settings = [f"model={model}", f"data={data}", f"output={output}"]
    return ["train", stage, "--config", config(stage), *(word for each in settings for word in ("--set", each))]


def config(stage: str) -> str:
    """The demo's settings of a stage, as a path to type."""
    return shown(HOME / "configs/demo" / f"{stage}.yaml")


def shown(path: Path) -> str:
    """A path of the repository as one would type it here: relative when that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def next_commands(out: Path, question: str) -> tuple[str, ...]:
    """What to try after the demo: see the evidence, index one's own documents, tune a real small model (on a GPU)."""
    evidence = ["ask", f"{out}/index", question, "--mode", "hierarchy", "--retrieve-only"]
    recipe = shown(HOME / "configs/train/sft-qwen2.5-0.5b.yaml")
    real = ["train", "sft", "--config", recipe, "--set", f"data={out}/preferences", "--set", "output=my-sft"]
    own = ["index", "YOUR_DOCUMENTS", "--out", "my-index"]
    return (command_line(evidence), command_line(own), command_line(real))


def command_line(command: Sequence[str]) -> str:
    """A command as typed in a shell."""
    return shlex.join(["modegraph", *command])


def run_step(command: Sequence[str], run: Run) -> Step:
    """Run one command line, keeping its standard output; UserError when it ends with a status above 0."""
    started, kept = time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(kept):
        status = run(command)
    if status:
        print(kept.getvalue(), file=sys.stderr)
        raise UserError(
            f"`{command_line(command)}` ended with status {status}", "every step to succeed", "see its message above"
        )
    return Step(tuple(command), time.perf_counter() - started, kept.getvalue())


def demo_json(result: DemoResult) -> dict[str, Any]:
    """The demo's outcome: commands with seconds, the comparison as compare reports it, the answer, where things lie."""
    return {
        "steps": [{"command": command_line(step.command), "seconds": round(step.seconds, 2)} for step in result.steps],
        "comparison": json.loads((result.report.parent / "report.json").read_text(encoding="utf-8")),
        "question": result.question,
        "answer": result.steps[-1].output,
        "report": str(result.report),
        "next_commands": list(result.next_commands),
    }

"""The demo's steps as command lines, their inputs and outputs, and which of them an earlier run has completed: same command line,
inputs and code, results unchanged.

Every step is a command that a user could type. Sizes and learning rates are in configs/demo/ and here; the steps take some six minutes on two idle cores."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from graph.errors import UserError
from graph.models.catalogue import QWEN_CODER_05B, RECORD, SMOLLM2, folder_of, is_fetched
from graph.shared.home import HOME
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import write_json

DOCUMENTS, QUESTIONS, CONFIGS = "examples/documents", "examples/questions.jsonl", "configs/demo"
PASSAGES = "2"
"""Reading is most of the work on a CPU: a third passage makes every step a third longer."""
PROMPTS, K, HELD_OUT = "3", "8", "8"
MAX_SAMPLED_TOKENS, MAX_ANSWER_TOKENS = "48", "64"
SHOWN_QUESTIONS = 3
"""Number of test questions shown with every answer: always the first ones, however well they are answered."""
BASES = (QWEN_CODER_05B, SMOLLM2)
"""Candidates for the model to tune: the first that has been fetched is used."""


@dataclass(frozen=True)
class Base:
    """The model to tune: its name for training, its SPEC for asking, and the suffix of its configs' names."""

    model: str
    spec: str
    configs: str
    needs: Path
    """The path whose checksum identifies the model: its record in the cache, or its folder."""


@dataclass(frozen=True)
class PlannedStep:
    """A command line without the program's name. A step without `makes` only prints; a `live` one is repeated in every run."""

    words: tuple[str, ...]
    needs: tuple[Path, ...]
    makes: Path | None = None
    live: bool = False

    @property
    def line(self) -> str:
        """As typed in a shell."""
        return shlex.join(["modegraph", *self.words])


def base_of(out: Path) -> Base:
    """The first of BASES that has been fetched, else the tiny model that the demo trains; transformers runs it both before and after training."""
    for model in BASES:
        if is_fetched(model):
            return Base(model.name, f"hf:{model.name}", f"-{model.name}", folder_of(model) / RECORD)
    return Base(f"{out}/tiny", f"hf:{out}/tiny", "", out / "tiny")


def demo_steps(out: Path, base: Base, questions: Sequence[str]) -> list[PlannedStep]:
    """All steps in order; the untuned model and the MS run answer each of `questions`, with JSON replies."""
    tiny = [] if base.configs else [tiny_step(base)]
    return [*index_steps(out), *tiny, *tuning_steps(out, base), *question_steps(out, base, questions)]


def index_steps(out: Path) -> list[PlannedStep]:
    """Index, measure some modes, and make the rows for SFT and those for the comparison."""
    index, questions = out / "index", HOME / QUESTIONS
    source = [str(index), "--questions", short_path(questions)]
    rows = ["synth", "preferences", *source, "--top-k", PASSAGES, "--context-size", PASSAGES]
    both = (index, questions)
    return [
        command_step(["index", short_path(HOME / DOCUMENTS)], [HOME / DOCUMENTS], index),
        command_step(["eval", "retrieval", *source, "--split", "test", "--modes", "dense", "hybrid", "hops"], both),
        command_step([*rows, "--split", "train"], both, out / "rows"),
        command_step([*rows, "--split", "train", "--split", "test"], both, out / "held-out"),
    ]


def tiny_step(base: Base) -> PlannedStep:
    """Train the stand-in for a fetched model on the documents."""
    documents, file = HOME / DOCUMENTS, config_file("tiny")
    return command_step(
        ["train", "tiny", "--config", short_path(file), "--texts", short_path(documents)], (documents, file), base.needs
    )


def tuning_steps(out: Path, base: Base) -> list[PlannedStep]:
    """SFT, K of its responses to each prompt, MS and DPO on these, and the comparison on held-out questions."""
    index, questions, responses = out / "index", HOME / QUESTIONS, out / "responses"
    sft, ms, dpo, held_out = (out / name for name in ("sft", "ms", "dpo", "held-out"))
    draw = ["synth", "responses", str(index), "--questions", short_path(questions), "--policy", f"hf:{sft}"]
    draw += ["--samples", K, "--top-k", PASSAGES, "--context-size", PASSAGES]
    draw += ["--split", "train", "--limit", PROMPTS, "--max-answer-tokens", MAX_SAMPLED_TOKENS]
    compare = ["compare", "--runs", str(ms), str(dpo), str(sft), "--base", base.model, "--data", str(held_out)]
    compare += ["--limit", HELD_OUT, "--max-answer-tokens", MAX_ANSWER_TOKENS, "--answers-only"]
    return [
        train_step("sft", base, base.model, base.needs, out / "rows", sft),
        command_step(draw, (index, questions, sft), responses),
        train_step("ms", base, str(sft), sft, responses, ms),
        train_step("dpo", base, str(sft), sft, responses, dpo),
        command_step(compare, (ms, dpo, sft, held_out, base.needs), out / "report"),
    ]


def question_steps(out: Path, base: Base, questions: Sequence[str]) -> list[PlannedStep]:
    """Ask each model of `demo_models` each question, again in every run."""
    options = ["--top-k", PASSAGES, "--max-answer-tokens", MAX_ANSWER_TOKENS, "--json"]
    return [
        PlannedStep(("ask", str(out / "index"), question, "--model", spec, *options), (), live=True)
        for spec in demo_models(out, base).values()
        for question in questions
    ]


def demo_models(out: Path, base: Base) -> dict[str, str]:
    """The models shown side by side, with their SPECs: the untuned model, and the MS run, which comes after SFT."""
    return {"before": base.spec, "after": f"hf:{out}/ms"}


def train_step(stage: str, base: Base, model: str, start: Path, data: Path, output: Path) -> PlannedStep:
    """One fine-tuning command."""
    file = config_file(stage + base.configs)
    values = [f"model={model}", f"data={data}", f"output={output}"]
    words = ["train", stage, "--config", short_path(file), *(word for value in values for word in ("--set", value))]
    return PlannedStep(tuple(words), (file, start, data), output)


def command_step(words: Sequence[str], needs: Sequence[Path], makes: Path | None = None) -> PlannedStep:
    """A command that writes `makes`, given as its --out."""
    return PlannedStep((*words, *(["--out", str(makes)] if makes else [])), tuple(needs), makes)


def config_file(name: str) -> Path:
    """A file of the demo's settings."""
    return HOME / CONFIGS / f"{name}.yaml"


def short_path(path: Path) -> str:
    """A path of the repository as one would type it here: relative when that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


MARKER, STEPS = ".modegraph-demo", "steps.json"
CODE_FOLDERS = ("graph", "data_synth", "train", "serve", "eval")
READER_FILES = ("-shm", ".lock")
"""Suffixes of files that reading may change and that hold no data: SQLite's shared memory, locks."""
LIBRARIES = ("torch", "transformers", "peft", "trl")


@dataclass(frozen=True)
class FinishedStep:
    """A step that has run: its seconds, its output, and the checksums of what it read and made."""

    line: str
    seconds: float
    output: str
    code: str
    needed: dict[str, str] = field(default_factory=dict)
    made: str = ""


def prepare_folder(out: Path, fresh: bool) -> None:
    """Create the folder with the demo's marker, emptying it first if `fresh`; UserError for a folder that the demo did not make."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file", "a folder for the demo", "choose another --out")
    if out.is_symlink() or (out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file()):
        raise UserError(f"{out}: not a folder that the demo made", "a new or empty folder", "choose another --out")
    if fresh and out.is_dir():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("Made by `modegraph demo`: it keeps finished steps, and --fresh replaces the folder.\n")


def read_finished(out: Path) -> dict[str, FinishedStep]:
    """The steps of earlier runs by command line; none where the file is missing or not ours."""
    try:
        rows = json.loads((out / STEPS).read_text(encoding="utf-8"))
        return {row["line"]: FinishedStep(**row) for row in rows}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def write_finished(out: Path, done: Sequence[FinishedStep]) -> None:
    """Replace the record of finished steps."""
    write_json(out / STEPS, [asdict(one) for one in done])


def is_up_to_date(planned: PlannedStep, done: FinishedStep | None, code: str) -> bool:
    """Whether `done` need not be repeated."""
    if done is None or planned.live or done.code != code:
        return False
    return done.needed == checksums_of_inputs(planned) and done.made == checksum_of_results(planned)


def checksums_of_inputs(planned: PlannedStep) -> dict[str, str]:
    """The checksum of each file and folder that a step reads."""
    return {str(path): tree_checksum(path) for path in planned.needs}


def checksum_of_results(planned: PlannedStep) -> str:
    """The checksum of what a step made; "" for one that only prints."""
    return tree_checksum(planned.makes) if planned.makes else ""


def tree_checksum(path: Path) -> str:
    """A hash of a file, or of the names and contents of all files below a folder; "" if there are none."""
    if path.is_file():
        return checksum(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.endswith(READER_FILES))
    return content_id(*(f"{file.relative_to(path).as_posix()} {checksum(file)}" for file in files)) if files else ""


def code_checksum() -> str:
    """A hash of our source, our prompts and the versions of the libraries that train."""
    files = sorted(file for name in CODE_FOLDERS for kind in ("*.py", "*.txt") for file in (HOME / name).rglob(kind))
    sources = [f"{file.relative_to(HOME).as_posix()} {checksum(file)}" for file in files]
    return content_id(*sources, *(f"{name} {version(name)}" for name in LIBRARIES))

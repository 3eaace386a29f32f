"""The demo's steps as command lines: what each needs, what it makes, and the three questions that are answered before and after.

Every step is a command that a user could type. Sizes and learning rates are in configs/demo/ and here; they take some six minutes on
two idle cores.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graph.pretrained.cache import RECORD, folder_of, is_fetched
from graph.pretrained.catalogue import QWEN_CODER_05B, SMOLLM2
from graph.shared.home import HOME

DOCUMENTS, QUESTIONS, CONFIGS = "examples/documents", "examples/questions.jsonl", "configs/demo"
PASSAGES = "2"
"""Reading is most of the work on a CPU: a third passage makes every step a third longer."""
PROMPTS, K, HELD_OUT = "3", "8", "8"
MAX_SAMPLED_TOKENS, MAX_ANSWER_TOKENS = "48", "64"
SHOWN = 3
"""So many questions of the test split are shown with every answer: the first ones, whatever becomes of them."""
BASES = (QWEN_CODER_05B, SMOLLM2)
"""Models that are tuned, the first that has been fetched."""


@dataclass(frozen=True)
class Base:
    """The model that is tuned: its name for training, its SPEC for asking, and the ending of its configs' names."""

    model: str
    spec: str
    configs: str
    needs: Path
    """What tells whether it is still the same: its record in the cache, or its folder."""


@dataclass(frozen=True)
class Planned:
    """A command line without the program's name. What `makes` nothing only prints; `live` is done again in every run."""

    words: tuple[str, ...]
    needs: tuple[Path, ...]
    makes: Path | None = None
    live: bool = False

    @property
    def line(self) -> str:
        """As typed in a shell."""
        return shlex.join(["modegraph", *self.words])


def base_of(out: Path) -> Base:
    """The first of BASES that has been fetched, else the tiny model that the demo trains; opened by transformers, before training as after."""
    for model in BASES:
        if is_fetched(model):
            return Base(model.name, f"hf:{model.name}", f"-{model.name}", folder_of(model) / RECORD)
    return Base(f"{out}/tiny", f"hf:{out}/tiny", "", out / "tiny")


def road(out: Path, base: Base, asked: Sequence[str]) -> list[Planned]:
    """All steps in order; the questions `asked` are put to the untuned model and to the MS run, with JSON replies."""
    tiny = [] if base.configs else [train_tiny(base)]
    return [*index_and_rows(out), *tiny, *tune(out, base), *ask_all(out, base, asked)]


def index_and_rows(out: Path) -> list[Planned]:
    """Index, measure some modes, and make the rows that SFT learns from and those that the comparison asks."""
    index, questions = out / "index", HOME / QUESTIONS
    asked = [str(index), "--questions", shown(questions)]
    rows = ["synth", "preferences", *asked, "--top-k", PASSAGES, "--context-size", PASSAGES]
    both = (index, questions)
    return [
        step(["index", shown(HOME / DOCUMENTS)], [HOME / DOCUMENTS], index),
        step(["eval", "retrieval", *asked, "--split", "test", "--modes", "dense", "hybrid", "hops"], both),
        step([*rows, "--split", "train"], both, out / "rows"),
        step([*rows, "--split", "train", "--split", "test"], both, out / "held-out"),
    ]


def train_tiny(base: Base) -> Planned:
    """The model that stands in for a fetched one, trained on the documents."""
    documents, file = HOME / DOCUMENTS, config("tiny")
    return step(["train", "tiny", "--config", shown(file), "--texts", shown(documents)], (documents, file), base.needs)


def tune(out: Path, base: Base) -> list[Planned]:
    """SFT, K responses of it to each prompt, MS and DPO on these, and the comparison on held-out questions."""
    index, questions, responses = out / "index", HOME / QUESTIONS, out / "responses"
    sft, ms, dpo, held_out = (out / name for name in ("sft", "ms", "dpo", "held-out"))
    draw = ["synth", "responses", str(index), "--questions", shown(questions), "--policy", f"hf:{sft}"]
    draw += ["--samples", K, "--top-k", PASSAGES, "--context-size", PASSAGES]
    draw += ["--split", "train", "--limit", PROMPTS, "--max-answer-tokens", MAX_SAMPLED_TOKENS]
    compare = ["compare", "--runs", str(ms), str(dpo), str(sft), "--base", base.model, "--data", str(held_out)]
    compare += ["--limit", HELD_OUT, "--max-answer-tokens", MAX_ANSWER_TOKENS, "--answers-only"]
    return [
        train("sft", base, base.model, base.needs, out / "rows", sft),
        step(draw, (index, questions, sft), responses),
        train("ms", base, str(sft), sft, responses, ms),
        train("dpo", base, str(sft), sft, responses, dpo),
        step(compare, (ms, dpo, sft, held_out, base.needs), out / "report"),
    ]


def ask_all(out: Path, base: Base, asked: Sequence[str]) -> list[Planned]:
    """Each question to each model of `answerers`, anew in every run."""
    options = ["--top-k", PASSAGES, "--max-answer-tokens", MAX_ANSWER_TOKENS, "--json"]
    return [
        Planned(("ask", str(out / "index"), question, "--model", spec, *options), (), live=True)
        for spec in answerers(out, base).values()
        for question in asked
    ]


def answerers(out: Path, base: Base) -> dict[str, str]:
    """What is shown side by side, with its SPEC: the untuned model, and the MS run, which comes after SFT."""
    return {"before": base.spec, "after": f"hf:{out}/ms"}


def train(stage: str, base: Base, model: str, start: Path, data: Path, output: Path) -> Planned:
    """One fine-tuning command."""
    file = config(stage + base.configs)
    values = [f"model={model}", f"data={data}", f"output={output}"]
    words = ["train", stage, "--config", shown(file), *(word for each in values for word in ("--set", each))]
    return Planned(tuple(words), (file, start, data), output)


def step(words: Sequence[str], needs: Sequence[Path], makes: Path | None = None) -> Planned:
    """A command that writes `makes` by its --out."""
    return Planned((*words, *(["--out", str(makes)] if makes else [])), tuple(needs), makes)


def config(name: str) -> Path:
    """A file of the demo's settings."""
    return HOME / CONFIGS / f"{name}.yaml"


def shown(path: Path) -> str:
    """A path of the repository as one would type it here: relative when that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)

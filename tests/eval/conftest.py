"""Small inputs for evaluation: a Llama with random weights, its SFT run, MS and DPO runs that continue from SFT, and preference data with a hostile string."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from data_synth.rows import PreferenceRow, preference_to_json
from graph.answer.prompt import answer_messages, format_answer
from graph.shared.jsonl import write_jsonl
from graph.types import Excerpt
from tests import commands
from train.run.record import RunRecord, write_run
from train.run.settings import TinySettings
from train.tiny import new_llama, train_tokenizer

HOSTILE = "<script>alert('x')</script> | `tick` & ![](http://x)"
BETA, EPSILON = 0.5, 0.01
NO_LOGPS = "log-probabilities of the training answers: the server returns none for the tokens of a prompt"


@dataclass(frozen=True)
class World:
    """The folders of an untuned model, of the runs that fine-tune it, and of preference data."""

    base: Path
    sft: Path
    ms: Path
    dpo: Path
    data: Path


def preference(question: int, context_size: int, split: str, hard_negative: str = "") -> PreferenceRow:
    """A pair about a question; every third question is a yes/no question, and question 0 contains a hostile string."""
    excerpts = [Excerpt(f"p{n}", f"Title {n}", f"The mill number {n} stands in Corrow.") for n in range(context_size)]
    kind, answer = ("boolean", ("yes", "no")[question % 2]) if question % 3 == 0 else ("single", f"mill {question}")
    text = f"Where is mill {question}? {HOSTILE if question == 0 else ''}"
    rejected = answer if not hard_negative else format_answer("because of the weather", "somewhere else")
    return PreferenceRow(
        id=f"{split}-{question}#{context_size}{hard_negative}",
        prompt=answer_messages(text, excerpts),
        chosen=format_answer(f"The mill {question} stands there [1]", answer),
        rejected=rejected,
        question_id=f"{split}-{question}",
        question=text,
        answers=(answer,),
        kind=kind,
        split=split,
        context_size=context_size,
        context_ids=tuple(excerpt.id for excerpt in excerpts),
        gold_in_context=1.0,
        reasoner="rules",
        hard_negative=hard_negative,
    )


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small run faster on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Models with random weights: SFT is the base plus a little noise, MS equals SFT, and DPO is SFT plus a little noise."""
    home = tmp_path_factory.mktemp("world")
    folders = World(*(home / name for name in ("base", "sft", "ms", "dpo", "data")))
    folders.data.mkdir()
    for split, questions in (("train", range(6, 15)), ("test", range(6))):
        rows = [preference(question, size, split) for question in questions for size in (1, 2)]
        rows += [preference(question, 2, split, hard_negative="wrong") for question in questions]
        write_jsonl(folders.data / f"{split}.jsonl", (preference_to_json(row) for row in rows))
    settings = TinySettings(texts="", output="", vocabulary=512, hidden_size=32, layers=1, heads=2, context_tokens=512)
    tokenizer = train_tokenizer([row.prompt[-1].content for row in rows], settings.vocabulary, settings.context_tokens)
    model = new_llama(settings, tokenizer)
    for folder, beta, base in (
        (folders.base, None, ""),
        (folders.sft, None, folders.base),
        (folders.ms, BETA, folders.sft),
        (folders.dpo, BETA, folders.sft),
    ):
        if folder in (folders.sft, folders.dpo):
            seed = (folders.sft, folders.dpo).index(folder)
            with torch.no_grad():
                for weight in model.parameters():
                    weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if folder != folders.base:
            write_run(folder, run_record(folder.name, str(base), beta, str(folders.data)))
    return folders


def run_record(stage: str, base_model: str, beta: float | None, data: str = "data") -> RunRecord:
    """A run record with the fields that a comparison reads."""
    epsilon = EPSILON if stage == "ms" else None
    k = 2 if beta is not None else None
    return RunRecord(stage, base_model, "", data, beta, None, epsilon, k, {"seed": 0}, {}, 1.5, "cpu", {})  # type: ignore[arg-type]


def read_lines(file: Path) -> list[dict]:
    """The objects of a JSON lines file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def check_server(server: str, run: Path, *more: str, conversations: int = 3) -> tuple[int, dict[str, Any]]:
    """The exit status and the report of `serve check`; the report lists the faults of the server."""
    done = commands.run("serve", "check", server, run, "--conversations", conversations, "--json", *more)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)

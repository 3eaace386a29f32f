"""Every synthesis command that calls a model, with a real vLLM server on CPU: its rows, its ledger, and a run that is killed and resumed.

The model is a tiny one, tuned for a minute on the questions of the test so that it can answer in the required form.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from data_synth.dataset.validate import validate_file
from graph.build.build import build_index
from graph.errors import UserError
from graph.models.encoder import open_encoder
from graph.shared.jsonl import write_jsonl
from graph.store.index_settings import IndexSettings
from tests.commands import run
from tests.corpora import ISLES
from tests.data_synth.test_server import QUESTION_ROWS, recorded_calls
from tests.processes import until
from tests.vllm import Server, serving, with_vllm
from train.run.settings import SftSettings, TinySettings
from train.sft import train_sft
from train.tiny import train_tiny

pytestmark = with_vllm
CALLS = 5 * 2 * 8
"""The calls of a complete run: questions × context sizes (one and two passages) × samples."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index, questions, and a tiny model tuned on their preference rows."""
    folder = tmp_path_factory.mktemp("synth-vllm")
    build_index(folder / "index", ISLES, IndexSettings(), open_encoder)
    write_jsonl(folder / "questions.jsonl", QUESTION_ROWS)
    rows = [{"id": d.source, "title": d.title, "text": d.text} for d in ISLES]
    write_jsonl(folder / "texts.jsonl", rows)
    synth(folder, "preferences", "--out", folder / "pairs", "--top-k", 2)
    train_tiny(
        TinySettings(texts=str(folder / "pairs"), output=str(folder / "tiny"), vocabulary=600, layers=2, steps=150)
    )
    sft = {"model": str(folder / "tiny"), "data": str(folder / "pairs"), "output": str(folder / "sft")}
    train_sft(SftSettings(**sft, learning_rate=2e-3, epochs=40, batch_size=5))
    return folder


@pytest.fixture(scope="module")
def server(world: Path) -> Iterator[Server]:
    with serving(world / "sft", max_tokens=1024) as running:
        yield running


def words_of(world: Path, command: str, *words: object) -> list[str]:
    options = [] if command == "questions" else ["--questions", world / "questions.jsonl"]
    return list(map(str, ["synth", command, world / "index", *options, *words]))


def synth(world: Path, command: str, *words: object) -> dict[str, Any]:
    done = run(*words_of(world, command, *words), "--json")
    if isinstance(done.exception, Exception):
        raise done.exception
    summary: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code in (0, 1), done.stderr
    return summary


def test_every_command_that_calls_a_model_runs_on_the_server(world: Path, server: Server) -> None:
    model = server.spec
    commands: dict[str, tuple[object, ...]] = {
        "preferences": ("--writer", model, "--judge", model, "--top-k", 2),
        "responses": ("--policy", model, "--judge", model, "--samples", 6, "--top-k", 1, "--max-answer-tokens", 60),
        "questions": ("--writer", model, "--judge", model, "--count", 4),
        "relevance": ("--distil-from", model, "--negatives", 5),
    }
    for command, options in commands.items():
        before = server.requests_served()
        try:
            summary = synth(world, command, "--out", world / command, *options)
        except UserError as problem:
            # If none of the writer's questions can be used, the command fails with an error that shows a reply.
            assert command == "questions" and "no usable question" in str(problem), problem
            assert server.requests_served() > before
            continue
        served = server.requests_served() - before
        assert served > 0, command
        assert summary["rows"] + sum(summary["drops"].values()) > 0, command
        if command in ("preferences", "responses"):
            assert 0 < recorded_calls(world / command / "ledger.sqlite") <= served, (command, summary["drops"])
        # The model was tuned on prompts that ask for an answer; when a prompt asks it to explain a given answer, it mostly breaks the form.
        assert summary["rows"] > 0 or command != "responses"
        for file in (world / command).glob("*.jsonl"):
            assert validate_file(file).bad == (), command


def test_a_killed_run_resumes_on_the_server(world: Path, server: Server) -> None:
    options = ("--policy", server.spec, "--samples", 8, "--top-k", 2, "--max-answer-tokens", 60, "--seed", 7)
    words = words_of(world, "responses", *options, "--out", world / "killed")
    killed = subprocess.Popen(
        [sys.executable, "-P", "-m", "modegraph", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ledger = world / "killed/ledger.sqlite"
    until(lambda: recorded_calls(ledger), 120, killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    finished = recorded_calls(ledger)
    assert 0 < finished < CALLS and not (world / "killed" / "train.jsonl").exists()
    time.sleep(2)
    before = server.requests_served()
    summary = synth(world, "responses", *options, "--out", world / "killed")
    assert server.requests_served() - before == CALLS - finished, "an answer in the ledger is not sampled again"
    whole = synth(world, "responses", *options, "--out", world / "whole")
    assert recorded_calls(world / "whole/ledger.sqlite") == CALLS
    assert summary["rows"] > 0 and {**summary, "out": ""} == {**whole, "out": ""}
    assert (world / "killed/train.jsonl").read_bytes() == (world / "whole/train.jsonl").read_bytes()

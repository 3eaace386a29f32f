"""Synthesis with a real HTTP server that misbehaves, and with a kill in the middle: losses are bounded and counted, and the run resumes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import serve.engines.openai_api as engine
from data_synth.cli import register
from data_synth.preferences.hard_negatives import INVENTED
from graph.errors import UserError
from serve.engines import open_model
from tests.data_synth.test_cli import write_rows
from tests.fakes import ChatServer, Reply, chat_server
from tests.processes import until

QUESTIONS = [
    ("q0", "Where was Ada Marlow born?", "Tarn", "ada", "She was born in Tarn and died on 4 May 1931."),
    ("q1", "How long does kelp bread keep?", "nine days", "bread", "It keeps for nine days."),
    ("q2", "Who founded the Marlow Yard?", "Ada Marlow", "marlow", "It was founded by Ada Marlow in 1880."),
    ("q3", "When was the Lantern built?", "1911", "lantern", "She was built in 1911 by the Marlow Yard."),
    ("q4", "How many people live in Tarn?", "312", "tarn", "Tarn is a village of 312 people."),
]
QUESTION_ROWS = [
    {"id": i, "question": q, "answers": [a], "gold_ids": [d], "evidence": [{"id": d, "quote": e}], "split": "train"}
    for i, q, a, d, e in QUESTIONS
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, open_hashed: None) -> None:
    monkeypatch.setattr(engine, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(engine, "MAX_WAIT_S", 0.02)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "questions.jsonl", *QUESTION_ROWS)


def good_reply(body: dict[str, Any]) -> str:
    """The right answer after the sentence that states it, with an addition that differs by seed."""
    text = body["messages"][-1]["content"]
    _, _, answer, _, sentence = next(row for row in QUESTIONS if row[1] in text)
    extra = "" if body["temperature"] == 0 else f" That is the {body['seed']}th telling."
    return f"###Reason: {sentence}{extra} ###Answer: {answer}"


def run(url: str, *words: object) -> Result:
    app = typer.Typer()
    register(app, open_model)
    spec = f"openai:tiny@{url}"
    done = CliRunner().invoke(app, ["synth", *(spec if word == "MODEL" else str(word) for word in words)])
    if isinstance(done.exception, Exception):
        raise done.exception
    return done


def misbehaving() -> tuple[Reply, dict[str, int]]:
    """Every third call is first refused with 429 or 500; replies to one question are truncated JSON, and those to another run on until the token limit."""
    failed: set[str] = set()
    counts = {"429": 0, "500": 0, "calls": 0}
    lock = Lock()

    def reply(body: dict[str, Any], number: int) -> str | tuple[int, str]:
        key = json.dumps([body["messages"], body.get("seed")])
        with lock:
            counts["calls"] += 1
            first = key not in failed
            failed.add(key)
        if first and number % 3 == 0:
            status = 429 if number % 2 else 500
            counts[str(status)] += 1
            return status, "busy"
        if "kelp bread" in body["messages"][-1]["content"]:
            return '{"reason": "It keeps for'
        if "Lantern built" in body["messages"][-1]["content"]:
            time.sleep(0.05)
            return "on and " * 400
        return good_reply(body)

    return reply, counts


def test_a_misbehaving_server_loses_only_the_rows_that_it_spoils_and_the_card_counts_them(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    reply, counts = misbehaving()
    with chat_server(reply) as server:
        words = (
            "preferences",
            hashed_isles,
            "--questions",
            questions,
            "--writer",
            "MODEL",
            "--top-k",
            3,
            *sizes(0, 1, 2, 3),
        )
        done = run(server.url, *words, "--out", tmp_path / "out", "--json")
        requests = len(server.requests)
        again = run(server.url, *words, "--out", tmp_path / "out", "--json")
    summary = json.loads(done.stdout)
    malformed, cut = "not of the form ###Reason: … ###Answer: …", "reasoning cut at the token limit"
    refused = summary["counts"]["rejected side"].get(INVENTED, 0)
    lost = (summary["drops"][malformed], summary["drops"][cut])
    assert all(4 - refused <= each <= 4 for each in lost)
    assert summary["rows"] + sum(summary["drops"].values()) == 20
    calls = 20 - refused
    assert counts["429"] > 0 < counts["500"] and requests == calls + counts["429"] + counts["500"], (
        "each refused call is sent once more"
    )
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| {malformed} | {lost[0]} |" in card and f"| {cut} | {lost[1]} |" in card
    assert json.loads(again.stdout) == summary and len(server.requests) == requests + lost[1], (
        "only cut calls are sent again"
    )


def test_a_server_that_stops_answering_ends_the_run_and_the_finished_calls_are_stored(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    def dies(body: dict[str, Any], number: int) -> str | tuple[int, str]:
        return good_reply(body) if number <= 6 else (500, "gone")

    words = (
        "responses",
        hashed_isles,
        "--questions",
        questions,
        "--policy",
        "MODEL",
        "--samples",
        4,
        "--top-k",
        1,
        *sizes(0, 1),
    )
    out = tmp_path / "out"
    with chat_server(dies) as server:
        with pytest.raises(UserError, match="status 500"):
            run(server.url, *words, "--out", out)
        assert len(server.requests) <= 6 + 2 * engine.IN_FLIGHT * engine.ATTEMPTS < 40 * engine.ATTEMPTS
    assert {file.name.partition("-")[0] for file in out.iterdir()} == {"ledger.sqlite"}
    with chat_server(lambda body, number: good_reply(body)) as server:
        # The same model name at another address: the ledger identifies a model by its name.
        done = run(server.url, *words, "--out", out, "--json")
        assert len(server.requests) == 40 - 6
    assert json.loads(done.stdout)["rows"] == 10
    assert "prompts: 10 done" in done.stderr, "progress counts finished prompts"


RUN = """
import sys
from functools import partial
import typer
import graph.index.index
from data_synth.cli import register
from serve.engines import open_model
from tests.fakes import HashEncoder
graph.index.index.open_index = partial(graph.index.index.open_index, open_by_spec=lambda spec: HashEncoder())
app = typer.Typer()
register(app, open_model)
app(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["preferences", "responses"])
def test_a_killed_run_resumes_without_repeating_a_call_and_writes_the_same_rows(
    command: str, hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    options = ["--writer"] if command == "preferences" else ["--samples", "3", "--policy"]

    def slow(body: dict[str, Any], number: int) -> str:
        time.sleep(0.1)
        return good_reply(body)

    with chat_server(slow) as server:
        spec = f"openai:tiny@{server.url}"
        words = ["synth", command, str(hashed_isles), "--questions", str(questions), "--top-k", "2", *options, spec]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        killed = subprocess.Popen(
            [sys.executable, "-P", "-c", RUN, *words, "--out", str(tmp_path / "out")],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ledger = tmp_path / "out" / "ledger.sqlite"
        until(lambda: recorded_calls(ledger) >= 3, 240, killed)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        time.sleep(0.5)  # Requests that were already sent still arrive.
        finished, requests = recorded_calls(ledger), len(server.requests)
        assert finished >= 3 and not (tmp_path / "out" / "train.jsonl").exists()
        run(server.url, *words[1:], "--out", tmp_path / "out")
        resumed = len(server.requests) - requests
        run(server.url, *words[1:], "--out", tmp_path / "whole")
        calls = len(server.requests) - requests - resumed
        assert resumed == calls - finished > 0, "a stored call is not sent again"
    for name in ("train.jsonl", "train.parquet", "README.md", "summary.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_two_servers_share_the_calls_of_a_run_that_fails_and_is_resumed(
    hashed_isles: Path, questions: Path, tmp_path: Path
) -> None:
    """The run ends when two servers, one of them slow, fail midway. It resumes on a third without repeating a call; its rows equal those of one server."""
    words = ("responses", hashed_isles, "--questions", questions, "--samples", 4, "--top-k", 1, *sizes(0, 1))

    def slow(body: dict[str, Any], number: int) -> str | tuple[int, str]:
        time.sleep(0.1)
        return good_reply(body) if number <= 6 else (503, "gone")

    def dies(body: dict[str, Any], number: int) -> str | tuple[int, str]:
        return good_reply(body) if number <= 12 else (503, "gone")

    def policies(*servers: ChatServer) -> list[str]:
        return [word for server in servers for word in ("--policy", f"openai:tiny@{server.url}")]

    with (
        chat_server(slow) as one,
        chat_server(dies) as other,
        chat_server(lambda body, number: good_reply(body)) as third,
    ):
        with pytest.raises(UserError, match="status 503"):
            run("", *words, *policies(one, other), "--out", tmp_path / "out")
        assert recorded_calls(tmp_path / "out" / "ledger.sqlite") == 6 + 12
        done = run("", *words, *policies(third), "--out", tmp_path / "out", "--json")
        assert len(third.requests) == 40 - 18 and json.loads(done.stdout)["rows"] == 10
        with pytest.raises(UserError, match="servers of 'tiny' and 'small'"):
            run("", *words, *policies(third), "--policy", f"openai:small@{one.url}", "--out", tmp_path / "other")
        run("", *words, *policies(third), "--out", tmp_path / "whole")
    for name in ("train.jsonl", "README.md", "summary.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def sizes(*wanted: int) -> tuple[object, ...]:
    """The command-line options for these context sizes."""
    return tuple(word for size in wanted for word in ("--context-size", size))


def recorded_calls(ledger: Path) -> int:
    """The number of calls in a ledger. It is opened for writing: only then does SQLite recover the last commits of a killed writer."""
    if not ledger.exists():
        return 0
    try:
        with sqlite3.connect(ledger) as database:
            return int(database.execute("SELECT count(*) FROM calls").fetchone()[0])
    except sqlite3.OperationalError:
        return 0

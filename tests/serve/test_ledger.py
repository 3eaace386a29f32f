import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from graph.shared.errors import UserError
from graph.shared.types import CompletionRequest, Message
from serve.engines import open_model
from serve.ledger import Counts, Ledger, call_key
from tests.fakes import ScriptedModel, chat_server
from tests.places import ROOT


def ask(text: str) -> CompletionRequest:
    return CompletionRequest((Message("user", text),), max_tokens=9)


def echo(request: CompletionRequest) -> str:
    return "echo " + request.messages[-1].content


def test_a_finished_call_is_never_made_again(tmp_path: Path) -> None:
    model = ScriptedModel(echo)
    ledger = Ledger(model, tmp_path / "ledger.sqlite")
    first = ledger.complete([ask("a"), ask("b"), ask("a")])
    assert [one.text for one in first] == ["echo a", "echo b", "echo a"]
    assert len(model.asked) == 2
    assert ledger.counts == Counts(hits=1, misses=2, prompt_tokens=20, completion_tokens=4)

    reopened = Ledger(model, tmp_path / "ledger.sqlite")
    assert reopened.complete([ask("b"), ask("a")]) == [first[1], first[0]]
    assert reopened.counts == Counts(hits=2)
    assert len(model.asked) == 2


def test_a_cut_text_is_given_but_not_kept(tmp_path: Path) -> None:
    model = ScriptedModel(echo, finish_reason="length")
    ledger = Ledger(model, tmp_path / "ledger.sqlite")
    assert ledger.complete([ask("a")])[0].finish_reason == "length"
    ledger.complete([ask("a")])
    assert len(model.asked) == 2
    assert sqlite3.connect(tmp_path / "ledger.sqlite").execute("SELECT count(*) FROM calls").fetchone() == (0,)


def test_whatever_decides_a_completion_is_in_its_key() -> None:
    request = ask("a")
    others = [
        replace(request, messages=(Message("system", "a"),)),
        replace(request, messages=(Message("user", "a"), Message("user", ""))),
        replace(request, max_tokens=10),
        replace(request, temperature=0.1),
        replace(request, seed=0),
        replace(request, schema={"type": "object"}),
    ]
    keys = {call_key("m", request), call_key("n", request), *(call_key("m", other) for other in others)}
    assert len(keys) == 2 + len(others)
    assert call_key("m", ask("a")) == call_key("m", request)


def test_a_failing_call_loses_no_finished_one(tmp_path: Path) -> None:
    def reply(request: CompletionRequest) -> str:
        if request.messages[0].content == "bad":
            raise UserError("server gone", "", "")
        return echo(request)

    ledger = Ledger(ScriptedModel(reply), tmp_path / "ledger.sqlite")
    with pytest.raises(UserError, match="server gone"):
        ledger.complete([ask("a"), ask("b"), ask("bad")])
    again = ScriptedModel(echo)
    Ledger(again, tmp_path / "ledger.sqlite").complete([ask("a"), ask("b"), ask("bad")])
    assert again.asked == [ask("bad")]


def test_a_batching_model_gets_whole_batches(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Batched(ScriptedModel):
        def complete(self, requests):  # type: ignore[no-untyped-def]
            sizes.append(len(requests))
            return super().complete(requests)

    ledger = Ledger(Batched(echo, batch_size=4), tmp_path / "ledger.sqlite")
    assert [one.text for one in ledger.complete([ask(str(n)) for n in range(10)])] == [f"echo {n}" for n in range(10)]
    assert sorted(sizes) == [2, 4, 4]


def test_threads_and_a_second_ledger_share_a_file(tmp_path: Path) -> None:
    ledgers = [Ledger(ScriptedModel(echo), tmp_path / "ledger.sqlite") for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: ledgers[n % 2].complete([ask(str(n // 4))])[0].text, range(200)))
    assert made == [f"echo {n // 4}" for n in range(200)]
    assert sqlite3.connect(tmp_path / "ledger.sqlite").execute("SELECT count(*) FROM calls").fetchone() == (50,)


def test_the_first_of_two_equal_calls_stands_for_both(tmp_path: Path) -> None:
    barrier = threading.Barrier(2, timeout=20)

    def ledger(text: str) -> Ledger:
        return Ledger(ScriptedModel(lambda request: (barrier.wait(), text)[1]), tmp_path / "ledger.sqlite")

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda text: ledger(text).complete([ask("q")])[0].text, ["red", "blue"])
    assert one == two


def test_another_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes, of more than sixteen bytes\n" * 40)
    with pytest.raises(UserError, match=r"notes\.txt: no call ledger"):
        Ledger(ScriptedModel(echo), notes)
    assert notes.read_text().startswith("my notes")


CHILD = """
import sys
from pathlib import Path
from graph.shared.types import CompletionRequest, Message
from serve.engines import open_model
ledger = open_model(sys.argv[1], Path(sys.argv[2]))
for number in range(6):
    ledger.complete([CompletionRequest((Message("user", str(number)),), max_tokens=9)])
    print("done", number, flush=True)
"""


def test_a_killed_process_repeats_no_finished_call(tmp_path: Path) -> None:
    release = threading.Event()

    def reply(body: dict[str, object], number: int) -> str:
        if number == 4:
            release.wait(30)
        return f"call {number}"

    with chat_server(reply) as server:
        spec, file = f"openai:m@{server.url}", tmp_path / "ledger.sqlite"
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, spec, str(file)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert [child.stdout.readline().strip() for _ in range(3)] == ["done 0", "done 1", "done 2"]
        while len(server.asked) < 4:
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        release.set()
        requests = [ask(str(number)) for number in range(6)]
        made = open_model(spec, file).complete(requests)
        assert [one.text for one in made[:3]] == ["call 1", "call 2", "call 3"]
        again = [body["messages"][0]["content"] for body in server.asked[4:]]
        assert sorted(again) == ["3", "4", "5"]

"""The commands before a run: in order, once, logged; of one step several at a time, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eval.run.config import StepSettings
from eval.run.steps import STEPS, expand_steps, run_steps
from graph.errors import UserError
from tests.places import EXAMPLES, ROOT
from tests.processes import runs, workers_of


def step(run: str, makes: object, **each: tuple[str, ...]) -> StepSettings:
    return StepSettings(run=run, makes=str(makes), each=each)


def write(command: list[str]) -> int:
    Path(command[-1]).write_text("x")
    return 0


def test_steps_run_once_in_order_and_must_make_what_they_say(tmp_path: Path) -> None:
    ran = []

    def work(command):
        ran.append(list(command))
        return write(command)

    steps = expand_steps([step(f"train '{n} x' {tmp_path / n}", tmp_path / n) for n in "ab"], {})
    run_steps(steps, work, tmp_path / "out", 2)
    run_steps(steps, work, tmp_path / "out", 2)
    assert ran == [["train", "a x", str(tmp_path / "a")], ["train", "b x", str(tmp_path / "b")]]
    lines = [json.loads(line) for line in (tmp_path / "out" / STEPS).read_text().splitlines()]
    assert [(line["makes"], line["status"]) for line in lines] == [(str(tmp_path / n), 0) for n in "ab"]
    lazy = expand_steps([step("train c", tmp_path / "c")], {})
    with pytest.raises(UserError, match="`modegraph train c` did not make"):
        run_steps(lazy, lambda _: 0, tmp_path, 1)
    with pytest.raises(UserError, match="ended with status 1"):
        run_steps(lazy, lambda _: 1, tmp_path, 1)


def test_a_step_stands_for_every_combination_of_its_values() -> None:
    wanted = step("train {stage} {data}/x --set seed={seed}", "{stage}-{seed}", stage=("ms", "dpo"), seed=("0", "1"))
    (found,) = expand_steps([wanted], {"data": "sets"})
    assert [one.makes for one in found] == ["ms-0", "ms-1", "dpo-0", "dpo-1"]
    assert found[3].run == "train dpo sets/x --set seed=1" and not found[3].each
    with pytest.raises(UserError, match=r"'speed' is no variable.*one of: data"):
        expand_steps([step("train {speed}", "x")], {"data": "sets"})


def test_commands_of_a_step_run_in_processes_of_their_own(tmp_path: Path) -> None:
    """The two that can, do; the one that cannot is reported after the others are done."""
    questions = EXAMPLES / "questions.jsonl"
    split = f"data split --questions {questions} --anew --test {{count}} --out {tmp_path}/{{count}}.jsonl"
    steps = expand_steps([step(split, f"{tmp_path}/{{count}}.jsonl", count=("3", "100000", "4"))], {})
    with pytest.raises(UserError, match="ended with status 2"):
        run_steps(steps, lambda _: pytest.fail("runs here"), tmp_path, 2)
    assert [len((tmp_path / f"{n}.jsonl").read_text().splitlines()) for n in (3, 4)] == [3, 4]
    assert sorted(json.loads(line)["status"] for line in (tmp_path / STEPS).read_text().splitlines()) == [0, 0, 2]


def test_a_run_that_is_killed_takes_its_processes_with_it(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "from pathlib import Path\n"
        "from eval.run.config import StepSettings\n"
        "from eval.run.steps import expand_steps, run_steps\n"
        "if __name__ == '__main__':\n"
        f"    step = StepSettings(run='index {EXAMPLES / 'documents'} --out {tmp_path}/{{n}}', makes='{tmp_path}/{{n}}/never',"
        " each={'n': ('a', 'b')})\n"
        f"    run_steps(expand_steps([step], {{}}), None, Path('{tmp_path}'), 2)\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-P", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while len(children := workers_of(running.pid)) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    assert len(children) >= 2
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    while any(map(runs, children)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(runs, children))

"""The shipped configurations of `eval run` parse, name what exists and hold the systems that they promise; a killed run goes on."""

import os
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
import yaml
from typer.testing import CliRunner

from eval.metrics.registry import find_metric
from eval.run.cells import systems_of
from eval.run.config import MatrixSettings
from eval.run.steps import expand_steps
from eval.tasks.catalogue import find_task
from graph.config import load_settings
from modegraph.cli import build_app
from tests.eval.run.conftest import CONFIG
from tests.places import ROOT
from tests.processes import runs, workers_of
from tests.test_configs import KINDS

CONFIGS = sorted((ROOT / "configs" / "eval").glob("*.yaml"))
SYSTEMS = {
    "retrieval": 8,
    "ablation-walk": 10,
    "ablation-layers": 3,
    "examples": 16,
    "ablation-hierarchy": 40,
    "ablation-hierarchy-musique": 40,
    "ablation-training": 8,
    "graphmpa": 12,
    "topg": 3,
    "pankrag": 2,
    "study-smollm2": 8,
    "papers-smollm2": 9,
}


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_shipped_configuration_is_whole(file):
    settings = load_settings(MatrixSettings, file)
    systems = systems_of(settings)
    assert len(systems) == SYSTEMS[file.stem] == len({system.name for system in systems})
    assert not settings.baseline or settings.baseline in {system.name for system in systems}
    for name in settings.metrics:
        find_metric(name)
    for task in settings.tasks.values():
        find_task(task.task)
        if settings.data == "../.." and not task.source.startswith("runs/"):
            assert (file.parent / settings.data / task.source).exists()
            assert (file.parent / settings.data / task.documents).exists()
    steps = steps_of(file.stem)
    for step in steps:
        check_command(step.run)
    made = {step.makes.rpartition("/")[0] for chain in ("examples", "study-smollm2") for step in steps_of(chain)}
    made |= {step.makes.rpartition("/")[0] for step in steps}
    trained = {line.split()[-1] for each in (ROOT / "configs" / "train").glob("*.yaml") for line in outputs(each)}
    here = {spec.partition(":")[2] for spec in settings.models.values() if "runs/" in spec}
    assert here <= made | trained
    assert len({step.makes for step in steps}) == len(steps)


def steps_of(name):
    """The commands that a shipped configuration prepares with."""
    settings = load_settings(MatrixSettings, ROOT / "configs" / "eval" / f"{name}.yaml")
    return [each for group in expand_steps(settings.prepare, settings.variables) for each in group]


def check_command(line):
    """Its configuration is there and takes what --set says; what it reads of runs/ is not checked."""
    words = shlex.split(line)
    if words[0] != "train" or words[1] not in KINDS:
        return
    pairs = list(pairwise(words))
    (config,) = (value for flag, value in pairs if flag == "--config")
    load_settings(KINDS[words[1]], ROOT / config, [value for flag, value in pairs if flag == "--set"])


def outputs(file):
    """The lines of a training configuration that say where its run goes."""
    return [line for line in file.read_text("utf-8").splitlines() if line.startswith("output:")]


def test_the_expected_configurations_are_shipped():
    assert {file.stem for file in CONFIGS} == set(SYSTEMS)


@pytest.mark.slow
def test_a_killed_run_goes_on_without_repeating_a_finished_cell(home):
    """SIGKILL after the first cells of 9, whose three indexes take longest: they are left as they are, the rest is filled, and no worker
    outlives the run.
    """
    config = {
        **CONFIG,
        "indexes": {f"at {number}": {"min_similarity": number / 10} for number in range(1, 4)},
        "retrievers": {mode: {"mode": mode} for mode in ("dense", "lexical", "hops")},
        "workers": 2,
    }
    (home / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    words = ["eval", "run", str(home / "config.yaml"), "--out", str(home / "out")]
    command = [sys.executable, "-P", "-m", "modegraph", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    cells = home / "out" / "cells"
    killed = subprocess.Popen(command, env=env, cwd=home, stderr=subprocess.DEVNULL)
    try:
        while killed.poll() is None and len(list(cells.glob("*.json"))) < 2:
            time.sleep(0.02)
        at_work = workers_of(killed.pid)
    finally:
        killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    end = time.monotonic() + 30
    while any(map(runs, at_work)) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(at_work) == 2 and not any(map(runs, at_work)), "a worker went on alone"
    left = {file: file.stat().st_mtime_ns for file in cells.glob("*.json")}
    assert 2 <= len(left) < 9
    # In this process, which has loaded what a process of its own would have to: it ended, and finds what the killed one left.
    done = CliRunner().invoke(build_app(), [*words, "--set", "workers=1"])
    assert done.exit_code == 0, done.stderr
    assert f"9 cells: {len(left)} are there already, {9 - len(left)} to fill" in done.stderr
    assert len(list(cells.glob("*.json"))) == 9
    assert left == {file: file.stat().st_mtime_ns for file in left}
    assert (home / "out" / "report.html").is_file()

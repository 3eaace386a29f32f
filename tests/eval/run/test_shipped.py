"""The shipped configurations of `eval run` parse, name only existing metrics, tasks and files, and have the right number of systems; a killed run resumes."""

import shlex
import signal
import subprocess
import time
from functools import partial
from itertools import pairwise

import pytest
import yaml

from eval.metrics.registry import find_metric
from eval.run.cells import systems_of
from eval.run.config import MatrixSettings
from eval.run.run import run_matrix
from eval.tasks.catalogue import find_task
from graph.config import load_settings
from tests.commands import run
from tests.eval.run.conftest import CONFIG, hash_encoder
from tests.places import ROOT
from tests.processes import modegraph
from tests.test_configs import KINDS

CONFIGS = sorted((ROOT / "configs" / "eval").glob("*.yaml"))
MAKEFILES = sorted((ROOT / "configs" / "eval").glob("*.mk"))
SYSTEMS = {
    "retrieval": 8,
    "ablation-walk": 10,
    "ablation-layers": 3,
    "examples": 16,
    "ablation-hierarchy": 40,
    "ablation-training": 8,
    "graphmpa": 12,
    "graphmpa-small": 4,
    "graphrag-bench": 6,
    "topg": 3,
    "pankrag": 2,
    "study-smollm2": 8,
    "papers-reader": 11,
}


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_shipped_configuration_is_complete(file):
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
    make_words = {word for file in MAKEFILES for line in commands_of(file) for word in line}
    trained = {line.split()[-1] for each in (ROOT / "configs" / "train").glob("*.yaml") for line in outputs(each)}
    needed = {spec.partition(":")[2] for spec in settings.models.values() if "runs/" in spec}
    assert needed <= {word.removeprefix("output=") for word in make_words} | trained


def commands_of(makefile):
    """The modegraph commands, split into words, that `make` would run if no target existed yet."""
    command = ["make", "--dry-run", "--no-print-directory", "-f", makefile]
    printed = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True, check=True).stdout
    return [shlex.split(line)[1:] for line in printed.splitlines()]


@pytest.mark.parametrize(("file", "count"), [("examples", 9), ("study-smollm2", 65)])
def test_a_makefile_makes_everything_that_its_report_needs(file, count):
    """The training configurations of a makefile exist and accept the --set values; no command is repeated, and the report comes last."""
    commands = commands_of(ROOT / "configs" / "eval" / f"{file}.mk")
    assert len(commands) == count == len({tuple(words) for words in commands})
    assert commands[-1] == ["eval", "run", f"configs/eval/{file}.yaml"]
    for words in commands:
        check_command(words)
    targets = {words[words.index("--out") + 1] for words in commands if "--out" in words}
    targets |= {word.removeprefix("output=") for words in commands for word in words if word.startswith("output=")}
    for task in load_settings(MatrixSettings, ROOT / "configs" / "eval" / f"{file}.yaml").tasks.values():
        assert not task.index or {task.index, f"{task.source}/questions.jsonl"} <= targets


def check_command(words):
    """Check that the configuration of a training command exists and accepts the --set values; the files that it reads from runs/ are not checked."""
    if words[0] != "train" or words[1] not in KINDS:
        return
    pairs = list(pairwise(words))
    (config,) = (value for flag, value in pairs if flag == "--config")
    load_settings(KINDS[words[1]], ROOT / config, [value for flag, value in pairs if flag == "--set"])


def outputs(file):
    """The lines of a training configuration that name its output folder."""
    return [line for line in file.read_text("utf-8").splitlines() if line.startswith("output:")]


def test_the_expected_configurations_are_shipped():
    assert {file.stem for file in CONFIGS} == set(SYSTEMS)


@pytest.mark.slow
def test_a_killed_run_resumes_without_repeating_a_finished_cell(home, monkeypatch):
    """The first run is killed once two of 9 cells are finished (building the three indexes takes longest); a second run fills only the remaining cells."""
    config = {
        **CONFIG,
        "indexes": {f"at {number}": {"min_similarity": number / 10} for number in range(1, 4)},
        "retrievers": {mode: {"mode": mode} for mode in ("dense", "lexical", "hops")},
    }
    (home / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    words = ["eval", "run", str(home / "config.yaml"), "--out", str(home / "out")]
    cells = home / "out" / "cells"
    killed = subprocess.Popen(modegraph(*words), cwd=home, stderr=subprocess.DEVNULL)
    try:
        while killed.poll() is None and len(list(cells.glob("*.json"))) < 2:
            time.sleep(0.02)
    finally:
        killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    finished = {file: file.stat().st_mtime_ns for file in cells.glob("*.json")}
    assert 2 <= len(finished) < 9
    # The second run is in this process, which has already imported everything. It finishes, and reuses the cells of the killed run.
    monkeypatch.setattr("eval.run.run.run_matrix", partial(run_matrix, encoder=hash_encoder))
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    assert f"9 cells: {len(finished)} already filled, {9 - len(finished)} to fill" in done.stderr
    assert len(list(cells.glob("*.json"))) == 9
    assert finished == {file: file.stat().st_mtime_ns for file in finished}
    assert (home / "out" / "report.html").is_file()

"""Runs the sides of a contest in separate processes that take their steps in turn, so that a slowdown of the machine affects all alike.

A side waits for a line on standard input before each step and prints one after it; its last line is its result as JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from time import perf_counter, process_time

import torch
from transformers import TrainerCallback

from benchmarks.report import MIB, peak_mib

DONE = "step done"

Measurement = dict[str, float | list[float]]


class Stopwatch(TrainerCallback):
    """Wall-clock and processor seconds of each step of a trainer. It waits for a line before each step and prints one after it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.processor_seconds: list[float] = []

    def on_step_begin(self, *arguments: object, **keywords: object) -> None:
        sys.stdin.readline()
        synchronise()
        self.started = perf_counter(), process_time()

    def on_step_end(self, *arguments: object, **keywords: object) -> None:
        synchronise()
        self.seconds.append(perf_counter() - self.started[0])
        self.processor_seconds.append(process_time() - self.started[1])
        print(DONE, flush=True)


def measure_contests(
    script: str, contests: Sequence[Sequence[str]], options: Mapping[str, object], steps: int
) -> dict[str, Measurement]:
    """Every side of every contest, one contest after the other."""
    results = [measure_in_turn(script, contest, options, steps) for contest in contests]
    return {side: measurement for contest in results for side, measurement in contest.items()}


def measure_in_turn(
    script: str, sides: Sequence[str], options: Mapping[str, object], steps: int
) -> dict[str, Measurement]:
    """The result of each side of `script --measure SIDE --NAME VALUE …`, with the steps of the sides interleaved."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-P", script, "--measure", side, "--steps", str(steps), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for side in sides
    ]
    for _ in range(steps):
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
            while (line := process.stdout.readline()) and line.strip() != DONE:
                pass
    return {side: _result(side, process) for side, process in zip(sides, running, strict=True)}


def _result(side: str, process: "subprocess.Popen[str]") -> Measurement:
    """A side's last printed line as its result; SystemExit naming the side and its status if it failed or printed nothing."""
    printed = process.communicate()[0].splitlines()
    if process.returncode or not printed:
        raise SystemExit(
            f"side {side}: exit status {process.returncode} (negative: killed by that signal), or no result printed"
        )
    measurement: Measurement = json.loads(printed[-1])
    return measurement


def peak_mib_on(device: str) -> float:
    """Peak memory of this process in MiB; for "cuda" that of the GPU."""
    return torch.cuda.max_memory_allocated() / MIB if device == "cuda" else peak_mib()


def synchronise() -> None:
    """Wait for the GPU, if there is one, so that timings are correct."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def largest_gap(first: Measurement, second: Measurement) -> float:
    """The largest difference between two sides' losses at the same step."""
    return max(abs(a - b) for a, b in zip(first["losses"], second["losses"], strict=True))

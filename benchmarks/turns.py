"""Runs the training variants of a comparison in separate processes, one step of each in turn, so that a slow phase of the machine slows all of them.

Each process waits for a line on standard input before each step and prints a line after it; the last line that it prints is its result as JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import perf_counter, process_time

import torch
from transformers import TrainerCallback

from benchmarks.report import MIB, peak_mib

DONE = "step done"

Measurement = dict[str, float | list[float]]


class Stopwatch(TrainerCallback):
    """Wall-clock and processor seconds of each step of a trainer. The step waits for a line on standard input, and DONE is printed after it."""

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


def measure_comparisons(
    script: str, comparisons: Sequence[Sequence[str]], options: Mapping[str, object], steps: int
) -> dict[str, Measurement]:
    """The result of each variant; the comparisons run one after another, the variants of a comparison in turn."""
    results = [measure_in_turn(script, variants, options, steps) for variants in comparisons]
    return {variant: measurement for result in results for variant, measurement in result.items()}


def measure_in_turn(
    script: str, variants: Sequence[str], options: Mapping[str, object], steps: int
) -> dict[str, Measurement]:
    """The result that `script --measure VARIANT --steps STEPS --NAME VALUE …` prints for each variant, with the steps of all variants interleaved.
    If one fails, all are killed."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    running = {
        variant: subprocess.Popen(
            [sys.executable, "-P", script, "--measure", variant, "--steps", str(steps), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for variant in variants
    }
    try:
        for _ in range(steps):
            for variant, process in running.items():
                with suppress(BrokenPipeError):
                    process.stdin.write("go\n")
                    process.stdin.flush()
                while (line := process.stdout.readline()) and line.strip() != DONE:
                    pass
                if not line:
                    _result(variant, process)
        return {variant: _result(variant, process) for variant, process in running.items()}
    finally:
        for process in running.values():
            process.kill()


def _result(variant: str, process: "subprocess.Popen[str]") -> Measurement:
    """The last line that the process printed, as its result; SystemExit naming the variant if the process failed or printed nothing."""
    printed = process.communicate()[0].splitlines()
    if process.returncode or not printed:
        raise SystemExit(
            f"variant {variant}: exit status {process.returncode} (negative: killed by that signal), {len(printed)} lines printed; "
            "expected status 0 and a result as the last line: see the error output above"
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
    """The largest difference between the losses of two variants at the same step."""
    return max(abs(a - b) for a, b in zip(first["losses"], second["losses"], strict=True))

"""The output of most benchmarks: figures, and checks of them against targets, as text or as one JSON object."""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

MIB = 2**20


@dataclass(frozen=True)
class Check:
    """A figure and its target; with `at_least` the figure must be at least the target, else at most."""

    name: str
    value: float
    target: float
    at_least: bool

    @property
    def ok(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target


def new_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with a script's docstring as its help, and the option --json."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    return parser


def at_least(lowest: int) -> Callable[[str], int]:
    """The type of an option whose value is an integer of at least `lowest`."""

    def integer(text: str) -> int:
        if int(text) < lowest:
            raise argparse.ArgumentTypeError(f"{text}: expected at least {lowest}")
        return int(text)

    return integer


def print_report(name: str, figures: Mapping[str, float | str], checks: Sequence[Check], as_json: bool) -> int:
    """Print the figures and checks, and return the exit status: 1 if a check failed, else 0."""
    rows = [{**asdict(check), "ok": check.ok} for check in checks]
    if as_json:
        print(json.dumps({"name": name, "device": device(), "figures": dict(figures), "checks": rows}, indent=2))
    else:
        print(f"{name} on {device()}")
        for key, value in figures.items():
            print(f"  {key}: {value:,.4g}" if isinstance(value, float | int) else f"  {key}: {value}")
        for check in checks:
            sign = "≥" if check.at_least else "≤"
            print(f"  {'ok  ' if check.ok else 'MISS'} {check.name}: {check.value:,.4g} {sign} {check.target:,.4g}")
    return 0 if all(check.ok for check in checks) else 1


def peak_mib() -> float:
    """The peak resident memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def measure_in_process(script: str, *arguments: str) -> dict[str, Any]:
    """The figures that a script prints as JSON when called with --measure and the arguments, in a separate process."""
    call = [sys.executable, "-P", script, "--measure", *arguments]
    return dict(json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout))


def device() -> str:
    """The processor and the number of cores that this process may use."""
    info = Path("/proc/cpuinfo")
    models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()} × {len(os.sched_getaffinity(0))}"


def median_seconds(work: Callable[[], object], runs: int) -> float:
    """Median seconds of `runs` calls, after one that is not counted."""
    work()
    return median(seconds_of(work) for _ in range(runs))


def paired_seconds(ours: Callable[[], object], theirs: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median seconds of two tasks timed alternately, after one uncounted call of each, so that a machine that slows down slows both."""
    ours(), theirs()
    pairs = [(seconds_of(ours), seconds_of(theirs)) for _ in range(runs)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = perf_counter()
    work()
    return perf_counter() - started

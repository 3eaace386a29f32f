"""A study that is killed repeatedly, compared with the same study undisturbed: do both write the same results?

Run: python -P benchmarks/experiments/killed.py [--kills 4] [--seed 0] [--json] [--out DIR]. The study is a miniature of configs/eval/study-smollm2.yaml
with the tiny model: index, pairs, SFT, responses, MS, alignment, answers. It runs once undisturbed. Then it is started --kills times, and all its
processes are killed (SIGKILL) a random time after each start; a last start is left undisturbed. Rows, weights, answers, and the alignment figures
without times and paths are compared byte for byte.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import yaml

from benchmarks.report import Check, new_parser, print_report
from graph.shared.home import HOME
from graph.shared.ids import checksum

SYNTH_OPTIONS = "--questions {questions} --mode dense --top-k 2 --split train"
MAX_TOKENS_OPTION = "--max-answer-tokens 96"
STEPS = {
    "index/manifest.json": "index {documents} --out {to}/index",
    "pairs/summary.json": f"synth preferences {{to}}/index {SYNTH_OPTIONS} --out {{to}}/pairs",
    "tiny/run.json": "train tiny --config {configs}/tiny.yaml --set texts={documents} --set steps=250 --set output={to}/tiny",
    "sft/run.json": "train sft --config {configs}/sft.yaml --set model={to}/tiny --set data={to}/pairs --set max_steps=150 "
    "--set save_steps=25 --set output={to}/sft",
    "responses/summary.json": f"synth responses {{to}}/index {SYNTH_OPTIONS} --policy hf:{{to}}/sft --samples 6 {MAX_TOKENS_OPTION} --limit 6 "
    "--out {to}/responses",
    "ms/run.json": "train ms --config {configs}/ms.yaml --set model={to}/sft --set data={to}/responses "
    "--set 'rewards={{length: 1.0}}' --set batch_size=1 --set max_steps=6 --set save_steps=2 --set output={to}/ms",
    "alignment/alignment.json": f"eval alignment --data {{to}}/responses --samples 4 {MAX_TOKENS_OPTION} --split train --measured {{to}}/measured "
    "--runs {to}/ms --out {to}/alignment",
}
"""The output and the command of each step: the study's steps in miniature."""
ROWS = ("pairs/train.jsonl", "responses/train.jsonl", "report/values.jsonl")
WEIGHTS = ("tiny/model.safetensors", "sft/model.safetensors", "ms/model.safetensors")
TIMING_FIELD = re.compile(r'"(seconds|train_seconds)": [0-9.e-]+')
LOADING_S = 8.0
"""Seconds that a start spends on loading libraries, before any work."""


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/killed"))
    arguments = parser.parse_args()
    alone, killed = arguments.out / "alone", arguments.out / "killed"
    if alone.exists() or killed.exists():
        parser.error(f"argument --out: {arguments.out} contains a study. Delete it or name another folder")
    started = time.monotonic()
    run_to_its_end(write_study(alone))
    total = time.monotonic() - started
    interrupted = run_with_kills(write_study(killed), kill_delays(arguments.seed, arguments.kills, total))
    different = [name for name in (*ROWS, *WEIGHTS) if checksum(alone / name) != checksum(killed / name)]
    different += [] if figures_of(alone) == figures_of(killed) else ["alignment/alignment.json"]
    figures = {
        "seconds undisturbed": total,
        "killed in": ", ".join(interrupted),
        "different": ", ".join(different) or "none",
    }
    checks = [
        Check("files that differ", len(different), 0, at_least=False),
        Check("kills that interrupted the study", len(interrupted), arguments.kills, at_least=True),
    ]
    return print_report("killed", figures, checks, arguments.json)


def write_study(folder: Path) -> Path:
    """Write the study's configuration and Makefile, with all results in `folder`, and return the path of the Makefile."""
    folder.mkdir(parents=True)
    paths = {
        "to": folder.resolve(),
        "documents": HOME / "examples/documents",
        "questions": HOME / "examples/questions.jsonl",
        "configs": HOME / "configs/tiny",
    }
    study = {
        "tasks": {
            "examples": {
                "task": "examples",
                "source": str(paths["questions"]),
                "index": f"{paths['to']}/index",
                "split": "test",
                "limit": 6,
            }
        },
        "retrievers": {"dense": {"mode": "dense", "top_k": 2}, "hops": {"mode": "hops", "top_k": 2}},
        "models": {"SFT": f"hf:{paths['to']}/sft", "MS": f"hf:{paths['to']}/ms"},
        "metrics": ["f1", "em", "recall@5"],
        "baseline": "dense + SFT",
        "empty_answers": "wrong",
        "max_answer_tokens": 24,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    targets = [f"{paths['to']}/{output}" for output in STEPS]
    program = f"{sys.executable} -P -m modegraph"
    rules = [f"report: {targets[-1]}\n\t{program} eval run {paths['to']}/study.yaml --out {paths['to']}/report\n"]
    for target, before, run in zip(targets, ["", *targets], STEPS.values(), strict=False):
        rules.append(f"{target}: | {before}\n\t{program} {run.format(**paths)}\n")
    file = folder / "study.mk"
    file.write_text("\n".join(rules), encoding="utf-8")
    return file


def start(study: Path) -> subprocess.Popen[bytes]:
    """Start the study in a new session."""
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    with (study.parent / "log.txt").open("ab") as log:
        return subprocess.Popen(["make", "-f", study], env=environment, stdout=log, stderr=log, start_new_session=True)


def run_to_its_end(study: Path) -> None:
    """Run the study to its end; exit with the study's log if it fails."""
    if start(study).wait():
        sys.exit((study.parent / "log.txt").read_text(encoding="utf-8"))


def run_with_kills(study: Path, waits: Iterator[float]) -> list[str]:
    """Start the study once for each of `waits` and kill it after that many seconds, then run it to its end; return the steps that the kills interrupted."""
    interrupted = []
    for wait in waits:
        running = start(study)
        try:
            running.wait(wait)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            interrupted.append(next((output for output in STEPS if not (study.parent / output).exists()), "answers"))
    run_to_its_end(study)
    return interrupted


def kill_delays(seed: int, kills: int, total: float) -> Iterator[float]:
    """Seconds after which each start is killed: LOADING_S plus a random 50 to 100 % of total / (kills + 1), so that the kills spread over the whole study."""
    rng = random.Random(seed)
    yield from (rng.uniform(0.5, 1.0) * total / (kills + 1) + LOADING_S for _ in range(kills))


def figures_of(folder: Path) -> str:
    """The text of the alignment report, without times and paths."""
    return TIMING_FIELD.sub("", (folder / "alignment/alignment.json").read_text(encoding="utf-8")).replace(
        str(folder), ""
    )


if __name__ == "__main__":
    sys.exit(main())

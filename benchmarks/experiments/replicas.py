"""The gain from a second replica when the model is the bottleneck: answers per second of two servers that share an index, as a multiple of one server's.

Run: python -P benchmarks/experiments/replicas.py [--rounds 5] [--json]. Setup: an index of examples/, the default encoder, and the stub engine
of benchmarks/stub_engine.py, which takes TOKENS × STUB_TOKEN_S seconds per answer (leave MODEGRAPH_VLLM_PYTHON unset). Each server always
has as many requests in flight as it processes concurrently.
"""

import asyncio
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.report import Check, new_parser, print_report
from benchmarks.serve import ROOT, Engine, engine, example_index, run_all, server
from benchmarks.stub_engine import STUB_TOKEN_S
from graph.documents.questions import read_questions

TOKENS, QUESTIONS_PER_REPLICA = 100, 24
MIN_SPEEDUP = 1.8


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="modegraph-bench-") as scratch:
        rates = asyncio.run(measure(example_index(Path(scratch) / "index"), Path(scratch), options.rounds))
    speedup = median(both / one for one, both in rates)
    figures = {
        "engine time per answer, s": TOKENS * STUB_TOKEN_S,
        "answers per second, one replica": median(one for one, _ in rates),
        "answers per second, two replicas": median(both for _, both in rates),
        "rounds": len(rates),
    }
    return print_report(
        "replicas", figures, [Check("rate of two / rate of one", speedup, MIN_SPEEDUP, at_least=True)], options.json
    )


async def measure(index: Path, scratch: Path, rounds: int) -> list[tuple[float, float]]:
    """Answers per second of one replica and of two, round by round."""
    async with engine(None, scratch) as bare, server(index, bare) as (first, _), server(index, bare) as (second, _):
        await combined_rate([first, second], -1)
        return [
            (await combined_rate([first], turn), await combined_rate([first, second], turn)) for turn in range(rounds)
        ]


async def combined_rate(replicas: list[Engine], turn: int) -> float:
    """Answers per second of all replicas together, each with QUESTIONS_PER_REPLICA questions that it has not answered before."""
    rates = [run_all(replica, bodies(f" {'?' * (turn + 2)} {len(replicas)}")) for replica in replicas]
    return sum(await asyncio.gather(*rates))


def bodies(ending: str) -> list[dict[str, Any]]:
    """Requests with questions from examples/, each question with an ending that no server has in its cache."""
    questions = read_questions(ROOT / "examples" / "questions.jsonl")[:QUESTIONS_PER_REPLICA]
    return [
        {"messages": [{"role": "user", "content": question.text + ending}], "max_tokens": TOKENS}
        for question in questions
    ]


if __name__ == "__main__":
    sys.exit(main())

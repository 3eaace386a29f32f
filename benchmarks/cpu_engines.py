"""CPU engines for a language model: start-up time, speed of reading prompts and of generation (one request, and eight concurrent ones), memory, agreement.

Run: python -P benchmarks/cpu_engines.py [--model qwen2.5-coder-0.5b] [--answers 100] [--specs hf gguf …] [--json]. A prompt
contains about 350 words of the documents in examples/, those with evidence first, and requests the answer form `reasoned`. Speeds are measured on
prompts that ask for a summary of the passages, `agreement` on the questions in examples/. Each engine runs in a separate process; vLLM is included if
MODEGRAPH_VLLM_PYTHON names its Python. `gguf` is the catalogue's file; gguf-q8_0 and gguf-bf16 are written from the converted weights first.
`agreement` is the share of greedy answers (24 tokens at most) equal to those of hf.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psutil

from benchmarks.report import MIB, Check, measure_in_process, new_parser, print_report
from graph.answer.prompt import answer_messages
from graph.types import CompletionRequest, Excerpt, Message

SPECS = ("hf", "gguf", "gguf-q8_0", "gguf-bf16", "openvino", "vllm")
WORDS, TOKENS, LONG_TOKENS, RUNS, CONCURRENT_REQUESTS = 350, 24, 144, 6, 8
MAX_S, MAX_MIB = 2.0, 1536


def prompts(number: int, question: str = "") -> list[tuple[Message, ...]]:
    """Up to `number` prompts about the documents, in a fixed order; each asks a different question of examples/, or all ask `question` if it is given."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in sorted((ROOT / "examples/documents").glob("*.md"))}
    names, chats = list(texts), []
    for row_number, line in enumerate((ROOT / "examples/questions.jsonl").read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        gold = [name for name in row["gold_ids"] if name in texts]
        others = [names[(7 * row_number + step) % len(names)] for step in range(4)]
        words = " ".join(texts[name] for name in dict.fromkeys([*gold, *others])).split()[:WORDS]
        thirds = [" ".join(words[start : start + WORDS // 3]) for start in range(0, WORDS, WORDS // 3)][:3]
        excerpts = [Excerpt(str(n), "", text) for n, text in enumerate(thirds)]
        chats.append(answer_messages(question or row["question"], excerpts))
        if len(chats) == number:
            break
    return chats


def measure(spec: str, answers: int) -> dict[str, Any]:
    """The figures of one engine, which runs in this process and its child processes."""
    started = perf_counter()
    from serve.engines import open_engine

    model = open_engine(spec)
    model.complete([CompletionRequest((Message("user", "What is the capital of France?"),), 4)])
    figures: dict[str, Any] = {"start_s": perf_counter() - started}
    chats = prompts(4 * RUNS + 2 * CONCURRENT_REQUESTS, "Summarise the passages in detail.")
    model.complete([CompletionRequest(chats.pop(), TOKENS)])
    reading, writing, request_s = [], [], []
    for _ in range(RUNS):
        request = CompletionRequest(chats.pop(), 1)
        begun = perf_counter()
        tokens = model.complete([request])[0].prompt_tokens
        reading.append(tokens / (perf_counter() - begun))
        lengths, seconds = [], []
        for most in (TOKENS, LONG_TOKENS):
            begun = perf_counter()
            lengths.append(model.complete([CompletionRequest(chats.pop(), most)])[0].completion_tokens)
            seconds.append(perf_counter() - begun)
        request_s.append(seconds[0])
        writing.append((lengths[1] - lengths[0]) / (seconds[1] - seconds[0]))
    begun = perf_counter()
    completions = model.complete([CompletionRequest(chats.pop(), TOKENS) for _ in range(CONCURRENT_REQUESTS)])
    together = perf_counter() - begun
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    figures |= {
        "prompt_tokens": tokens,
        "read_tokens_a_second": median(reading),
        "written_tokens_a_second": median(writing),
        "request_s": median(request_s),
        "request_of_8_s": together / CONCURRENT_REQUESTS,
        "written_tokens_a_second_8_requests": sum(completion.completion_tokens for completion in completions)
        / together,
        "resident_mib": sum(process.memory_info().rss for process in processes) / MIB,
    }
    requests = [CompletionRequest(chat, TOKENS) for chat in prompts(answers)]
    begun = perf_counter()
    figures["answers"] = [completion.text for completion in model.complete(requests)] if answers else []
    figures["answers_s"] = perf_counter() - begun
    return figures


def convert_to_gguf(name: str, kind: str, folder: Path) -> Path:
    """Write the converted weights of a catalogue model as GGUF of type `kind`, and return the file."""
    from train.export.gguf import write_gguf
    from train.model.load import load_model, load_tokenizer

    file = folder / f"{name}-{kind}.gguf"
    write_gguf(load_model(name, "bfloat16"), load_tokenizer(name), file, kind, name)  # type: ignore[arg-type]
    return file


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--specs", nargs="+", choices=SPECS, default=SPECS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.answers)))
        return 0
    kinds = [kind for kind in arguments.specs if kind != "vllm" or os.environ.get("MODEGRAPH_VLLM_PYTHON")]
    if not kinds:
        parser.error("argument --specs: vllm needs MODEGRAPH_VLLM_PYTHON. Set it to the path of vLLM's Python")
    figures: dict[str, float | str] = {}
    answers: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            spec = f"{kind}:{arguments.model}"
            if kind.startswith("gguf-"):
                spec = f"gguf:{convert_to_gguf(arguments.model, kind.removeprefix('gguf-'), Path(folder))}"
            measured = measure_in_process(__file__, spec, "--answers", str(arguments.answers))
            answers[kind] = measured.pop("answers")
            figures |= {f"{kind}: {name}": round(value, 3) for name, value in measured.items()}
            print(f"{kind}: {measured}", file=sys.stderr, flush=True)
    reference = answers.get("hf", [])
    for kind in answers if reference else ():
        same = sum(answer == other for answer, other in zip(answers[kind], reference, strict=True))
        figures[f"{kind}: agreement"] = same / len(reference)
    best = min((key for key in figures if key.endswith(": request_s")), key=lambda key: float(figures[key]))
    kind = best.partition(":")[0]
    checks = [
        Check(f"a request of {TOKENS} tokens, {kind}, s", float(figures[best]), MAX_S, at_least=False),
        Check(f"resident, {kind}, MiB", float(figures[f"{kind}: resident_mib"]), MAX_MIB, at_least=False),
    ]
    return print_report(f"CPU engines, {arguments.model}", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""Does a verifier that reads a question with its answer judge better than the reader whether passages answer the question?

    python -P benchmarks/experiments/read_verify.py read DATA OUT --sets reading/squad2_train10:dev=240 hotpotqa_train=77
    python -P benchmarks/experiments/read_verify.py figures OUT

`read` writes a file of rows for each set: the reader's answer when the refusal's first token is banned, the margin of that token over all others (above 0,
the reader refuses), and each verifier's log-odds that the cited passages support "question answer". For a set whose name ends in `!`, the reader gets only
distractors, so it should refuse every question. Sets that are already in OUT are skipped.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessorList

from data_synth.reading.sets import read_set
from eval.reading import ReadingTask, over_distractors, over_gold, pick_questions, score_text
from eval.support import auc
from graph.answer.citations import own_citations, short_answer
from graph.answer.model_verifier import support_prompt, torch_log_odds
from graph.answer.prompt import NOT_FOUND, answer_messages
from graph.answer.support import POLAR
from graph.answer.template import prompt_ids
from graph.models.load import load_for_inference
from graph.shared.console import track
from graph.shared.jsonl import read_jsonl, write_jsonl
from serve.engines.hf import LogitBiasProcessor

EXCLUDED = -1e4
TOKENS = 40
DROPPED_AT = -1.97
"""Approximate log-odds below which `--unsupported drop` would drop an answer."""
Floats64 = NDArray[np.float64]


def tasks_of(data: Path, spec: str) -> tuple[str, list[ReadingTask]]:
    """A set's name and tasks: FOLDER[:SPLIT][!]=LIMIT."""
    folder, limit = spec.split("=")
    bare, bang = folder.rstrip("!"), folder.endswith("!")
    path, _, split = bare.partition(":")
    source = read_set(data / path)
    drawn = pick_questions(source, split or None, int(limit), 0)
    return folder.replace("/", "-"), (over_distractors if bang else over_gold)(source, drawn, 3, 0)


@torch.inference_mode()
def read(task: ReadingTask, reader: Any, tokenizer: Any, refusal: int) -> tuple[float, str]:
    """The margin of the refusal's first token and the greedy answer without that token."""
    ids = prompt_ids(tokenizer, answer_messages(task.question.text, task.excerpts, "cited"))
    out = reader.generate(
        input_ids=torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=TOKENS,
        logits_processor=LogitsProcessorList([LogitBiasProcessor({refusal: EXCLUDED})]),
        return_dict_in_generate=True,
        output_logits=True,
        pad_token_id=tokenizer.pad_token_id,
    )
    first_V = out.logits[0][0].float()
    others_V = first_V.clone()
    others_V[refusal] = -torch.inf
    text = tokenizer.decode(out.sequences[0, len(ids) :], skip_special_tokens=True).strip()
    return float(first_V[refusal] - others_V.max()), text


def rows_of(tasks: Sequence[ReadingTask], name: str, models: Sequence[tuple[Any, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each task; the first of `models` reads, the others judge."""
    (reader, reader_tokenizer), *judges = models
    refusal = reader_tokenizer(NOT_FOUND, add_special_tokens=False)["input_ids"][0]
    for task in track(tasks, name, len(tasks)):
        margin, text = read(task, reader, reader_tokenizer, refusal)
        answer, score = short_answer(text), score_text(task, text).score
        cited = [task.excerpts[number - 1] for number in own_citations(text, len(task.excerpts)).existing]
        context = [(each.title, each.text) for each in cited or task.excerpts]
        prompt = support_prompt(context, f"{task.question.text} {answer}")
        yield {
            "id": task.question.id,
            "question": task.question.text,
            "answers": list(task.question.answers),
            "text": text,
            "polar": answer.casefold().strip(" .") in POLAR,
            "margin": margin,
            "odds": [float(torch_log_odds(*judge, [prompt])[0]) for judge in judges],
            **asdict(score),
        }


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How well each signal separates answerable from unanswerable questions, and right answers from all others, and which questions would be refused by it."""
    answerable = np.array([bool(row["answers"]) for row in rows])
    right = np.array([row["exact"] > 0 for row in rows]) & answerable
    signals = {"margin": -np.array([row["margin"] for row in rows])}
    for at in range(len(rows[0]["odds"])):
        odds = np.array([row["odds"][at] for row in rows])
        signals |= {
            f"{at}": odds,
            f"{at} + margin": odds + signals["margin"],
            f"{at} + margin / 2": odds + signals["margin"] / 2,
        }
    refused = signals["margin"] < 0
    keeps = {
        f"{name}, as many refused": is_among_best(signal, int(np.sum(~refused))) for name, signal in signals.items()
    }
    for at in range(len(rows[0]["odds"])):
        polar = np.array([row["polar"] for row in rows])
        keeps[f"{at}, dropped by the verifier"] = ~refused & (polar | (signals[f"{at}"] > DROPPED_AT))
    return {
        "questions": len(rows),
        "answerable": int(answerable.sum()),
        "auc_answerable": {name: auc_of(signal, answerable) for name, signal in signals.items()},
        "auc_right": {name: auc_of(signal, right) for name, signal in signals.items()},
        **{
            name: {
                "exact": share(right & keep, answerable),
                "refused_answerable": share(~keep, answerable),
                "refused_unanswerable": share(~keep, ~answerable),
            }
            for name, keep in keeps.items()
        },
    }


def is_among_best(signal_n: Floats64, count: int) -> NDArray[np.bool_]:
    """Whether each value is among the `count` highest; ties go to the earlier ones."""
    best_n = np.zeros(len(signal_n), bool)
    best_n[np.argsort(-signal_n, kind="stable")[:count]] = True
    return best_n


def auc_of(signal_n: Floats64, positive_n: NDArray[np.bool_]) -> float | None:
    """The AUC; None if all or none are positive."""
    return auc(signal_n, positive_n) if 0 < positive_n.sum() < len(positive_n) else None


def share(what_n: NDArray[np.bool_], among_n: NDArray[np.bool_]) -> float | None:
    """The share of those `among_n` that are `what_n`; None if there are none."""
    return float(what_n[among_n].mean()) if among_n.any() else None


def main() -> None:
    """Run the command; both print the figures of all files in OUT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    reading, printing = commands.add_parser("read"), commands.add_parser("figures")
    reading.add_argument("data", type=Path)
    for command in (reading, printing):
        command.add_argument("out", type=Path)
    reading.add_argument("--sets", nargs="+", required=True)
    reading.add_argument("--reader", default="reader")
    reading.add_argument("--verifiers", nargs="+", default=["support"])
    options = parser.parse_args()
    if options.command == "read":
        options.out.mkdir(exist_ok=True)
        pairs = [load_for_inference(each)[:2] for each in (options.reader, *options.verifiers)]
        models = [(model.merge_and_unload().eval(), tokenizer) for model, tokenizer in pairs]
        for spec in options.sets:
            name, tasks = tasks_of(options.data, spec)
            file = options.out / f"{name}.jsonl"
            if not file.exists():
                write_jsonl(file, list(rows_of(tasks, name, models)))
    for file in sorted(options.out.glob("*.jsonl")):
        print(file.stem, json.dumps(figures([row for _, row in read_jsonl(file)]), indent=1))


if __name__ == "__main__":
    main()

"""Does a verifier choose a better answer among several samples than greedy decoding gives?

    python -P benchmarks/experiments/best_of.py read DATA OUT --sets reading/squad2_train10:dev=120 hotpotqa_train:test=77
    python -P benchmarks/experiments/best_of.py figures OUT

`read` writes a file of rows for each set (FOLDER[:SPLIT]=LIMIT, gold passages among three distractors): the reader's greedy answer, its sampled answers
and, for each distinct answer, how often it was sampled and the verifier's log-odds that the cited passages support "question answer". `figures` prints
the exact matches of answerable questions: greedy, by majority, and by log(share of the samples) + weight · log-odds, on questions that the greedy
answer does not refuse. Sets that are already in OUT are skipped.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_synth.reading.sets import read_set
from data_synth.responses.responses import response_seed
from eval.reading import ReadingTask, gold_tasks, pick_questions, score_text
from eval.statistics import bootstrap_difference
from graph.answer.citations import own_citations, short_answer
from graph.answer.model_verifier import open_model_verifier, support_prompt
from graph.answer.prompt import ANSWER_TOKENS, answer_messages
from graph.answer.support import POLAR, can_be_checked
from graph.shared.console import track
from graph.shared.jsonl import read_jsonl, write_jsonl
from graph.types import CompletionRequest
from serve.engines import open_model

SAMPLES = 8
WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0)
UNCHECKED = 0.0
"""Log-odds of answers that a verifier does not check: yes and no."""


def tasks_of(data: Path, spec: str) -> tuple[str, list[ReadingTask]]:
    """A set's name and tasks: FOLDER[:SPLIT]=LIMIT."""
    folder, _, limit = spec.partition("=")
    path, _, split = folder.partition(":")
    source = read_set(data / path)
    drawn = pick_questions(source, split or None, int(limit), 0)
    return folder.replace("/", "-"), gold_tasks(source, drawn, 3, 0)


def rows_of(name: str, tasks: Sequence[ReadingTask], reader: str, verifier: str) -> Iterator[dict[str, Any]]:
    """One row for each task: its candidates, the greedy answer first."""
    model, log_odds = open_model(reader), open_model_verifier(verifier).log_odds
    for task in track(tasks, name, len(tasks)):
        messages = answer_messages(task.question.text, task.excerpts, model.form)
        sampled = [
            CompletionRequest(
                messages, ANSWER_TOKENS[model.form], 1.0, seed=response_seed(0, (task.question.id,), number)
            )
            for number in range(SAMPLES)
        ]
        greedy, *samples = (
            each.text.strip()
            for each in model.complete([CompletionRequest(messages, ANSWER_TOKENS[model.form]), *sampled])
        )
        texts: dict[str, list[str]] = {}
        for text in (greedy, *samples):
            texts.setdefault(short_answer(text).casefold().strip(" ."), []).append(text)
        candidates = []
        for answer, group in texts.items():
            cited = [task.excerpts[number - 1] for number in own_citations(group[0], len(task.excerpts)).existing]
            context = [(each.title, each.text) for each in cited or task.excerpts]
            claim = f"{task.question.text} {short_answer(group[0])}"
            score = score_text(task, group[0]).score
            checked = answer not in POLAR and not score.refuses and can_be_checked(claim)
            odds = float(log_odds([support_prompt(context, claim)])[0]) if checked else UNCHECKED
            votes = len(group) - (group[0] == greedy)
            candidates.append(
                {"text": group[0], "votes": votes, "odds": odds, "exact": score.exact, "refuses": score.refuses}
            )
        yield {"id": task.question.id, "answerable": task.question.is_answerable, "candidates": candidates}


def choose(row: dict[str, Any], weight: float | None) -> dict[str, Any]:
    """The candidate with the highest score; the greedy one if it refuses, or without a weight. A greedy answer that was never sampled has half a vote."""
    greedy, *_ = candidates = row["candidates"]
    if weight is None or greedy["refuses"]:
        return dict(greedy)
    answers = [each for each in candidates if not each["refuses"]]
    return dict(max(answers, key=lambda each: math.log(max(each["votes"], 0.5)) + weight * each["odds"]))


def main() -> None:
    """Parse, read, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("read", "figures"))
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--reader", default="openvino:reader")
    parser.add_argument("--verifier", default="support")
    options = parser.parse_args()
    if options.what == "read":
        options.out.mkdir(exist_ok=True)
        for spec in options.sets:
            name, tasks = tasks_of(options.data, spec)
            if not (file := options.out / f"{name}.jsonl").exists():
                write_jsonl(file, list(rows_of(name, tasks, options.reader, options.verifier)))
    for file in sorted((options.out or options.data).glob("*.jsonl")):
        rows = [row for _, row in read_jsonl(file) if row["answerable"]]
        exact = {weight: [choose(row, weight)["exact"] for row in rows] for weight in (None, *WEIGHTS)}
        best = [max(each["exact"] for each in row["candidates"]) for row in rows]
        print(file.stem, len(rows), "greedy", sum(exact[None]) / len(rows), "any candidate", sum(best) / len(rows))
        for weight in WEIGHTS:
            print("  weight", weight, sum(exact[weight]) / len(rows), bootstrap_difference(exact[weight], exact[None]))


if __name__ == "__main__":
    main()

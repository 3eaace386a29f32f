"""A threshold for refusals, set after training: a constant added to the logit of the refusal's first token.

    python -P benchmarks/experiments/refusal_shift.py TUNE DOCUMENTS --questions 60 --out shift.json

TUNE is an output folder of `modegraph tune`, DOCUMENTS are its documents. Both models read questions of the training part over passages with and
without their answer, and the run's test questions. A question's margin is the logit of the refusal's first token less the largest other logit;
greedy decoding refuses if the margin is above 0. The answer is decoded without that token, so that one pass gives the figures for every constant.
The constant is chosen so that the tuned model refuses as many answerable training questions as the untuned model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
from transformers import LogitsProcessorList

from eval.reading import ReadingAnswer, ReadingTask, over_distractors, over_gold, pick_questions, score_text
from eval.support import auc
from graph.answer.prompt import NOT_FOUND, answer_messages
from graph.config import parse_settings
from graph.shared.console import track
from modegraph.arguments import documents_of, skip_log
from modegraph.indexes import LIMITS
from modegraph.tuning.gate import AnswerPair, judge
from modegraph.tuning.settings import TuneSettings
from modegraph.tuning.steps import DISTRACTORS, GENERAL, HELD_OUT, UNANSWERED, Tuning, general_set
from modegraph.tuning.tune import PLAN, read_json, read_plan
from serve.engines.hf import LogitBiasProcessor
from train.model.load import load_policy

WITH_ANSWER, WITHOUT_ANSWER = "training, with the answer", "training, without the answer"
EXCLUDED = -1e4
TOKENS = 64


@dataclass(frozen=True)
class Reading:
    """A model's reading of a question: the margin, and the answer without the refusal's first token (for training questions only one token)."""

    task: ReadingTask
    margin: float
    text: str

    def answer(self, shift: float) -> ReadingAnswer:
        """The scored answer with a constant added to the margin."""
        return score_text(self.task, NOT_FOUND if self.margin + shift > 0 else self.text)


def main() -> int:
    """Parse, read, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tune", type=Path)
    parser.add_argument("documents")
    parser.add_argument("--model", help="another model in place of the tuned one")
    parser.add_argument("--untuned", type=Path, help="an earlier --out, to reuse its readings of the untuned model")
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    settings = parse_settings(TuneSettings, read_json(options.tune / PLAN)["settings"], "plan")
    documents = list(documents_of(options.documents, LIMITS, skip_log()))
    tuning = Tuning(settings, documents, general_set(settings, documents), read_plan(options.tune), options.tune)
    tasks = tasks_of(tuning, options.questions)
    tuned = options.model or tuning.tuned_model
    untuned = load_readings(options.untuned, tasks) if options.untuned else read_all(tuning.settings.model, tasks)
    readings = {"untuned": untuned, "tuned": read_all(tuned, tasks)}
    options.out.write_text(json.dumps({"figures": figures(readings), "rows": rows(readings)}, indent=1))
    print(json.dumps(figures(readings), indent=1))
    return 0


def load_readings(file: Path, tasks: Mapping[str, Sequence[ReadingTask]]) -> dict[str, list[Reading]]:
    """The untuned model's readings in an earlier file."""
    rows = [row for row in json.loads(file.read_text())["rows"] if row["model"] == "untuned"]
    found = {name: [row for row in rows if row["set"] == name] for name in tasks}
    return {
        name: [Reading(task, row["margin"], row["text"]) for task, row in zip(set_tasks, found[name], strict=True)]
        for name, set_tasks in tasks.items()
    }


def tasks_of(tuning: Tuning, questions: int) -> dict[str, list[ReadingTask]]:
    """The test questions by set, and training questions over passages with and without their answer."""
    source, seed = tuning.training_questions(), tuning.settings.seed
    drawn = pick_questions(source, None, questions, seed)
    return {
        WITH_ANSWER: over_gold(source, drawn, DISTRACTORS, seed),
        WITHOUT_ANSWER: over_distractors(source, drawn, DISTRACTORS, seed),
        **tuning.tasks(),
    }


@torch.no_grad()
def read_all(source: str, tasks: Mapping[str, Sequence[ReadingTask]]) -> dict[str, list[Reading]]:
    """Margins and answers of a model in bfloat16."""
    model, tokenizer = load_policy(source, "bfloat16")
    model = model.to(torch.bfloat16)  # an adapter's weights too, as in the engine
    refusal = tokenizer(NOT_FOUND, add_special_tokens=False)["input_ids"][0]
    found: dict[str, list[Reading]] = {}
    for name, set_tasks in tasks.items():
        found[name] = []
        for task in track(set_tasks, f"{source}, {name}", len(set_tasks)):
            chat = [asdict(message) for message in answer_messages(task.question.text, task.excerpts, "cited")]
            prompt = tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            out = model.generate(
                **prompt,
                do_sample=False,
                max_new_tokens=1 if name in (WITH_ANSWER, WITHOUT_ANSWER) else TOKENS,
                logits_processor=LogitsProcessorList([LogitBiasProcessor({refusal: EXCLUDED})]),
                return_dict_in_generate=True,
                output_logits=True,
                pad_token_id=tokenizer.pad_token_id,
            )
            first_V = out.logits[0][0].float()
            others = first_V.clone()
            others[refusal] = -torch.inf
            text = tokenizer.decode(out.sequences[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
            found[name].append(Reading(task, float(first_V[refusal] - others.max()), text.strip()))
    return found


def figures(readings: Mapping[str, Mapping[str, Sequence[Reading]]]) -> dict[str, Any]:
    """The constant; each set's figures for both models, and for the tuned one with the constant; the gate's verdicts on the tuned one without and with it."""
    shift = shift_like(readings["untuned"][WITH_ANSWER], readings["tuned"][WITH_ANSWER])
    arms = {"untuned": ("untuned", 0.0), "tuned": ("tuned", 0.0), "tuned, shifted": ("tuned", shift)}
    answers = {
        arm: {name: [each.answer(by) for each in set_readings] for name, set_readings in readings[model].items()}
        for arm, (model, by) in arms.items()
    }
    verdicts = {}
    for arm in ("tuned", "tuned, shifted"):
        pairs = {name: AnswerPair(answers["untuned"][name], answers[arm][name]) for name in answers[arm]}
        gate = judge(pairs[HELD_OUT], pairs.get(UNANSWERED), pairs.get(GENERAL), 0)
        verdicts[arm] = {"passed": gate.passed, **{check.what: check.found for check in gate.checks}}
    return {
        "shift": shift,
        "separation": {
            model: separation(sets[HELD_OUT], sets[UNANSWERED])
            for model, sets in readings.items()
            if UNANSWERED in sets
        },
        "sets": {
            arm: {name: measures(set_answers) for name, set_answers in sets.items()} for arm, sets in answers.items()
        },
        "gate": verdicts,
    }


def shift_like(untuned: Sequence[Reading], tuned: Sequence[Reading]) -> float:
    """The constant that puts as many tuned margins above 0 as there are untuned ones above 0: the negative midpoint of two neighbouring tuned margins."""
    refused = sum(each.margin > 0 for each in untuned)
    margins = sorted((each.margin for each in tuned), reverse=True)
    margins = [margins[0] + 2, *margins, margins[-1] - 2]
    return -(margins[refused] + margins[refused + 1]) / 2


def separation(answerable: Sequence[Reading], unanswerable: Sequence[Reading]) -> float:
    """The share of pairs of an unanswerable and an answerable question in which the first has the larger margin (AUC)."""
    margins = np.array([each.margin for each in (*unanswerable, *answerable)])
    return auc(margins, np.arange(len(margins)) < len(unanswerable))


def measures(answers: Sequence[ReadingAnswer]) -> dict[str, float]:
    """Means over a set."""
    return {
        "n": len(answers),
        "F1": fmean(answer.score.f1 for answer in answers),
        "EM": fmean(answer.score.exact for answer in answers),
        "refused": fmean(answer.score.refuses for answer in answers),
    }


def rows(readings: Mapping[str, Mapping[str, Sequence[Reading]]]) -> list[dict[str, Any]]:
    """Every reading, as rows of the --out file."""
    return [
        {
            "model": model,
            "set": name,
            "id": each.task.question.id,
            "question": each.task.question.text,
            "answers": each.task.question.answers,
            "margin": each.margin,
            "text": each.text,
            "f1": score_text(each.task, each.text).score.f1,
        }
        for model, sets in readings.items()
        for name, set_readings in sets.items()
        for each in set_readings
    ]


if __name__ == "__main__":
    raise SystemExit(main())

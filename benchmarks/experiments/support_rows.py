"""Rows that teach a model to say whether passages support a sentence, and the figures of a model that judges so by the odds of “yes” against “no”.

Sentences of public sets (folders of `support/`), and of the questions of reading sets, "question answer" with the answer that people gave (supported) or with another one
of the same passage (not supported). Claims about one context are adjacent, so that training reads the context once.

    python -P benchmarks/experiments/support_rows.py rows DATA OUT --sets summedits bump q2_wow
    python -P benchmarks/experiments/support_rows.py judge DATA MODEL --sets fever_dev --limit 300 --json FILE
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import numpy as np
import torch

from data_synth.reading.reading_rows import contains_answer, words_of
from data_synth.reading.sets import ReadingQuestion, ReadingSet, read_set
from data_synth.rows import message_to_json
from graph.answer.labelled import SupportRow, support_row
from graph.answer.overlap import overlaps
from graph.answer.verifier import Ground, judge_claims, open_verifier
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl, write_jsonl
from graph.text.prompting import quote, read_prompt
from graph.types import Message

READING_SETS = ("squad_ctx", "squad2_train10", "nq_open_oracle", "covidqa", "hotpot_train")
MOST_WORDS = 600
"""Contexts with more words are left out of training."""
MOST_CLAIMS = 8
"""Claims about one context of a reading set."""
MOST_OF_A_CONTEXT = 16
"""Claims about one context of a set of sentences."""
BATCH_TOKENS = 2_048


def prompt_of(passages: Sequence[tuple[str, str]], claim: str) -> tuple[Message, ...]:
    """The chat that asks whether passages, each a title and a text, support a claim."""
    parts = [
        "\n".join(
            [
                *([f"Title: {json.dumps(quote(title), ensure_ascii=False)}"] if title else []),
                f"Passage: {json.dumps(quote(text), ensure_ascii=False)}",
            ]
        )
        for title, text in passages
    ]
    sentence = f"Sentence: {json.dumps(quote(claim), ensure_ascii=False)}"
    return Message("system", read_prompt("graph/support.txt")), Message("user", "\n\n".join([*parts, sentence]))


def row_of(context: str, passages: Sequence[tuple[str, str]], claim: str, supported: bool) -> dict[str, Any]:
    """A row of `train sft`."""
    completion = "yes" if supported else "no"
    return {
        "prompt": [message_to_json(message) for message in prompt_of(passages, claim)],
        "completion": completion,
        "answers": [completion],
        "context_ids": [context],
    }


def read_rows(folder: Path) -> list[SupportRow]:
    """The labelled sentences of one set."""
    return [support_row(row, str(line)) for line, row in read_jsonl(folder / "rows.jsonl")]


def groups_of_set(folder: Path, split: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of one split of a set, by context, with as many supported as unsupported ones of a context as it has, up to MOST_OF_A_CONTEXT."""
    by_context: defaultdict[tuple[str, ...], list[SupportRow]] = defaultdict(list)
    for row in read_rows(folder):
        if row.split == split:
            by_context[row.passages].append(row)
    for passages, rows in by_context.items():
        if sum(len(text.split()) for text in passages) <= MOST_WORDS:
            context = content_id(folder.name, *passages)
            chosen = Random(context).sample(rows, min(len(rows), MOST_OF_A_CONTEXT))
            quoted = [("", text) for text in passages]
            yield [row_of(context, quoted, row.claim, row.supported) for row in chosen]


def shape(answer: str) -> str:
    """What an answer looks like: "number", "name" or "words"."""
    return "number" if re.search(r"\d", answer) else "name" if re.search(r"\b[A-Z]", answer) else "words"


def groups_of_reading(source: ReadingSet, split: str) -> Iterator[list[dict[str, Any]]]:
    """Claims of a reading set, "question answer", by gold passages: the answer as given, and another one of the same passages."""
    by_gold: defaultdict[tuple[str, ...], list[ReadingQuestion]] = defaultdict(list)
    for question in source.questions:
        if question.split == split and question.gold_ids and not question.is_yes_no:
            by_gold[question.gold_ids].append(question)
    for gold, questions in by_gold.items():
        answers = [each.answers[0] for each in questions if each.answers]
        passages = [(source.passages[each].title, source.passages[each].text) for each in gold]
        rng, context, rows = Random("".join(gold)), content_id(source.name, *gold), []
        for question in rng.sample(questions, min(len(questions), MOST_CLAIMS // 2)):
            right = question.answers[0] if question.answers else None
            wrong = [each for each in answers if not any(_alike(each, other) for other in question.answers)]
            wrong = [each for each in wrong if shape(each) == shape(right or each)] or wrong
            wrong = wrong or _others(passages, question)
            if right is not None and wrong:
                rows.append(row_of(context, passages, f"{question.text} {right}", True))
            if wrong:
                rows.append(row_of(context, passages, f"{question.text} {rng.choice(wrong)}", False))
        if len(rows) > 1:
            rng.shuffle(rows)
            yield rows


_NAMES = re.compile(r"\b(?:[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*|\d[\d,.]*\d)")


def _others(passages: Sequence[tuple[str, str]], question: ReadingQuestion) -> list[str]:
    """Names and numbers of the passages, of the shape of the question's answer, that are not in the question."""
    found = {name for _, text in passages for name in _NAMES.findall(text)}
    wanted = shape(question.answers[0]) if question.answers else "name"
    return sorted(
        name
        for name in found
        if shape(name) == wanted
        and not contains_answer(name, words_of(question.text))
        and not any(_alike(name, other) for other in question.answers)
    )


def _alike(one: str, other: str) -> bool:
    return contains_answer(one, words_of(other)) or contains_answer(other, words_of(one))


def write_rows(data: Path, out: Path, sets: Sequence[str], shares: dict[str, int]) -> None:
    """train.jsonl and dev.jsonl in `out`; of a set in `shares`, so many contexts."""
    out.mkdir(parents=True, exist_ok=True)
    for split, names in (("train", ("train", "train")), ("dev", ("val", "dev"))):
        groups: list[list[dict[str, Any]]] = []
        for name in (*sets, *READING_SETS):
            folder = data / ("support" if name in sets else "reading") / name
            found = list(
                groups_of_set(folder, names[0]) if name in sets else groups_of_reading(read_set(folder), names[1])
            )
            Random(name).shuffle(found)
            found = found[: shares.get(name, len(found)) if split == "train" else 30]
            print(split, name, len(found), "contexts", sum(map(len, found)), "claims")
            groups += found
        Random(split).shuffle(groups)
        write_jsonl(out / f"{split}.jsonl", [row for group in groups for row in group])


def sample_of(folder: Path, limit: int) -> list[SupportRow]:
    """Up to `limit` rows of a set, whichever their split, by a hash."""
    rows = read_rows(folder)
    return sorted(rows, key=lambda row: content_id("sample", row.claim, *row.passages))[:limit]


def odds(model: Any, tokenizer: Any, prompts: Sequence[Sequence[Message]]) -> list[float]:
    """log P(yes) − log P(no) of the first token after each prompt."""
    yes, no = (tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in ("yes", "no"))
    ids = [
        tokenizer.apply_chat_template(
            [message_to_json(message) for message in prompt], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for prompt in prompts
    ]
    found = [0.0] * len(ids)
    for batch in batches(ids):
        width = max(len(ids[at]) for at in batch)
        tokens = torch.full((len(batch), width), tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(tokens)
        for row, at in enumerate(batch):
            tokens[row, width - len(ids[at]) :] = torch.tensor(ids[at])
            mask[row, width - len(ids[at]) :] = 1
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.no_grad():
            logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions, logits_to_keep=1).logits
        for row, at in enumerate(batch):
            found[at] = float(logits[row, -1, yes].float() - logits[row, -1, no].float())
    return found


def batches(ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Positions of prompts of similar length, up to BATCH_TOKENS with padding."""
    batch: list[int] = []
    for at in sorted(range(len(ids)), key=lambda at: len(ids[at])):
        if batch and (len(batch) + 1) * len(ids[at]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def auc(scores: Sequence[float], supported: Sequence[bool]) -> float:
    """The share of pairs of a supported and an unsupported row in which the supported one has the higher score; ties count half."""
    score_n, is_n = np.array(scores), np.array(supported)
    pairs = np.sign(score_n[is_n][:, None] - score_n[~is_n][None, :])
    return float((pairs.mean() + 1) / 2)


def interval(scores: Sequence[float], supported: Sequence[bool]) -> list[float]:
    """The bootstrap interval (95 %) of the AUC."""
    rng = np.random.default_rng(0)
    score_n, is_n = np.array(scores), np.array(supported)
    draws = [rng.integers(len(score_n), size=len(score_n)) for _ in range(300)]
    found = [auc(score_n[at], is_n[at]) for at in draws if 0 < is_n[at].sum() < len(at)]
    return [round(float(value), 3) for value in np.percentile(found, [2.5, 97.5])]


def judge(data: Path, spec: str, sets: Iterable[str], limit: int) -> dict[str, Any]:
    """The AUC of a model beside the shipped verifier's and that of the share of stems, on the same rows."""
    from train.model.load import load_model, load_tokenizer

    model, tokenizer, verifier = load_model(spec, "bfloat16").eval(), load_tokenizer(spec), open_verifier("")
    figures: dict[str, Any] = {}
    for name in sets:
        rows = sample_of(data / "support" / name, limit)
        labels = [row.supported for row in rows]
        grounds = [Ground.of([("", text) for text in row.passages]) for row in rows]
        start = process_time()
        scores = odds(model, tokenizer, [prompt_of([("", text) for text in row.passages], row.claim) for row in rows])
        seconds = process_time() - start
        shipped = [
            -float(judge_claims(verifier, [row.claim], ground)[0]) for row, ground in zip(rows, grounds, strict=True)
        ]
        stems = [overlaps(row.claim, ground.wordings)[0] for row, ground in zip(rows, grounds, strict=True)]
        figures[name] = {
            "rows": len(rows),
            "model": round(auc(scores, labels), 3),
            "interval": interval(scores, labels),
            "shipped": round(auc(shipped, labels), 3),
            "stems": round(auc(stems, labels), 3),
            "cpu_ms": round(1000 * seconds / len(rows)),
            "scores": [[row.id, row.supported, round(score, 3)] for row, score in zip(rows, scores, strict=True)],
        }
        print(name, {key: value for key, value in figures[name].items() if key != "scores"}, flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    rows = commands.add_parser("rows")
    rows.add_argument("data", type=Path)
    rows.add_argument("out", type=Path)
    rows.add_argument("--sets", nargs="+", required=True)
    rows.add_argument("--share", nargs="*", default=[], metavar="SET=CONTEXTS")
    judged = commands.add_parser("judge")
    judged.add_argument("data", type=Path)
    judged.add_argument("model")
    judged.add_argument("--sets", nargs="+", required=True)
    judged.add_argument("--limit", type=int, default=300)
    judged.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.command == "rows":
        shares = {name: int(count) for name, _, count in (each.partition("=") for each in options.share)}
        write_rows(options.data, options.out, options.sets, shares)
    else:
        figures = judge(options.data, options.model, options.sets, options.limit)
        if options.json:
            options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()

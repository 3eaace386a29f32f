"""Rows to train a language model as a verifier (do passages support a sentence?), and the calibration of a verifier trained on them.

The claims are the sentences of public sets (folders of `support/`) and, for questions of reading sets, "question answer": with the answer that people gave
(supported) or with another one from the same passage (not supported). Claims about one context are adjacent, so that training reads the context once.

With --reading, claims are also made from rows of `data import reading`: the row's answer is supported; another one from the same context is not, nor is
the answer to the original of a changed question. With --answers, claims are also made from a reader's responses to such rows (the file that a
round of `train ms` writes): each answer is a claim about the passages that it cites, supported if it is right.

    python -P benchmarks/experiments/support_rows.py rows DATA OUT --sets summedits bump q2_wow --reading ROWS=800
    python -P benchmarks/experiments/support_rows.py rows DATA OUT --sets summedits bump q2_wow --answers RUN/round-1/responses/train.jsonl=800
    python -P benchmarks/experiments/support_rows.py judge DATA hf:ADAPTER OUT --sets qa_feedback=300 DATA/dev.jsonl=200
    python -P benchmarks/experiments/support_rows.py calibrate OUT
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from data_synth.reading.sets import ReadingQuestion, ReadingSet, read_set
from data_synth.rows import message_to_json
from data_synth.texts import occurs_in, words_of
from eval.support import auc, is_checked, read_support
from graph.answer.citations import own_citations, short_answer
from graph.answer.model_verifier import Calibration, closest_windows, open_model_verifier, support_prompt
from graph.answer.support import POLAR, SupportRow, obstacle_to, support_row
from graph.shared.console import track
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl, write_jsonl
from graph.trees import probabilities
from graph.types import Message

READING_SETS = ("squad_ctx", "squad2_train10", "nq_open_oracle", "covidqa", "hotpot_train")
MAX_WORDS = 600
"""Contexts with more words are left out of training."""
MAX_CLAIMS = 8
"""Largest number of claims about one context of a reading set."""
MAX_PER_CONTEXT = 16
"""Largest number of claims about one context of a set of sentences."""
MAX_WRONG = 3
"""Largest number of wrong answers of a reader to one question."""
MAX_WRONG_F1 = 0.3
"""F1 below which an answer of a reader is wrong; `answer_reward` is half of it."""
QUESTIONS = "claims with a question"


def row_of(
    context: str, passages: Sequence[tuple[str, str]], claim: str, supported: bool, with_question: bool = True
) -> dict[str, Any]:
    """A row for `train sft`; `with_question`: the claim begins with its question."""
    completion = "yes" if supported else "no"
    return {
        "prompt": [message_to_json(message) for message in support_prompt(passages, claim)],
        "completion": completion,
        "answers": [completion],
        "context_ids": [context],
        "with_question": with_question,
    }


def read_rows(folder: Path) -> list[SupportRow]:
    """The labelled sentences of one set."""
    return [support_row(row, str(line)) for line, row in read_jsonl(folder / "rows.jsonl")]


def groups_of_set(folder: Path, split: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of one split of a set, by context: at most MAX_PER_CONTEXT of each, drawn at random, and none of contexts with more than MAX_WORDS words."""
    by_context: defaultdict[tuple[str, ...], list[SupportRow]] = defaultdict(list)
    for row in read_rows(folder):
        if row.split == split:
            by_context[row.passages].append(row)
    for passages, rows in by_context.items():
        if sum(len(text.split()) for text in passages) <= MAX_WORDS:
            context = content_id(folder.name, *passages)
            chosen = Random(context).sample(rows, min(len(rows), MAX_PER_CONTEXT))
            quoted = [("", text) for text in passages]
            yield [row_of(context, quoted, row.claim, row.supported, row.is_fragment) for row in chosen]


def shape(answer: str) -> str:
    """What an answer looks like: "number", "name" or "words"."""
    return "number" if re.search(r"\d", answer) else "name" if re.search(r"\b[A-Z]", answer) else "words"


def groups_of_reading(source: ReadingSet, split: str) -> Iterator[list[dict[str, Any]]]:
    """Claims "question answer" from a reading set, by gold passages: with the question's answer, and with another one from the same passages."""
    by_gold: defaultdict[tuple[str, ...], list[ReadingQuestion]] = defaultdict(list)
    for question in source.questions:
        if question.split == split and question.gold_ids and not question.is_yes_no:
            by_gold[question.gold_ids].append(question)
    for gold, questions in by_gold.items():
        answers = [each.answers[0] for each in questions if each.answers]
        passages = quoted_passages(source, gold)
        rng, context, rows = Random("".join(gold)), content_id(source.name, *gold), []
        for question in rng.sample(questions, min(len(questions), MAX_CLAIMS // 2)):
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


def sets_of(data: Path) -> dict[str, ReadingSet]:
    """All reading sets of a folder of sets, by name."""
    return {
        each.name: read_set(each)
        for parent in ("reading", ".")
        for each in sorted((data / parent).iterdir())
        if (each / "questions.jsonl").exists()
    }


def quoted_passages(source: ReadingSet, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Title and text of each passage."""
    return [(source.passages[each].title, source.passages[each].text) for each in ids]


def groups_of_answers(data: Path, file: Path) -> Iterator[list[dict[str, Any]]]:
    """Claims "question answer" from a reader's responses, by the passages that they cite: at most MAX_WRONG wrong answers to a question, and one right.

    An answer is right if it equals one that people gave, and wrong if its F1 with all of them is below MAX_WRONG_F1; answers between the two, refusals, yes
    and no, and answers that cite nothing are left out."""
    sets = sets_of(data)
    by_context: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for _, row in read_jsonl(file):
        name = row["id"].partition(":")[0]
        if name not in sets:
            continue
        claims: dict[bool, dict[str, tuple[str, ...]]] = {True: {}, False: {}}
        for text, correct in zip(row["responses"], row["rewards"]["correct"], strict=True):
            answer, cited = short_answer(text), own_citations(text, len(row["context_ids"])).existing
            claim = f"{row['question']} {answer}"
            is_polar = answer.casefold().strip(" .") in POLAR
            is_clear = correct == 1 or 2 * correct < MAX_WRONG_F1
            if cited and is_clear and obstacle_to(claim) is None and not is_polar:
                claims[correct == 1].setdefault(claim, tuple(row["context_ids"][number - 1] for number in cited))
        for supported, found in claims.items():
            for claim, ids in list(found.items())[: 1 if supported else MAX_WRONG]:
                passages = quoted_passages(sets[name], ids)
                by_context[(name, *ids)].append(row_of(content_id(name, *ids), passages, claim, supported))
    yield from by_context.values()


def groups_of_rows(data: Path, folder: Path, split: str) -> Iterator[list[dict[str, Any]]]:
    """Claims "question answer" from a folder of reading rows, by context. An answered question is paired with its answer, and with another one from the
    context; a changed question with the original's answer; a question that its passages do not answer, with its answer from elsewhere, sometimes also
    with one from the context."""
    sets = sets_of(data)
    originals = {(name, question.id): question for name, source in sets.items() for question in source.questions}
    by_context: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for _, row in read_jsonl(folder / f"{split}.jsonl"):
        name = row["id"].partition(":")[0]
        if name in sets and not POLAR.intersection(row["answers"]):
            by_context[name, *row["context_ids"]].append(row)
    for (name, *ids), found in by_context.items():
        passages = quoted_passages(sets[name], ids)
        context = content_id(name, *ids)
        rng, rows = Random(context), []
        answers = [row["answers"][0] for row in found if row["answers"]]
        for row in found:
            original = originals[name, row["question_id"].removesuffix("-changed")]
            right = row["answers"][0] if row["answers"] else None
            others = [each for each in answers if not any(_alike(each, other) for other in original.answers)]
            others = [each for each in others if shape(each) == shape((*original.answers, each)[0])] or others
            wrong = [*original.answers[:1]] if right is None else []
            wrong += [rng.choice(others)] if others and (right is not None or not wrong or rng.random() < 0.25) else []
            rows += [row_of(context, passages, f"{row['question']} {right}", True)] if right is not None else []
            rows += [row_of(context, passages, f"{row['question']} {each}", False) for each in wrong]
        if len(rows) > 1:
            rng.shuffle(rows)
            yield rows


_NAMES = re.compile(r"\b(?:[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*|\d[\d,.]*\d)")


def _others(passages: Sequence[tuple[str, str]], question: ReadingQuestion) -> list[str]:
    """Names and numbers in the passages that have the shape of the question's answer and do not occur in the question."""
    found = {name for _, text in passages for name in _NAMES.findall(text)}
    wanted = shape(question.answers[0]) if question.answers else "name"
    return sorted(
        name
        for name in found
        if shape(name) == wanted
        and not occurs_in(name, words_of(question.text))
        and not any(_alike(name, other) for other in question.answers)
    )


def _alike(one: str, other: str) -> bool:
    return occurs_in(one, words_of(other)) or occurs_in(other, words_of(one))


def write_rows(
    data: Path, out: Path, sets: Sequence[str], shares: dict[str, int], reading: dict[str, int], answers: dict[str, int]
) -> None:
    """Write train.jsonl and dev.jsonl to `out`. `shares` limits the training contexts of sets; `reading` contains the folders of reading rows and
    `answers` the files of responses to training rows, with limits."""
    out.mkdir(parents=True, exist_ok=True)
    for split, names in (("train", ("train", "train")), ("dev", ("val", "dev"))):
        groups: list[list[dict[str, Any]]] = []
        for name in (*sets, *READING_SETS):
            folder = data / ("support" if name in sets else "reading") / name
            found = groups_of_set(folder, names[0]) if name in sets else groups_of_reading(read_set(folder), names[1])
            groups += drawn(found, split, name, shares.get(name))
        for name, count in reading.items():
            groups += drawn(groups_of_rows(data, Path(name), split), split, name, count)
        for name, count in answers.items() if split == "train" else ():
            groups += drawn(groups_of_answers(data, Path(name)), split, name, count)
        Random(split).shuffle(groups)
        write_jsonl(out / f"{split}.jsonl", [row for group in groups for row in group])


def drawn(
    groups: Iterable[list[dict[str, Any]]], split: str, name: str, most: int | None
) -> list[list[dict[str, Any]]]:
    """At most `most` random groups of a set (all if None), or 30 if the split is not train; print how many."""
    found = list(groups)
    Random(name).shuffle(found)
    found = found[: most if split == "train" else 30]
    print(split, name, len(found), "contexts", sum(map(len, found)), "claims")
    return found


def judge(data: Path, spec: str, out: Path, sets: Sequence[str]) -> None:
    """Write the verifier's log-odds of random rows of each of `sets` (NAME[:SPLIT]=LIMIT) to `out`; of a file that `rows` wrote, only the
    claims with a question are judged. Sets that are already in `out` are skipped."""
    limits = [each.partition("=")[::2] for each in sets]
    files = [out / f"{QUESTIONS if name.endswith('.jsonl') else name.partition(':')[0]}.jsonl" for name, _ in limits]
    if len(set(files)) < len(files):
        raise SystemExit("--sets: two sets with the same output. Name at most one .jsonl file, and each other set once")
    out.mkdir(parents=True, exist_ok=True)
    log_odds = open_model_verifier(spec).log_odds
    for (name, limit), file in zip(limits, files, strict=True):
        if name.endswith(".jsonl"):
            found = [row for _, row in read_jsonl(Path(name)) if row["with_question"]]
            chats = [(tuple(Message(**turn) for turn in row["prompt"]), row["completion"] == "yes") for row in found]
            chats = Random(0).sample(chats, min(int(limit), len(chats)))
        else:
            folder, _, split = name.partition(":")
            rows = read_support(data / "support" / folder / "rows.jsonl", split or None, int(limit))
            chats = [(chat_of(row), row.supported) for row in rows if is_checked(row)]
        if not file.exists():
            judged = track(chats, name, len(chats))
            write_jsonl(file, [{"supported": label, "odds": float(log_odds([chat])[0])} for chat, label in judged])


def chat_of(row: SupportRow) -> tuple[Message, ...]:
    """The verifier's prompt for a row."""
    passages = [("", text) for text in row.passages]
    return support_prompt(closest_windows(passages, row.claim), row.claim)


def calibrate(judged: Path, max_marked: float) -> Calibration:
    """Return the calibration from the sets that `judge` wrote; print, for each set, its AUC and the shares marked at the median threshold of the other sets.
    The calibration is a logistic regression on the log-odds (Platt 1999), all sets with the same total weight; the median of the thresholds that mark the
    share `max_marked` of each set's supported sentences; and for claims with a question, the offset at which that threshold marks the same share of them."""
    tables = {
        file.stem: np.array([(row["odds"], row["supported"]) for _, row in read_jsonl(file)])
        for file in sorted(judged.glob("*.jsonl"))
    }
    if QUESTIONS not in tables:
        raise SystemExit(f"{judged}: no {QUESTIONS}. Judge the dev.jsonl that `rows` wrote, too")
    bounds = {name: float(np.quantile(rows[rows[:, 1] == 1, 0], max_marked)) for name, rows in tables.items()}
    with_question = bounds.pop(QUESTIONS)
    for name in bounds:
        odds_n, supported_n = tables[name][:, 0], tables[name][:, 1] == 1
        bound = float(np.median([value for other, value in bounds.items() if other != name]))
        marked = [float((odds_n[group_n] <= bound).mean()) for group_n in (supported_n, ~supported_n)]
        print(f"{name}: AUC {auc(odds_n, supported_n):.3f}, marked {marked[0]:.3f} and {marked[1]:.3f} at {bound:.2f}")
    rows = np.concatenate([tables[name] for name in bounds])
    weights = np.concatenate([np.full(len(tables[name]), 1 / len(tables[name])) for name in bounds])
    fitted = LogisticRegression(C=1e6).fit(
        rows[:, :1], rows[:, 1] == 0, sample_weight=weights * len(rows) / len(bounds)
    )
    scale, offset = -float(fitted.coef_[0, 0]), float(fitted.intercept_[0])
    bound = float(np.median(list(bounds.values())))
    print(f"bounds: {bounds}, with a question {with_question:.2f}")
    return Calibration(
        scale=round(scale, 4),
        offset=round(offset, 4),
        question_offset=round(offset + scale * (with_question - bound), 4),
        threshold=round(float(probabilities(np.array(offset - scale * bound), 1.0)), 4),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    rows, judging, fit = (commands.add_parser(name) for name in ("rows", "judge", "calibrate"))
    for command in (rows, judging):
        command.add_argument("data", type=Path)
    judging.add_argument("verifier")
    for command in (rows, judging, fit):
        command.add_argument("out", type=Path)
    for command in (rows, judging):
        command.add_argument("--sets", nargs="+", required=True)
    rows.add_argument("--share", nargs="*", default=[], metavar="SET=CONTEXTS")
    rows.add_argument("--reading", nargs="*", default=[], metavar="FOLDER=CONTEXTS")
    rows.add_argument("--answers", nargs="*", default=[], metavar="FILE=CONTEXTS")
    fit.add_argument("--max-marked", type=float, default=0.05)
    options = parser.parse_args()
    if options.command == "judge":
        judge(options.data, options.verifier, options.out, options.sets)
    elif options.command == "calibrate":
        print(calibrate(options.out, options.max_marked).model_dump_json())
    else:
        limits = (
            {name: int(count) for name, _, count in (each.partition("=") for each in given)}
            for given in (options.share, options.reading, options.answers)
        )
        write_rows(options.data, options.out, options.sets, *limits)


if __name__ == "__main__":
    main()

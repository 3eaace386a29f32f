"""Rows that teach a model to write a question about a sentence: questions written by people, from public sets, as `synth questions --writer` asks for them.

A question is used if it can be understood without its passage (it has a name or a number, and refers to nothing that it does not name) and BM25 ranks its
passage first among all passages of the set. Questions about one passage are adjacent, so that training reads the passage once. A model trained on these
rows was not shipped (docs/log.md, “A writer of questions”).

    python -P benchmarks/experiments/writer_rows.py DATA OUT
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

from data_synth.questions.by_model import QUESTION_OF_SENTENCE, refers, sentence_prompt, sentences_of
from data_synth.reading.reading_rows import Distractors, contains_answer, words_of
from data_synth.reading.sets import ReadingQuestion, ReadingSet, read_set
from data_synth.rows import message_to_json
from graph.shared.jsonl import write_jsonl
from graph.text.bm25 import terms_of
from graph.text.prompting import quote, read_prompt
from graph.types import Excerpt, Message

SETS = ("squad_ctx", "squad2_train10", "nq_open_oracle", "covidqa")
MAX_ANSWER_WORDS = 10
MIN_QUESTIONS = {"squad_ctx": 2, "squad2_train10": 2}
"""Fewest usable questions for which a passage of a set is included, 1 by default: a second question about the same passage adds little cost."""
MAX_WORDS = 300
_NAME_OR_NUMBER = re.compile(r"\s[\"“‘']?[A-Z]|\d")
_CAPITALISED = re.compile(r"\b[A-Z]\w*(?:[-'’.]\w+)*")


def stands_alone(question: str) -> bool:
    """Whether a question names something and refers to nothing outside of it.

    >>> stands_alone("Who built the Lantern?"), stands_alone("When did they build it?"), stands_alone("Who wrote the novel?")
    (True, False, False)
    """
    return _NAME_OR_NUMBER.search(question) is not None and not refers(question)


def spelled(question: str, passage: Excerpt) -> str:
    """The question with a question mark and, if it was typed in lower case, with a capital and with names as in the passage.

    >>> spelled("who owns reading football club", Excerpt("1", "Reading F.C.", "Dai owns Reading Football Club."))
    'Who owns Reading Football Club?'
    """
    if question != question.lower():
        return question if question.endswith("?") else f"{question}?"
    text = f"{passage.title} {passage.text}"
    names = {each.lower(): each for each in _CAPITALISED.findall(text) if each.lower() not in text.split()}
    words = [names.get(word, word) for word in question.rstrip("?. ").split()]
    return f"{words[0][:1].upper()}{words[0][1:]} {' '.join(words[1:])}?"


def rows_of(source: ReadingSet) -> Iterator[dict[str, object]]:
    """The rows of a set's train and dev questions, grouped by passage."""
    finder = Distractors(source)
    by_passage: defaultdict[str, list[ReadingQuestion]] = defaultdict(list)
    for question in source.questions:
        if len(question.gold_ids) == 1 and question.is_answerable and not question.is_yes_no:
            by_passage[question.gold_ids[0]].append(question)
    for passage_id, questions in by_passage.items():
        passage = source.passages[passage_id]
        if len(passage.text.split()) > MAX_WORDS:
            continue
        usable = [
            row for each in questions if finder.ranked(each.text, 1) == [passage_id] and (row := _row(each, passage))
        ]
        if len(usable) >= MIN_QUESTIONS.get(source.name, 1):
            yield from usable


def _row(question: ReadingQuestion, passage: Excerpt) -> dict[str, object] | None:
    """The row of one question; None if it does not stand alone, if no sentence contains its answer, or if the answer is long or occurs in the question."""
    text = quote(spelled(question.text, passage))
    answer = next((each for each in question.answers if len(each.split()) <= MAX_ANSWER_WORDS), None)
    held = [each for each in sentences_of(passage) if answer and contains_answer(answer, words_of(each.line))]
    if answer is None or not held or contains_answer(answer, words_of(text)) or not stands_alone(text):
        return None
    terms = set(terms_of(text))
    sentence = max(held, key=lambda each: len(terms & set(terms_of(each.line))))
    prompt = (Message("system", read_prompt(QUESTION_OF_SENTENCE)), Message("user", sentence_prompt(passage, sentence)))
    completion = json.dumps({"answer": quote(answer).strip(" .,;:"), "question": text}, ensure_ascii=False)
    return {
        "prompt": [message_to_json(message) for message in prompt],
        "completion": completion,
        "answers": [completion],
        "context_ids": [passage.id],
        "split": question.split,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the sets")
    parser.add_argument("out", type=Path, help="folder for train.jsonl and dev.jsonl")
    options = parser.parse_args()
    groups: defaultdict[str, list[list[dict[str, object]]]] = defaultdict(list)
    for name in SETS:
        of_passage: dict[str, list[dict[str, object]]] = {}
        for row in rows_of(read_set(options.data / "reading" / name)):
            of_passage.setdefault(f"{row['context_ids']}{row['split']}", []).append(row)
        for group in of_passage.values():
            groups[str(group[0]["split"])].append(group)
        print(name, {split: sum(map(len, found)) for split, found in groups.items()})
    options.out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        Random(0).shuffle(groups[split])
        write_jsonl(options.out / f"{split}.jsonl", [row for group in groups[split] for row in group])


if __name__ == "__main__":
    main()

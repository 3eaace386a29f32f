"""The default mode on corpora of many kinds: is it ever below the best of the simple modes? `auto`, `dense`, `lexical` and `hybrid`, Recall@5.

Run: python -P benchmarks/kinds.py --data FOLDER_OF_SETS [--kinds untitled mails …] [--questions 300] [--encoder minilm] [--folder FOLDER] [--json].
Each kind is made from a public set (SETS says which), with its questions as they are. An index is made for each, in --folder, where it stays for a next run.
"""

import argparse
import random
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.report import Check, print_report
from eval.metrics import recall_at
from eval.retrieval import ranked_sources
from eval.statistics import bootstrap_difference
from graph.build.build import build_index
from graph.documents.questions import Question, read_questions
from graph.documents.read import read_documents
from graph.index.index import Index, open_index
from graph.models.encoder import open_encoder
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import STRATEGIES
from graph.shared.jsonl import read_jsonl
from graph.shared.modes import Mode
from graph.store.index_settings import IndexSettings
from graph.store.manifest import MANIFEST
from graph.types import Document

SIMPLE: tuple[Mode, ...] = ("dense", "lexical", "hybrid")
MOST_BELOW = 0.01
TOP_K, FIRST = 10, 5
EDITION = "#"
"""After the source of a document, what tells its other edition."""
PARAGRAPHS = 8
"""Of a report."""
NAMES = ("Ada Brandt", "Tom Okafor", "Mira Lindqvist", "Joel Santos", "Petra Novak", "Sam Whitlock")


@dataclass(frozen=True)
class Corpus:
    """Documents and the questions that are asked of them."""

    documents: list[Document]
    questions: list[Question]


def read_set(folder: Path) -> Corpus:
    """A set as it is: corpus.jsonl and questions.jsonl."""
    return Corpus(list(read_documents(folder / "corpus.jsonl", print)), read_questions(folder / "questions.jsonl"))


def untitled(corpus: Corpus) -> Corpus:
    """The same texts, none of which says what it is called."""
    return replace(corpus, documents=[replace(each, title="") for each in corpus.documents])


def mails(corpus: Corpus) -> Corpus:
    """Each text as a mail between a few people, whose subject says nothing."""
    draw, found = random.Random(0), []
    for number, each in enumerate(corpus.documents):
        sender, receiver = draw.sample(NAMES, 2)
        date = f"{draw.randint(1, 28)} {draw.choice(('March', 'June', 'October'))} {draw.randint(2015, 2024)}"
        head = (
            f"From: {sender}\nTo: {receiver}\nDate: {date}\nSubject: Re: item {number}\n\nHi {receiver.split()[0]},\n\n"
        )
        text = f"{head}{each.text}\n\nBest,\n{sender.split()[0]}\n"
        found.append(Document(each.source, f"Re: item {number}", text))
    return replace(corpus, documents=found)


def reports(corpus: Corpus) -> Corpus:
    """So many paragraphs drawn at random, with their headings, are a report that is called by its number; a report with a gold paragraph is gold."""
    order = random.Random(0).sample(corpus.documents, len(corpus.documents))
    parts = [order[start : start + PARAGRAPHS] for start in range(0, len(order), PARAGRAPHS)]
    report_of = {each.source: f"report {number}" for number, part in enumerate(parts) for each in part}
    documents = [
        Document(
            f"report {number}", f"Report {number}", "\n\n".join(f"## {each.title}\n\n{each.text}" for each in part)
        )
        for number, part in enumerate(parts)
    ]
    questions = [
        replace(each, gold_sources=tuple(dict.fromkeys(report_of[source] for source in each.gold_sources)))
        for each in corpus.questions
    ]
    return Corpus(documents, questions)


def near_duplicates(corpus: Corpus) -> Corpus:
    """Each text in a second edition, its sentences in another order; either is as good as the other."""
    again = []
    for each in corpus.documents:
        sentences = re.split(r"(?<=[.!?])\s+", each.text)
        text = " ".join([*sentences[1:], sentences[0], "Revised edition."])
        again.append(Document(each.source + EDITION, each.title, text))
    return replace(corpus, documents=[*corpus.documents, *again])


def tables(folder: Path) -> Corpus:
    """What a model read in each passage, as a table without a title (musique's openie.jsonl); texts without a triple are left as they are."""
    corpus = read_set(folder)
    triples = {row["id"]: row["triples"] for _, row in read_jsonl(folder / "openie.jsonl")}
    found = []
    for each in corpus.documents:
        rows = [triple for triple in triples.get(each.source, []) if len(triple) == 3]
        lines = ["| what | how | to what |", "|---|---|---|", *(f"| {' | '.join(map(str, row))} |" for row in rows)]
        found.append(Document(each.source, "", "\n".join(lines) if rows else each.text))
    return replace(corpus, documents=found)


def explanations(folder: Path) -> Corpus:
    """Explanations of answers in medicine; a question's own is gold."""
    rows = [row for _, row in read_jsonl(folder / "items.jsonl") if row.get("reasoning")]
    return Corpus([Document(row["id"], "", row["reasoning"]) for row in rows], own_questions(rows))


def abstracts(folder: Path) -> Corpus:
    """Abstracts without titles; a question's own is gold."""
    rows = [row for _, row in read_jsonl(folder / "items.jsonl")]
    return Corpus([Document(row["id"], "", "\n\n".join(row["context"])) for row in rows], own_questions(rows))


def own_questions(rows: Sequence[dict[str, Any]]) -> list[Question]:
    """Each row's question, whose gold document has the row's id."""
    return [Question(row["id"], row["question"], (), (row["id"],)) for row in rows]


SETS: dict[str, tuple[str, Callable[[Path], Corpus]]] = {
    "untitled": ("2wiki_dev164", lambda folder: untitled(read_set(folder))),
    "mails": ("2wiki_dev164", lambda folder: mails(read_set(folder))),
    "reports": ("2wiki_dev164", lambda folder: reports(read_set(folder))),
    "near-duplicates": ("2wiki_dev164", lambda folder: near_duplicates(read_set(folder))),
    "tables": ("musique_train100", tables),
    "dated messages": ("locomo_dev", read_set),
    "messages": ("locomo_dev", lambda folder: untitled(read_set(folder))),
    "facts": ("entailmentbank", read_set),
    "explanations": ("medmcqa_dev", explanations),
    "abstracts": ("pubmedqa_l", abstracts),
}


def open_kind(folder: Path, corpus: Corpus, encoder: str) -> Index:
    """The index of a corpus, made unless it is there."""
    if not (folder / MANIFEST).exists():
        build_index(folder, corpus.documents, IndexSettings(encoder=encoder), open_encoder)
    return open_index(folder)


def recalls(index: Index, mode: Mode, questions: Sequence[Question], queries: Sequence[Query]) -> list[float]:
    """Recall@5 of each question; of a document in two editions either will do."""
    found, settings = [], RetrieveSettings(mode=mode, top_k=TOP_K)
    for question, query in zip(questions, queries, strict=True):
        sources = ranked_sources(STRATEGIES[mode](index, query, settings))
        first = dict.fromkeys(source.removesuffix(EDITION) for source in sources[:FIRST])
        found.append(recall_at(list(first), question.gold_sources, FIRST))
    return found


def measure(name: str, data: Path, folder: Path, most: int, encoder: str) -> tuple[dict[str, float | str], Check]:
    """The figures of a kind, and whether the default is at least the best of the others but for MOST_BELOW."""
    source, made = SETS[name]
    corpus = made(data / source)
    asked = [each for each in corpus.questions if each.gold_sources]
    if len(asked) > most:
        asked = random.Random(0).sample(asked, most)
    index = open_kind(folder / re.sub(r"\W+", "-", f"{name} {encoder}"), corpus, encoder)
    vectors_QD = index.encode_queries([each.text for each in asked])
    queries = [Query(each.text, vector_D) for each, vector_D in zip(asked, vectors_QD, strict=True)]
    of_mode = {mode: np.array(recalls(index, mode, asked, queries)) for mode in (*SIMPLE, "auto")}
    best = max(SIMPLE, key=lambda mode: of_mode[mode].mean())
    gain = bootstrap_difference(of_mode["auto"], of_mode[best])
    told = f"{name} ({len(asked)} questions, {len(index.data.passage_ids)} passages)"
    figures: dict[str, float | str] = {f"{told}: {mode}": float(found.mean()) for mode, found in of_mode.items()}
    figures[f"{told}: auto minus {best}"] = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    return figures, Check(f"{name}: auto minus the best of the others", gain.mean, -MOST_BELOW, at_least=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public sets")
    parser.add_argument("--kinds", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--questions", type=int, default=300, help="of a kind, at most")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--folder", type=Path, help="where indexes are kept for a next run")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: dict[str, float | str] = {}
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as place:
        for name in arguments.kinds:
            folder = arguments.folder or Path(place)
            of_kind, check = measure(name, arguments.data, folder, arguments.questions, arguments.encoder)
            figures |= of_kind
            checks.append(check)
    return print_report("kinds of corpora", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""The default mode on corpora of many kinds: is its Recall@5 ever lower than that of the best simple mode, or than its own without the trained hop?

Run: python -P benchmarks/kinds.py --data FOLDER_OF_SETS [--kinds untitled emails …] [--questions 300] [--encoder minilm] [--folder FOLDER] [--json].
Each kind is made from a public set (see SETS); its questions keep their wording. An index is built for each kind; later runs reuse the indexes in --folder.
"""

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

from benchmarks.report import Check, new_parser, print_report
from eval.metrics.grounding import recall_at
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
PLAIN = "auto --selector none"
MAX_BELOW, MAX_BELOW_PLAIN = 0.01, 0.005
"""Recall@5 by which the default mode may be below the best simple mode, and below PLAIN."""
TOP_K, RECALL_AT = 10, 5
EDITION = "#"
"""Suffix of the source of a document's second edition."""
PARAGRAPHS = 8
"""Number of paragraphs in a report."""
NAMES = ("Ada Brandt", "Tom Okafor", "Mira Lindqvist", "Joel Santos", "Petra Novak", "Sam Whitlock")


@dataclass(frozen=True)
class Corpus:
    """Documents and questions about them."""

    documents: list[Document]
    questions: list[Question]


def read_set(folder: Path) -> Corpus:
    """An unchanged set: corpus.jsonl and questions.jsonl."""
    return Corpus(list(read_documents(folder / "corpus.jsonl", print)), read_questions(folder / "questions.jsonl"))


def untitled(corpus: Corpus) -> Corpus:
    """The same texts without titles."""
    return replace(corpus, documents=[replace(document, title="") for document in corpus.documents])


def emails(corpus: Corpus) -> Corpus:
    """Each text as an e-mail between two of NAMES, with an uninformative subject."""
    rng, documents = random.Random(0), []
    for number, document in enumerate(corpus.documents):
        sender, receiver = rng.sample(NAMES, 2)
        date = f"{rng.randint(1, 28)} {rng.choice(('March', 'June', 'October'))} {rng.randint(2015, 2024)}"
        head = (
            f"From: {sender}\nTo: {receiver}\nDate: {date}\nSubject: Re: item {number}\n\nHi {receiver.split()[0]},\n\n"
        )
        text = f"{head}{document.text}\n\nBest,\n{sender.split()[0]}\n"
        documents.append(Document(document.source, f"Re: item {number}", text))
    return replace(corpus, documents=documents)


def reports(corpus: Corpus) -> Corpus:
    """Reports titled by number, each with PARAGRAPHS randomly chosen paragraphs under their headings; a report with a gold paragraph is gold."""
    order = random.Random(0).sample(corpus.documents, len(corpus.documents))
    parts = [order[start : start + PARAGRAPHS] for start in range(0, len(order), PARAGRAPHS)]
    report_of = {document.source: f"report {number}" for number, part in enumerate(parts) for document in part}
    documents = [
        Document(
            f"report {number}",
            f"Report {number}",
            "\n\n".join(f"## {document.title}\n\n{document.text}" for document in part),
        )
        for number, part in enumerate(parts)
    ]
    questions = [
        replace(question, gold_sources=tuple(dict.fromkeys(report_of[source] for source in question.gold_sources)))
        for question in corpus.questions
    ]
    return Corpus(documents, questions)


def near_duplicates(corpus: Corpus) -> Corpus:
    """Each text also in a second edition, with its first sentence moved to the end; finding either edition counts."""
    editions = []
    for document in corpus.documents:
        sentences = re.split(r"(?<=[.!?])\s+", document.text)
        text = " ".join([*sentences[1:], sentences[0], "Revised edition."])
        editions.append(Document(document.source + EDITION, document.title, text))
    return replace(corpus, documents=[*corpus.documents, *editions])


def tables(folder: Path) -> Corpus:
    """The triples that a model extracted from each passage, as a table without a title (musique's openie.jsonl); texts without a triple are unchanged."""
    corpus = read_set(folder)
    triples = {row["id"]: row["triples"] for _, row in read_jsonl(folder / "openie.jsonl")}
    documents = []
    for document in corpus.documents:
        rows = [triple for triple in triples.get(document.source, []) if len(triple) == 3]
        lines = ["| what | how | to what |", "|---|---|---|", *(f"| {' | '.join(map(str, row))} |" for row in rows)]
        documents.append(Document(document.source, "", "\n".join(lines) if rows else document.text))
    return replace(corpus, documents=documents)


def explanations(folder: Path) -> Corpus:
    """Explanations of medical answers; a question's own explanation is gold."""
    rows = [row for _, row in read_jsonl(folder / "items.jsonl") if row.get("reasoning")]
    return Corpus([Document(row["id"], "", row["reasoning"]) for row in rows], questions_of(rows))


def abstracts(folder: Path) -> Corpus:
    """Abstracts without titles; a question's own abstract is gold."""
    rows = [row for _, row in read_jsonl(folder / "items.jsonl")]
    return Corpus([Document(row["id"], "", "\n\n".join(row["context"])) for row in rows], questions_of(rows))


def questions_of(rows: Sequence[dict[str, Any]]) -> list[Question]:
    """Each row's question, whose gold document has the row's id."""
    return [Question(row["id"], row["question"], (), (row["id"],)) for row in rows]


SETS: dict[str, tuple[str, Callable[[Path], Corpus]]] = {
    "untitled": ("2wiki_dev164", lambda folder: untitled(read_set(folder))),
    "emails": ("2wiki_dev164", lambda folder: emails(read_set(folder))),
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
    """The index of a corpus, built if it does not exist."""
    if not (folder / MANIFEST).exists():
        build_index(folder, corpus.documents, IndexSettings(encoder=encoder), open_encoder)
    return open_index(folder)


def recalls(
    index: Index, settings: RetrieveSettings, questions: Sequence[Question], queries: Sequence[Query]
) -> list[float]:
    """Recall@5 of each question; either edition of a document counts."""
    values = []
    for question, query in zip(questions, queries, strict=True):
        sources = ranked_sources(STRATEGIES[settings.mode](index, query, settings))
        first = dict.fromkeys(source.removesuffix(EDITION) for source in sources[:RECALL_AT])
        values.append(recall_at(list(first), question.gold_sources, RECALL_AT))
    return values


def measure(
    name: str, data: Path, folder: Path, max_questions: int, encoder: str
) -> tuple[dict[str, float | str], list[Check]]:
    """The figures of a kind, and checks that the default mode is at most MAX_BELOW worse than the best simple mode, and at most
    MAX_BELOW_PLAIN worse than itself without its trained hop.
    """
    source, make_corpus = SETS[name]
    corpus = make_corpus(data / source)
    questions = [question for question in corpus.questions if question.gold_sources]
    if len(questions) > max_questions:
        questions = random.Random(0).sample(questions, max_questions)
    index = open_kind(folder / re.sub(r"\W+", "-", f"{name} {encoder}"), corpus, encoder)
    vectors_QD = index.encode_queries([question.text for question in questions])
    queries = [Query(question.text, vector_D) for question, vector_D in zip(questions, vectors_QD, strict=True)]
    arms: dict[str, RetrieveSettings] = {mode: RetrieveSettings(mode=mode, top_k=TOP_K) for mode in (*SIMPLE, "auto")}
    arms[PLAIN] = RetrieveSettings(mode="auto", top_k=TOP_K, selector="none")
    recall_by_mode = {arm: np.array(recalls(index, settings, questions, queries)) for arm, settings in arms.items()}
    best = max(SIMPLE, key=lambda mode: recall_by_mode[mode].mean())
    gain = bootstrap_difference(recall_by_mode["auto"], recall_by_mode[best])
    label = f"{name} ({len(questions)} questions, {len(index.data.passage_ids)} passages)"
    figures: dict[str, float | str] = {
        f"{label}: {mode}": float(values.mean()) for mode, values in recall_by_mode.items()
    }
    by_hop = bootstrap_difference(recall_by_mode["auto"], recall_by_mode[PLAIN])
    figures[f"{label}: auto minus {best}"] = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    figures[f"{label}: auto minus {PLAIN}"] = f"{by_hop.mean:+.3f} [{by_hop.low:+.3f}, {by_hop.high:+.3f}]"
    return figures, [
        Check(f"{name}: auto minus the best simple mode", gain.mean, -MAX_BELOW, at_least=True),
        Check(f"{name}: auto minus {PLAIN}", by_hop.mean, -MAX_BELOW_PLAIN, at_least=True),
    ]


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public sets")
    parser.add_argument("--kinds", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--questions", type=int, default=300, help="largest number of questions per kind")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--folder", type=Path, help="folder of the indexes, for reuse by later runs")
    arguments = parser.parse_args()
    figures: dict[str, float | str] = {}
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.kinds:
            folder = arguments.folder or Path(scratch)
            kind_figures, kind_checks = measure(name, arguments.data, folder, arguments.questions, arguments.encoder)
            figures |= kind_figures
            checks += kind_checks
    return print_report("kinds of corpora", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

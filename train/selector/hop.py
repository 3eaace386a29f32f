"""`modegraph train selector --size hop`: trains the second hop of `hops` from indexes and their questions.

Each row is a candidate passage of a question, alone or with a way to it, labelled by the question's gold documents. Trees are fitted on train, with
early stopping on dev; the figures are measured on test.

Legend: Q questions, P passages, C candidates, K ways (a bridge and an entity), X rows, n those to train on, F features."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_synth.dataset.write import markdown_table
from graph.documents.questions import SPLITS, Question, read_questions
from graph.errors import UserError
from graph.index.index import Index, open_index
from graph.retrieve.hops.hop_features import HOP_FEATURES, HopRows, hop_rows
from graph.retrieve.hops.mode import search_hops
from graph.retrieve.hops.trained_hop import Hop, best_rows, save_hop, scores_of_all_passages
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.ranking import top_rows
from graph.shared.console import say, track
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import write_json
from graph.trees import forest_logits
from graph.types import Floats, Ints
from train.classifiers import (
    check_both_classes,
    check_one_encoder,
    closing_sections,
    distinct_names,
    fit_forest,
    library_versions,
    standard_error,
)
from train.run.save import about_run, fresh_folder
from train.run.settings import SelectorSettings

DEV_SHARE, TEST_SHARE = 0.1, 0.1


@dataclass(frozen=True)
class TrainingIndex:
    """An index, its questions, the split of each by id, and the fingerprint of their file."""

    index: Index
    name: str
    questions: Sequence[Question]
    split_of: dict[str, str]
    fingerprint: str


@dataclass(frozen=True)
class HopExamples:
    """Rows of one split: float32[n, F] and int64[n] of zeros and ones."""

    features_nF: Floats
    label_n: Ints


def read_indexes(folders: Sequence[str], files: Sequence[str]) -> list[TrainingIndex]:
    """Each index with the questions of its file; UserError unless there is one file per index, one encoder, and a question in every split."""
    if len(folders) != len(files):
        expected = "a file of questions for each index of `data`, in the same order"
        raise UserError(f"indexes: {len(folders)}, files of questions: {len(files)}", expected, "set hop.questions")
    paths = [Path(folder) for folder in folders]
    named = zip(paths, files, distinct_names(paths), strict=True)
    indexes = [read_index(folder, Path(file), name) for folder, file, name in named]
    check_one_encoder("indexes", {each.index.encoder_source.fingerprint: each.name for each in indexes})
    missing = set(SPLITS) - {split for index in indexes for split in index.split_of.values()}
    if missing:
        found = f"no question in {', '.join(split for split in SPLITS if split in missing)}"
        raise UserError(found, "questions in train, dev and test", "give more questions")
    return indexes


def read_index(folder: Path, file: Path, name: str) -> TrainingIndex:
    """One index, named `name`, and the questions with a gold document in it."""
    index = open_index(folder)
    sources = set(index.sources())
    questions = [question for question in read_questions(file) if sources.intersection(question.gold_sources)]
    if not questions:
        found = f"{file}: no question with a gold document in {folder}"
        expected = "questions whose gold_ids are sources of the index"
        raise UserError(found, expected, "give the file of this index's questions")
    return TrainingIndex(index, name, questions, split_questions(questions), checksum(file))


def split_questions(questions: Sequence[Question]) -> dict[str, str]:
    """The split of each question by id: as stated in the file or, if all are test (the default), chosen by a hash of the question's text.

    By hash, a tenth of the questions goes to dev and a tenth to test.
    """
    if {each.split for each in questions} != {"test"}:
        return {each.id: each.split for each in questions}
    shares = {each.id: int(content_id(each.text.casefold())[:8], 16) / 2**32 for each in questions}
    return {
        key: "test" if share < TEST_SHARE else "dev" if share < TEST_SHARE + DEV_SHARE else "train"
        for key, share in shares.items()
    }


@dataclass(frozen=True)
class QuestionRows:
    """A question's rows, its gold documents (rows of the index), and the scores of `hops` without a trained hop."""

    rows: HopRows
    gold: frozenset[int]
    reached_P: Floats


def find_rows_by_split(training: TrainingIndex) -> dict[str, list[QuestionRows]]:
    """The rows that `hops` would pass to a trained hop for each question, by split."""
    index, by_split = training.index, {split: list[QuestionRows]() for split in SPLITS}
    row_of = {source: row for row, source in enumerate(index.sources())}
    queries_QD = index.encode_queries([each.text for each in training.questions])
    pairs = zip(training.questions, queries_QD, strict=True)
    for question, query_D in track(pairs, f"rows for the questions of {training.name}", len(training.questions)):
        gold = frozenset(row_of[source] for source in question.gold_sources if source in row_of)
        query = Query(question.text, query_D)
        search = search_hops(index, query)
        rows = hop_rows(index, query, search.alone, search.reached_P)
        by_split[training.split_of[question.id]].append(QuestionRows(rows, gold, search.reached_P))
    return by_split


def labels(rows: HopRows, document_C: Ints, gold: frozenset[int]) -> tuple[Ints, NDArray[np.bool_]]:
    """(labels int64[X], mask of the training rows bool[X]).

    The label is 1 for rows of the first candidate of each gold document, if they have no way or one whose bridge is in a gold document.
    The other rows of gold documents (their other passages, and ways to them from other bridges) are not trained on.
    """
    gold_C = np.isin(document_C, list(gold))
    first_C = np.zeros(len(gold_C), np.bool_)
    first_C[np.unique(document_C, return_index=True)[1]] = True
    alone_X = rows.way_X < 0
    bridge_X = np.zeros(len(alone_X), np.int64)
    bridge_X[~alone_X] = rows.ways.bridge_K[rows.way_X[~alone_X]]
    positive_X = (gold_C & first_C)[rows.candidate_X] & (alone_X | gold_C[bridge_X])
    return positive_X.astype(np.int64), ~gold_C[rows.candidate_X] | positive_X


def hop_examples(questions: Sequence[tuple[Index, QuestionRows]]) -> HopExamples:
    """The training rows of some questions, with their labels."""
    features, labels_of = [], []
    for index, question in questions:
        document_C = index.data.passage_document_P[question.rows.candidates_C]
        label_X, used_X = labels(question.rows, document_C, question.gold)
        features.append(question.rows.features_XF[used_X])
        labels_of.append(label_X[used_X])
    return HopExamples(np.concatenate(features), np.concatenate(labels_of))


TOP_DOCUMENTS = 5
"""The number of top-ranked documents in which Recall@5 and all gold@5 look for gold documents."""
TOP_PASSAGES = 100
"""The number of best passages that determine the first TOP_DOCUMENTS documents."""
ABOUT = """Gradient-boosted trees that rerank the results of the mode `hops` and the passages that they lead to. Their features describe \
a question, a way (a passage and an entity that it mentions) and a passage. Made by `modegraph train selector --size hop`; no language \
model is called. The trees are fitted on the train questions, with early stopping on the dev questions; the figures are measured on the test questions, \
which were used for neither (their passages are in the same index)."""
USE = """## Use

`modegraph ask INDEX "question" --mode hops --selector FOLDER` (and `eval retrieval --selector FOLDER`), with an index made with the same encoder. \
`hop.safetensors` contains the trees as plain arrays; `selector.json` contains all settings and figures."""


@dataclass(frozen=True)
class HopGain:
    """The test questions of one index: mean Recall@5 and all gold@5, without and with the trees, and the standard error of the gain in recall."""

    index: str
    questions: int
    recall_before: float
    recall: float
    standard_error: float
    all_gold_before: float
    all_gold: float


@dataclass(frozen=True)
class HopRecord:
    """The origin of a trained hop, and its figures. `questions` maps the name of each index to the fingerprint of its question file."""

    size: str
    questions: Mapping[str, str]
    encoder: str
    features: tuple[str, ...]
    settings: Mapping[str, Any]
    question_counts: Mapping[str, int]
    examples: Mapping[str, int]
    trees: int
    ranked: tuple[HopGain, ...]
    train_seconds: float
    versions: Mapping[str, str]

    @property
    def figures(self) -> dict[str, float]:
        """Recall@5 on the test questions of each index, without and with the trees."""
        before = {f"test Recall@5 before, {each.index}": each.recall_before for each in self.ranked}
        return before | {f"test Recall@5, {each.index}": each.recall for each in self.ranked}


def train_hop(settings: SelectorSettings) -> HopRecord:
    """Read, search, train, measure and save; UserError, before training, for unusable questions or an output that exists."""
    with fresh_folder(Path(settings.output), about=about_run("selector", settings)) as folder:
        indexes = read_indexes(settings.data, settings.hop.questions)
        index_rows = [(each, find_rows_by_split(each)) for each in indexes]
        by_split = {
            split: [(each.index, question) for each, questions in index_rows for question in questions[split]]
            for split in SPLITS
        }
        examples = {split: hop_examples(by_split[split]) for split in ("train", "dev")}
        for split, rows in examples.items():
            positive = int(rows.label_n.sum())
            say(f"{split}: {len(by_split[split]):,} questions, {len(rows.label_n):,} rows, {positive:,} positive")
            check_both_classes(split, "positive", (rows.label_n == 1).tolist(), "give more questions")
        start = time.perf_counter()
        forest = fit_forest(examples["train"], examples["dev"], settings)
        hop = Hop(forest, indexes[0].index.encoder_source.fingerprint)
        seconds = time.perf_counter() - start
        save_hop(folder, hop)
        record = HopRecord(
            size=settings.size,
            questions={each.name: each.fingerprint for each in indexes},
            encoder=hop.encoder,
            features=HOP_FEATURES,
            settings=settings.recorded(),
            question_counts={split: len(questions) for split, questions in by_split.items()},
            examples={split: len(rows.label_n) for split, rows in examples.items()},
            trees=len(forest.root_T),
            ranked=tuple(
                measure_gain(hop, each, questions["test"]) for each, questions in index_rows if questions["test"]
            ),
            train_seconds=seconds,
            versions=library_versions(),
        )
        (folder / "README.md").write_text(hop_card(record), encoding="utf-8")
        write_json(folder / "selector.json", asdict(record) | {"figures": record.figures})
    return record


def measure_gain(hop: Hop, training: TrainingIndex, questions: Sequence[QuestionRows]) -> HopGain:
    """The figures of an index's test questions, with and without the trees."""
    figures = []
    for question in questions:
        logits_X = forest_logits(hop.forest, question.rows.features_XF)
        best_C = best_rows(logits_X, question.rows.candidate_X, len(question.rows.candidates_C))
        scores_P = scores_of_all_passages(question.reached_P, question.rows.candidates_C, logits_X[best_C])
        before_and_after = (question.reached_P, scores_P)
        figures.append([gold_recall(training.index, scores, question.gold) for scores in before_and_after])
    share_Q2 = np.array(figures, np.float64)
    gain_Q = share_Q2[:, 1] - share_Q2[:, 0]
    before, after = share_Q2.mean(axis=0).tolist()
    all_before, all_after = (share_Q2 == 1).mean(axis=0).tolist()
    return HopGain(training.name, len(questions), before, after, standard_error(gain_Q), all_before, all_after)


def gold_recall(index: Index, scores_P: Floats, gold: frozenset[int]) -> float:
    """The share of the gold documents that are among the first TOP_DOCUMENTS."""
    passages = top_rows(scores_P, TOP_PASSAGES)
    first = list(dict.fromkeys(index.data.passage_document_P[passages].tolist()))[:TOP_DOCUMENTS]
    return len(gold.intersection(first)) / len(gold)


def hop_card(record: HopRecord) -> str:
    """The model card: Markdown with front matter for model hubs."""
    facts = [
        ("encoder", record.encoder),
        *((f"fingerprint of the questions of {name}", fingerprint) for name, fingerprint in record.questions.items()),
        *((f"{split} questions", f"{count:,}") for split, count in record.question_counts.items()),
        *((f"{split} rows", f"{count:,}") for split, count in record.examples.items()),
        ("trees", record.trees),
        ("seconds of training", f"{record.train_seconds:.1f}"),
    ]
    rows = [
        (
            each.index,
            each.questions,
            f"{each.recall_before:.3f}",
            f"{each.recall:.3f}",
            f"{each.recall - each.recall_before:+.3f} ± {each.standard_error:.3f}",
            f"{each.all_gold_before:.3f}",
            f"{each.all_gold:.3f}",
        )
        for each in record.ranked
    ]
    header = (
        "index",
        "questions",
        "Recall@5 without trees",
        "Recall@5",
        "gain ± one standard error",
        "all gold@5 without trees",
        "all gold@5",
    )
    sections = [
        "---\nlibrary_name: modegraph\npipeline_tag: text-ranking\n---",
        "# A second hop for `hops`",
        ABOUT,
        markdown_table(("property", "value"), facts),
        "## Test",
        markdown_table(header, rows),
        *closing_sections(record.features, USE, record.versions),
    ]
    return "\n\n".join(sections) + "\n"

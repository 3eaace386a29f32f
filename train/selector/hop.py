"""`modegraph train selector --size hop`: indexes and their questions in, a folder out by which `hops` ranks its second hop.

Train grows the trees, dev stops them, test is only measured on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from graph.documents.questions import SPLITS
from graph.index.index import Index
from graph.retrieve.hop.judge import Hop, best_rows, save_hop, with_others
from graph.retrieve.hop.rows import HOP_FEATURES
from graph.retrieve.learned.forest import forest_logits
from graph.retrieve.parts.rank import top_rows
from graph.shared.console import say
from graph.shared.jsonl import write_json
from graph.shared.types import Floats
from train.run.save import about_run, fresh_folder
from train.selector.hop_data import AskedIndex, Looked, examples_of, look_at_questions, read_indexes
from train.selector.settings import SelectorSettings
from train.shared.markdown import table
from train.shared.trees import best_count, fit_trees, to_forest

FOUND = 5
"""Documents of the figures: Recall@5 and all gold@5."""
SEARCHED = 100
"""Passages among which the first FOUND documents are looked for."""
LIBRARIES = ("scikit-learn", "numpy")
ABOUT = """Gradient-boosted trees by which the mode `hops` ranks what it found, and what this leads to, anew. They read what retrieval \
knows of a question, of a way on (a passage and an entity that it mentions) and of a passage. Made by `modegraph train selector --size hop`; no language \
model is called. Trees grow on the questions of train; dev stops them; the figures are of test, whose questions were used for neither \
(its passages stand in the same index)."""
USE = """## Use

`modegraph ask INDEX "question" --mode hops --selector FOLDER` (and `eval retrieval --selector FOLDER`), with an index of the same encoder. \
`hop.safetensors` holds the trees as plain arrays, all settings and figures stand in `selector.json`."""


@dataclass(frozen=True)
class Ranked:
    """Questions of test of one index: mean Recall@5 and all gold@5, `hops` before and with the trees; ± one standard error of the gain."""

    index: str
    questions: int
    recall_before: float
    recall: float
    standard_error: float
    all_gold_before: float
    all_gold: float


@dataclass(frozen=True)
class HopRecord:
    """How a hop came to be, and its figures. `questions` gives the fingerprint of each file by its index's name."""

    size: str
    questions: Mapping[str, str]
    encoder: str
    features: tuple[str, ...]
    settings: Mapping[str, Any]
    asked: Mapping[str, int]
    examples: Mapping[str, int]
    trees: int
    ranked: tuple[Ranked, ...]
    train_seconds: float
    versions: Mapping[str, str]

    @property
    def figures(self) -> dict[str, float]:
        """Recall@5 of the test questions of each index, before and now."""
        before = {f"test Recall@5 before, {each.index}": each.recall_before for each in self.ranked}
        return before | {f"test Recall@5, {each.index}": each.recall for each in self.ranked}


def train_hop(settings: SelectorSettings) -> HopRecord:
    """Read, look, train, measure and save; UserError, before training, for questions that cannot be learned from or a place that is taken."""
    with fresh_folder(Path(settings.output), about=about_run("selector", settings)) as folder:
        indexes = read_indexes(settings.data, settings.hop.questions)
        looked = {each.name: look_at_questions(each) for each in indexes}
        by_split = {
            split: [(each.index, one) for each in indexes for one in looked[each.name][split]] for split in SPLITS
        }
        examples = {split: examples_of(by_split[split]) for split in ("train", "dev")}
        for split, rows in examples.items():
            say(
                f"{split}: {len(by_split[split]):,} questions, {len(rows.label_n):,} rows, {int(rows.label_n.sum()):,} right"
            )
        started = time.perf_counter()
        grown = fit_trees(examples["train"], examples["dev"], settings)
        trees = best_count(grown)
        hop = Hop(to_forest(grown, trees), indexes[0].index.encoder_source.fingerprint)
        seconds = time.perf_counter() - started
        save_hop(folder, hop)
        record = HopRecord(
            size=settings.size,
            questions={each.name: each.fingerprint for each in indexes},
            encoder=hop.encoder,
            features=HOP_FEATURES,
            settings=settings.recorded(),
            asked={split: len(of) for split, of in by_split.items()},
            examples={split: len(rows.label_n) for split, rows in examples.items()},
            trees=trees,
            ranked=tuple(ranked(hop, each, looked[each.name]["test"]) for each in indexes if looked[each.name]["test"]),
            train_seconds=seconds,
            versions={name: version(name) for name in LIBRARIES},
        )
        (folder / "README.md").write_text(hop_card(record), encoding="utf-8")
        write_json(folder / "selector.json", asdict(record))
    return record


def ranked(hop: Hop, asked: AskedIndex, looked: Sequence[Looked]) -> Ranked:
    """The figures of an index's questions."""
    figures = []
    for each in looked:
        logits_X = forest_logits(hop.forest, each.rows.features_XF)
        best_C = best_rows(logits_X, each.rows.candidate_X, len(each.rows.candidates_C))
        scores_P = with_others(each.reached_P, each.rows.candidates_C, logits_X[best_C])
        figures.append([found(asked.index, scores, each.gold) for scores in (each.reached_P, scores_P)])
    share_Q2 = np.array(figures, np.float64)
    gain_Q = share_Q2[:, 1] - share_Q2[:, 0]
    error = float(gain_Q.std(ddof=1) / np.sqrt(len(gain_Q))) if len(gain_Q) > 1 else 0.0
    before, after = share_Q2.mean(axis=0).tolist()
    all_before, all_after = (share_Q2 == 1).mean(axis=0).tolist()
    return Ranked(asked.name, len(looked), before, after, error, all_before, all_after)


def found(index: Index, scores_P: Floats, gold: frozenset[int]) -> float:
    """The share of the gold documents among the first FOUND."""
    passages = top_rows(scores_P, SEARCHED)
    first = list(dict.fromkeys(index.data.passage_document_P[passages].tolist()))[:FOUND]
    return len(gold.intersection(first)) / len(gold)


def hop_card(record: HopRecord) -> str:
    """Markdown with the front matter that model hubs read."""
    facts = [
        ("encoder", record.encoder),
        *((f"questions, {name}", fingerprint) for name, fingerprint in record.questions.items()),
        *((f"questions of {split}", f"{count:,}") for split, count in record.asked.items()),
        *((f"rows of {split}", f"{count:,}") for split, count in record.examples.items()),
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
        "Recall@5 before",
        "Recall@5",
        "gain ± one standard error",
        "all gold@5 before",
        "all gold@5",
    )
    sections = [
        "---\nlibrary_name: modegraph\npipeline_tag: text-ranking\n---",
        "# A second hop for `hops`",
        ABOUT,
        table(("what", "value"), facts),
        "## Test",
        table(header, rows),
        "## Features\n\n" + ", ".join(f"`{name}`" for name in record.features) + ".",
        USE,
        "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in record.versions.items()),
    ]
    return "\n\n".join(sections) + "\n"

"""`modegraph train selector`: trains a light selector on relevance data in seconds and saves it for `--selector`; hop.py trains a second hop.

Trees are fitted on train, with early stopping on dev, where temperature and threshold are chosen; figures are measured on test."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from data_synth.dataset.write import markdown_table
from graph.documents.questions import SPLITS
from graph.retrieve.learned.light import FEATURES, Classifier, save_selector
from graph.shared.console import say
from graph.shared.jsonl import write_json
from graph.trees import forest_logits, probabilities
from train.classifiers import (
    Doubles,
    calibrate,
    calibration_error,
    closing_sections,
    draw_reliability,
    fit_forest,
    library_versions,
    log_loss,
    reliability,
    reliability_table,
    threshold_figures,
    threshold_for,
)
from train.run.save import about_run, fresh_folder
from train.run.settings import SelectorSettings
from train.selector.hop import HopRecord, train_hop
from train.selector.selector_data import (
    HELD_OUT,
    Examples,
    SelectorRecord,
    examples_of,
    rank_datasets,
    read_datasets,
    shares_passages,
)

ABOUT = """Gradient-boosted trees that predict the probability that a proposition helps to answer a question, from features of \
retrieval. Made by `modegraph train selector`; no language model is called. Trees are fitted on train, with early stopping on \
dev, where temperature and threshold are chosen; the test figures cover questions, propositions and passages used neither for fitting nor for these choices."""
SHARING = "For {names}, this holds for the questions only: the splits share passages."
USE = """## Use

`modegraph ask INDEX "question" --mode local --selector FOLDER` (and `eval retrieval --selector FOLDER`), with an index made with \
the same encoder. `selector.safetensors` contains the trees as plain arrays; `selector.json` contains all settings and figures."""
RANKING = """Mean over the questions of the average precision among the propositions of the passages that each question was published with; \
± one standard error of the mean difference."""


def selector_card(record: SelectorRecord) -> str:
    """The model card: Markdown with front matter for model hubs."""
    facts = [
        ("encoder", record.encoder),
        *((f"data, {name}", fingerprint) for name, fingerprint in record.data.items()),
        *((f"{split} rows", f"{count:,}") for split, count in record.examples.items()),
        ("trees", record.trees),
        ("temperature", f"{record.temperature:.3f}"),
        (f"threshold (recall {record.settings['target_recall']:g} on dev)", f"{record.threshold:.4f}"),
        ("seconds of training", f"{record.train_seconds:.1f}"),
        ("seconds of training, all cores together", f"{record.processor_seconds:.1f}"),
    ]
    about = ABOUT
    if record.sharing_passages:
        about += " " + SHARING.format(names=", ".join(record.sharing_passages))
    ranked = [
        (
            each.dataset,
            each.split,
            each.questions,
            f"{each.selector:.3f}",
            f"{each.cosine:.3f}",
            f"{each.selector - each.cosine:+.3f} ± {each.standard_error:.3f}",
        )
        for each in record.ranked
    ]
    header = ("data", "split", "questions", "selector", "cosine", "selector − cosine")
    sections = [
        "---\nlibrary_name: modegraph\npipeline_tag: text-ranking\n---",
        f"# A {record.size} selector of propositions",
        about,
        markdown_table(("property", "value"), facts),
        "## Ranking",
        RANKING,
        markdown_table(header, ranked),
        "## Test",
        markdown_table(("figure", "value"), [(name, f"{value:.4g}") for name, value in record.figures.items()]),
        "## Reliability on test\n\n![reliability](reliability.png)",
        reliability_table(record.reliability, "propositions", "relevant"),
        *closing_sections(record.features, USE, record.versions),
    ]
    return "\n\n".join(sections) + "\n"


def train_selector(settings: SelectorSettings) -> SelectorRecord | HopRecord:
    """Read, train, measure and save; UserError, before training, for unusable data or an output that exists."""
    return train_hop(settings) if settings.size == "hop" else train_light(settings)


def train_light(settings: SelectorSettings) -> SelectorRecord:
    """Train a light selector, which scores propositions."""
    with fresh_folder(Path(settings.output), about=about_run("selector", settings)) as folder:
        datasets = read_datasets([Path(each) for each in settings.data])
        splits = {split: examples_of(datasets, split) for split in SPLITS}
        for split, examples in splits.items():
            say(f"{split}: {len(examples.label_n):,} rows, {int(examples.label_n.sum()):,} of them relevant")
        start, processor_start = time.perf_counter(), time.process_time()
        classifier = fit_classifier(splits["train"], splits["dev"], settings, datasets[0].encoder)
        save_selector(folder, classifier)
        log_odds = {
            split: forest_logits(classifier.forest, splits[split].features_nF) / classifier.temperature
            for split in HELD_OUT
        }
        seconds = (time.perf_counter() - start, time.process_time() - processor_start)
        bins = reliability(probabilities(log_odds["test"], 1.0), splits["test"].label_n)
        record = SelectorRecord(
            size=settings.size,
            data={dataset.name: dataset.fingerprint for dataset in datasets},
            sharing_passages=tuple(dataset.name for dataset in datasets if shares_passages(dataset)),
            encoder=classifier.encoder,
            features=FEATURES,
            settings=settings.recorded(),
            examples={split: len(examples.label_n) for split, examples in splits.items()},
            trees=len(classifier.forest.root_T),
            temperature=classifier.temperature,
            threshold=classifier.threshold,
            ranked=tuple(
                ranked
                for split in HELD_OUT
                for ranked in rank_datasets(splits[split], log_odds[split], [each.name for each in datasets], split)
            ),
            figures=held_out_figures(log_odds["test"], splits["test"], classifier.threshold)
            | {"ECE": calibration_error(bins)},
            reliability=bins,
            train_seconds=seconds[0],
            processor_seconds=seconds[1],
            versions=library_versions(),
        )
        draw_reliability(bins, folder / "reliability.png", "propositions", "relevant")
        (folder / "README.md").write_text(selector_card(record), encoding="utf-8")
        write_json(folder / "selector.json", asdict(record))
    return record


def fit_classifier(train: Examples, dev: Examples, settings: SelectorSettings, encoder: str) -> Classifier:
    """The calibrated light selector."""
    forest = fit_forest(train, dev, settings, settings.positive_weight)
    temperature, probability_n = calibrate(forest, dev)
    threshold = threshold_for(probability_n, dev.label_n, settings.target_recall)
    return Classifier(forest, temperature, threshold, encoder)


def held_out_figures(log_odds_n: Doubles, test: Examples, threshold: float) -> dict[str, float]:
    """The log loss, the log loss of a constant prediction (the share of relevant examples), and the figures at the threshold."""
    share = float(test.label_n.mean())
    constant_n = np.full(len(test.label_n), np.log(share / (1 - share)))
    return {
        "log loss": log_loss(log_odds_n, test.label_n, 1.0),
        "log loss of the share alone": log_loss(constant_n, test.label_n, 1.0),
        **threshold_figures(probabilities(log_odds_n, 1.0), test.label_n, threshold),
    }

"""`modegraph train verifier`: trains a verifier, a folder for `--verifier`, from claims, within about a minute on one core.

Trees are fitted on train, with early stopping on dev, where temperature and threshold are chosen; figures are measured on test. With sentences
that people labelled, a logistic regression over the trees' logit, the features and the overlap of wording is fitted to the train
rows of these sentences, and the dev rows help to set the threshold. Unusable data is rejected before training.
Legend: n claims, S inputs of the second stage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from data_synth.claims.claims import ClaimRow, claim_from_json, claim_problems
from data_synth.dataset.write import markdown_table, stated_origin
from graph.answer.verifier import (
    FEATURES,
    Premise,
    Readings,
    SecondStage,
    WordVerifier,
    missing_words,
    probability_of_readings,
    save_verifier,
    second_stage_inputs,
)
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.shared.console import say
from graph.shared.jsonl import write_json
from graph.types import Floats, Ints
from train.classifiers import (
    Bin,
    calibrate,
    calibration_error,
    check_apart,
    check_both_classes,
    closing_sections,
    count_of,
    distinct_names,
    draw_reliability,
    fit_forest,
    library_versions,
    read_labelled,
    reliability,
    reliability_table,
)
from train.run.save import about_run, fresh_folder
from train.run.settings import VerifierSettings


@dataclass(frozen=True)
class RealSet:
    """A dataset of labelled sentences that the second stage was trained on: the licence it states, its row counts, and
    the verifier's figures on its dev rows, on which the threshold was chosen.
    """

    name: str
    licence: str
    train: int
    dev: int
    auc: float
    supported_marked: float
    unsupported_marked: float


@dataclass(frozen=True)
class VerifierRecord:
    """How a verifier was trained, and its figures on test. `data` maps each dataset's name (`distinct_names`) to its fingerprint,
    `real` lists the datasets of the second stage.

    `kinds`: the number of claims of each kind and the share marked as unsupported. `rule`: the figures of a simple baseline,
    for which a claim is supported if every name and number in it occurs in the passages or their titles.
    """

    data: Mapping[str, str]
    real: tuple[RealSet, ...]
    features: tuple[str, ...]
    settings: Mapping[str, Any]
    claims: Mapping[str, int]
    trees: int
    temperature: float
    threshold: float
    figures: Mapping[str, float]
    rule: Mapping[str, float]
    kinds: Mapping[str, tuple[int, float]]
    reliability: tuple[Bin, ...]
    milliseconds: float
    train_seconds: float
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Claims:
    """Claims of one split. `label_n` is 1 for an unsupported claim; `kind_n` is the kind of each claim."""

    readings: Readings
    label_n: Ints
    kind_n: tuple[str, ...]

    @property
    def features_nF(self) -> Floats:
        """The features that the trees are trained on."""
        return self.readings.features_nF


def read_claims(folders: Sequence[Path]) -> tuple[dict[str, list[ClaimRow]], list[str]]:
    """The rows of each split, and the fingerprint of each folder; UserError for unusable data."""
    rows: dict[str, list[ClaimRow]] = {split: [] for split in SPLITS}
    fingerprints = []
    for folder in folders:
        folder_rows, fingerprint = _read_folder(folder, "`modegraph synth claims`")
        fingerprints.append(fingerprint)
        for split, split_rows in folder_rows.items():
            rows[split] += split_rows
    remedy = "make claims from more documents, or add another --data"
    for split, split_rows in rows.items():
        where = f"{', '.join(map(str, folders))}, {split}"
        check_both_classes(where, "unsupported", [not row.supported for row in split_rows], remedy)
    _check_passages(rows)
    return rows, fingerprints


REAL_SPLITS = ("train", "dev")
"""The splits of labelled sentences that training uses."""


def read_real(folder: Path, names: Sequence[str]) -> tuple[dict[str, dict[str, list[ClaimRow]]], str]:
    """Sentences that people labelled: the train and dev rows of each dataset (those in `names`, or all if it is empty),
    and the folder's fingerprint; UserError for unusable data.
    """
    rows, fingerprint = _read_folder(folder, "`modegraph data import support`")
    available = sorted({row.dataset or folder.resolve().name for split_rows in rows.values() for row in split_rows})
    if unknown := [name for name in names if name not in available]:
        raise UserError(f"{folder}: no set {unknown[0]!r}", f"one of {', '.join(available)}", "fix `real_sets`")
    sets: dict[str, dict[str, list[ClaimRow]]] = {
        name: {split: [] for split in REAL_SPLITS} for name in names or available
    }
    for split in REAL_SPLITS:
        for row in rows.get(split, []):
            if (name := row.dataset or folder.resolve().name) in sets:
                sets[name][split].append(row)
    for name, set_rows in sets.items():
        for split, split_rows in set_rows.items():
            where, remedy = f"{folder}, {name}, {split}", "add such rows, or name only other sets in `real_sets`"
            check_both_classes(where, "unsupported", [not row.supported for row in split_rows], remedy)
    _check_passages({split: [row for set_rows in sets.values() for row in set_rows[split]] for split in REAL_SPLITS})
    return sets, fingerprint


def _read_folder(folder: Path, made_by: str) -> tuple[dict[str, list[ClaimRow]], str]:
    """The rows of a folder's splits, and its fingerprint."""
    expected = f"a row of {made_by}"
    rows, fingerprint = read_labelled(folder, lambda values, _: claim_from_json(values), claim_problems, expected)
    if not rows:
        found = f"{folder}: none of {', '.join(f'{split}.jsonl' for split in SPLITS)}"
        raise UserError(found, f"a folder of {made_by}", f"make the data with {made_by}")
    return rows, fingerprint


def _check_passages(rows: Mapping[str, Sequence[ClaimRow]]) -> None:
    """UserError if two splits share a passage."""
    passages = {
        split: {passage: row.id for row in rows.get(split, ()) for passage in (row.passage, *row.further)}
        for split in SPLITS
    }
    remedy = "make the data again, from all documents in one run"
    check_apart("passage", passages, "splits that share no passage", remedy)


def licences(folder: Path) -> dict[str, str]:
    """The licence of each dataset, from the summary of an imported folder; empty without such a summary."""
    head, tail = "Set ", ", licence"
    return {key[len(head) : -len(tail)]: value for key, value in stated_origin(folder).items() if key.endswith(tail)}


def claims_of(rows: Sequence[ClaimRow]) -> Claims:
    """Rows as arrays."""
    readings = Readings.of((row.claim, _premise(row.title, row.passage, row.further)) for row in rows)
    return Claims(readings, np.array([not row.supported for row in rows], np.int64), tuple(row.kind for row in rows))


@lru_cache(maxsize=64)
def _premise(title: str, passage: str, further: tuple[str, ...]) -> Premise:
    """The passages that a claim is checked against, analysed; cached, because the claims of a passage follow one another."""
    return Premise.of([(title, passage), *(("", text) for text in further)])


def by_kind(claims: Claims, marked_n: Sequence[bool]) -> Mapping[str, tuple[int, float]]:
    """The number of claims of each kind, and the share that is marked; supported kinds first."""
    marks_of: dict[tuple[int, str], list[bool]] = {}
    for label, kind, marked in zip(claims.label_n.tolist(), claims.kind_n, marked_n, strict=True):
        marks_of.setdefault((label, kind), []).append(bool(marked))
    return {
        f"{'broken' if label else 'supported'}, {kind}": (len(marks), sum(marks) / len(marks))
        for (label, kind), marks in sorted(marks_of.items())
    }


SECOND = """The trees are the first stage of two. A logistic regression reads their logit, their features and the overlap of wording, each standardised. \
It was fitted to the train rows of the sets below, sentences that people labelled, all sets with equal weight. The threshold is the lowest \
value of at least 0.5 that marks at most {share:g} of the supported dev rows of every set and of the data above; AUC is measured on dev rows, \
to which no weight was fitted. The probability assumes that the share of unsupported sentences is the same as in these train rows. Licences are \
those that the sets state."""
ABOUT = """Gradient-boosted trees that estimate the probability that passages do not support a sentence, by comparing the sentence with them: \
names, numbers, negations, opposites, word order and neighbouring words. Made by `modegraph train verifier` from sentences that rules \
restated or falsified; no encoder and no language model is called. Trees are fitted on train, with early stopping on dev, where temperature and \
threshold are chosen; the test figures are for documents that were used neither for fitting nor for choosing."""
LIMITS = """The verifier compares words, so it may mark a sentence that says the same thing in entirely different words, and miss an error that only \
knowledge of the subject reveals. It recognises negations and opposites in English only."""
USE = """## Use

`modegraph ask INDEX "question" --model SPEC --verifier FOLDER`, and `serve --verifier FOLDER`."""
RULE = "`rule` counts a claim as supported if every name and number in it occurs in the passages or their titles."


def verifier_card(record: VerifierRecord) -> str:
    """Markdown with the front matter that model hubs read."""
    facts = [
        *((f"data, {name}", fingerprint) for name, fingerprint in record.data.items()),
        *((f"{split} claims", f"{count:,}") for split, count in record.claims.items()),
        ("trees", record.trees),
        ("temperature", f"{record.temperature:.3f}"),
        ("threshold", f"{record.threshold:.4f}"),
        ("milliseconds per claim for its features, all cores together", f"{record.milliseconds:.2f}"),
    ]
    measured = [
        (name, f"{value:.3f}", f"{record.rule[name]:.3f}" if name in record.rule else "–")
        for name, value in record.figures.items()
    ]
    kinds = [(kind, f"{count:,}", f"{share:.3f}") for kind, (count, share) in record.kinds.items()]
    real = [
        (
            each.name,
            each.licence,
            f"{each.train:,}",
            f"{each.dev:,}",
            f"{each.auc:.3f}",
            f"{each.supported_marked:.3f}",
            f"{each.unsupported_marked:.3f}",
        )
        for each in record.real
    ]
    heads = ("set", "licence", "train", "dev", "AUC", "supported marked", "unsupported marked")
    second = SECOND.format(share=record.settings["max_marked"])
    sections = [
        "---\nlibrary_name: modegraph\npipeline_tag: text-classification\n---",
        "# A verifier of cited sentences",
        f"{ABOUT}\n\n{LIMITS}",
        markdown_table(("property", "value"), facts),
        *([f"## Sentences labelled by people\n\n{second}", markdown_table(heads, real)] if real else []),
        f"## Test: restated and falsified sentences\n\n{RULE}",
        markdown_table(("figure", "verifier", "rule"), measured),
        markdown_table(("kind", "claims", "share marked as unsupported"), kinds),
        "## Reliability on test\n\n![reliability](reliability.png)",
        reliability_table(record.reliability, "claims", "unsupported"),
        *closing_sections(record.features, USE, record.versions),
    ]
    return "\n\n".join(sections) + "\n"


EVEN_ODDS = 0.5
SET_WEIGHT, INVERSE_L2 = 1000.0, 0.3
"""The total weight of each dataset of labelled sentences in the loss, and the inverse strength of the L2 penalty on the
weights of the second stage."""
WEIGHT_DECIMALS = 4
"""Decimals of the second stage's numbers, too few for differences between processors to show."""


def train_verifier(settings: VerifierSettings) -> VerifierRecord:
    """Read, train, measure and save; UserError, before training, for unusable data or an output folder that exists."""
    with fresh_folder(Path(settings.output), about=about_run("verifier", settings)) as folder:
        folders = [Path(name) for name in settings.data]
        rows, fingerprints = read_claims(folders)
        real, licence_of = dict[str, dict[str, list[ClaimRow]]](), dict[str, str]()
        if settings.real:
            folders.append(Path(settings.real))
            real, fingerprint = read_real(folders[-1], settings.real_sets)
            fingerprints.append(fingerprint)
            licence_of = licences(folders[-1])
        wall_start, processor_start = time.perf_counter(), time.process_time()
        splits = {split: claims_of(split_rows) for split, split_rows in rows.items()}
        milliseconds = 1000 * (time.process_time() - processor_start) / sum(map(len, rows.values()))
        say(", ".join(f"{split}: {len(split_rows):,} claims" for split, split_rows in rows.items()))
        verifier = fit_verifier(splits["train"], splits["dev"], settings)
        sets = {
            name: {split: claims_of(split_rows) for split, split_rows in set_rows.items()}
            for name, set_rows in real.items()
        }
        if sets:
            train = {name: claims["train"] for name, claims in sets.items()}
            dev = [splits["dev"], *(claims["dev"] for claims in sets.values())]
            verifier = add_second_stage(verifier, train, dev, settings.max_marked)
        save_verifier(folder, verifier)
        test = splits["test"]
        probability_n = probability_of_readings(verifier, test.readings)
        bins = reliability(probability_n, test.label_n)
        record = VerifierRecord(
            data=dict(zip(distinct_names(folders), fingerprints, strict=True)),
            real=tuple(
                _real_set(verifier, name, licence_of.get(name, "not stated"), claims) for name, claims in sets.items()
            ),
            features=FEATURES,
            settings=settings.recorded(),
            claims={split: len(split_rows) for split, split_rows in rows.items()},
            trees=len(verifier.forest.root_T),
            temperature=verifier.temperature,
            threshold=verifier.threshold,
            figures=figures(probability_n, test.label_n, verifier.threshold) | {"ECE": calibration_error(bins)},
            rule=marked_figures(rule_marks(rows["test"]), test.label_n),
            kinds=by_kind(test, (probability_n >= verifier.threshold).tolist()),
            reliability=bins,
            milliseconds=milliseconds,
            train_seconds=time.perf_counter() - wall_start,
            versions=library_versions(),
        )
        draw_reliability(bins, folder / "reliability.png", "claims", "unsupported")
        (folder / "README.md").write_text(verifier_card(record), encoding="utf-8")
        write_json(folder / "verifier.json", asdict(record))
    return record


def fit_verifier(train: Claims, dev: Claims, settings: VerifierSettings) -> WordVerifier:
    """The calibrated verifier."""
    forest = fit_forest(train, dev, settings)
    temperature, probability_n = calibrate(forest, dev)
    return WordVerifier(forest, temperature, threshold_of(probability_n[dev.label_n == 0], settings.false_marks))


def add_second_stage(
    verifier: WordVerifier, train: Mapping[str, Claims], dev: Sequence[Claims], max_marked: float
) -> WordVerifier:
    """The verifier with a second stage fitted to `train`, claims by dataset, all datasets with equal weight. Its threshold is
    the lowest that marks, in each of `dev`, at most a share `max_marked` of the supported claims, but at least EVEN_ODDS.
    """
    second = fit_second_stage(
        np.concatenate([second_stage_inputs(verifier.forest, claims.readings) for claims in train.values()]),
        np.concatenate([claims.label_n for claims in train.values()]),
        np.concatenate([np.full(len(claims.label_n), SET_WEIGHT / len(claims.label_n)) for claims in train.values()]),
    )
    stacked = replace(verifier, second=second)
    supported = [probability_of_readings(stacked, claims.readings)[claims.label_n == 0] for claims in dev]
    return replace(stacked, threshold=max(threshold_of(supported_n, max_marked) for supported_n in supported))


def fit_second_stage(input_nS: NDArray[np.float64], label_n: Ints, weight_n: NDArray[np.float64]) -> SecondStage:
    """Logistic regression with an L2 penalty: minimises ½|w|² + INVERSE_L2 · Σ weight · −ln p(label), over
    standardised inputs.

    A constant input gets a deviation of 1, and so no influence.
    """
    deviation_S = input_nS.std(axis=0)
    scale_S = np.where(deviation_S < 10**-WEIGHT_DECIMALS, 1.0, np.round(deviation_S, WEIGHT_DECIMALS))
    unfitted = SecondStage(np.zeros_like(scale_S), np.round(input_nS.mean(axis=0), WEIGHT_DECIMALS), scale_S, 0.0)
    model = LogisticRegression(C=INVERSE_L2, tol=1e-8, max_iter=10_000)
    model.fit(unfitted.standardised(input_nS), label_n, sample_weight=weight_n)
    weight_S, bias = np.round(model.coef_[0], WEIGHT_DECIMALS), round(float(model.intercept_[0]), WEIGHT_DECIMALS)
    return replace(unfitted, weight_S=weight_S, bias=bias)


def _real_set(verifier: WordVerifier, name: str, licence: str, claims: Mapping[str, Claims]) -> RealSet:
    dev = claims["dev"]
    dev_figures = figures(probability_of_readings(verifier, dev.readings), dev.label_n, verifier.threshold)
    marked = dev_figures["supported claims marked"], dev_figures["broken claims marked"]
    return RealSet(name, licence, len(claims["train"].label_n), len(dev.label_n), dev_figures["AUROC"], *marked)


def threshold_of(supported_n: NDArray[np.float64], false_marks: float) -> float:
    """The lowest threshold that at most a share `false_marks` of the supported claims reach, but at least EVEN_ODDS.

    >>> round(threshold_of(np.array([0.1, 0.2, 0.95, 0.99]), 0.25), 6), threshold_of(np.array([0.1, 0.2]), 0.5)
    (0.950001, 0.5)
    """
    below = np.sort(supported_n)[count_of(1 - false_marks, len(supported_n)) - 1]
    return max(float(below) + 1e-6, EVEN_ODDS)


def rule_marks(rows: Sequence[ClaimRow]) -> NDArray[np.bool_]:
    """Which claims have a name or number that occurs neither in their passages nor in the titles: [n]."""
    marks = [bool(missing_words(row.claim, _premise(row.title, row.passage, row.further))) for row in rows]
    return np.array(marks, np.bool_)


def figures(probability_n: NDArray[np.float64], label_n: Ints, threshold: float) -> dict[str, float]:
    """`marked_figures` at the threshold, and the AUROC of the probabilities."""
    return marked_figures(probability_n >= threshold, label_n) | {"AUROC": float(roc_auc_score(label_n, probability_n))}


def marked_figures(marked_n: NDArray[np.bool_], label_n: Ints) -> dict[str, float]:
    """Balanced accuracy, and the shares of broken and of supported claims that are marked."""
    return {
        "balanced accuracy": float(balanced_accuracy_score(label_n, marked_n)),
        "broken claims marked": float(marked_n[label_n == 1].mean()),
        "supported claims marked": float(marked_n[label_n == 0].mean()),
    }

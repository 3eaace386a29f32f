"""`modegraph train verifier`: claims in, a folder that `--verifier` takes out. Seconds on one core.

Trees grow on train; dev stops them, sets temperature and threshold; test is only measured on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from data_synth.claims.types import ClaimRow
from graph.retrieve.learned.classifier import probabilities
from graph.retrieve.learned.forest import forest_logits
from graph.shared.console import say
from graph.shared.jsonl import write_json
from graph.shared.types import Ints
from graph.verify.features import FEATURES, Ground, missing_words
from graph.verify.verifier import Verifier, save_verifier, unsupported
from train.run.save import about_run, fresh_folder
from train.shared.calibrate import calibration_error, fit_temperature, reliability
from train.shared.reliability_figure import draw_reliability
from train.shared.trees import best_count, fit_trees, to_forest
from train.verifier.card import verifier_card
from train.verifier.data import Claims, by_kind, claims_of, read_claims
from train.verifier.settings import VerifierSettings
from train.verifier.types import VerifierRecord

RECORD, PLOT, CARD = "verifier.json", "reliability.png", "README.md"
LIBRARIES = ("scikit-learn", "numpy")
EVEN_ODDS = 0.5


def train_verifier(settings: VerifierSettings) -> VerifierRecord:
    """Read, train, measure and save; UserError, before training, for data that cannot be learned from or a place that is taken."""
    with fresh_folder(Path(settings.output), about=about_run("verifier", settings)) as folder:
        rows, fingerprints = read_claims([Path(each) for each in settings.data])
        began, started = time.perf_counter(), time.process_time()
        splits = {split: claims_of(of) for split, of in rows.items()}
        milliseconds = 1000 * (time.process_time() - started) / sum(map(len, rows.values()))
        say(", ".join(f"{split}: {len(of):,} claims" for split, of in rows.items()))
        verifier, trees = fit_verifier(splits["train"], splits["dev"], settings)
        save_verifier(folder, verifier)
        test = splits["test"]
        probability_n = unsupported(verifier, test.features_nF)
        bins = reliability(probability_n, test.label_n)
        record = VerifierRecord(
            data=fingerprints,
            features=FEATURES,
            settings=settings.recorded(),
            claims={split: len(of) for split, of in rows.items()},
            trees=trees,
            temperature=verifier.temperature,
            threshold=verifier.threshold,
            figures=figures(probability_n, test.label_n, verifier.threshold) | {"ECE": calibration_error(bins)},
            rule=marked_figures(rule_marks(rows["test"]), test.label_n),
            kinds=by_kind(test, (probability_n >= verifier.threshold).tolist()),
            reliability=bins,
            milliseconds=milliseconds,
            train_seconds=time.perf_counter() - began,
            versions={name: version(name) for name in LIBRARIES},
        )
        draw_reliability(bins, folder / PLOT, "claims", "unsupported")
        (folder / CARD).write_text(verifier_card(record), encoding="utf-8")
        write_json(folder / RECORD, asdict(record))
    return record


def fit_verifier(train: Claims, dev: Claims, settings: VerifierSettings) -> tuple[Verifier, int]:
    """The calibrated verifier, and how many trees it has."""
    grown = fit_trees(train, dev, settings)
    count = best_count(grown)
    forest = to_forest(grown, count)
    logits_n = forest_logits(forest, dev.features_nF)
    temperature = fit_temperature(logits_n, dev.label_n)
    probability_n = probabilities(logits_n, temperature)
    return Verifier(forest, temperature, threshold_of(probability_n[dev.label_n == 0], settings.false_marks)), count


def threshold_of(supported_n: NDArray[np.float64], false_marks: float) -> float:
    """The lowest threshold that at most a share `false_marks` of the supported claims reach, but no less than EVEN_ODDS.

    >>> round(threshold_of(np.array([0.1, 0.2, 0.95, 0.99]), 0.25), 6), threshold_of(np.array([0.1, 0.2]), 0.5)
    (0.950001, 0.5)
    """
    below = np.sort(supported_n)[: int(np.ceil((1 - false_marks) * len(supported_n)))]
    return float(np.clip(below[-1] + 1e-6, EVEN_ODDS, 1.0))


def rule_marks(rows: Sequence[ClaimRow]) -> NDArray[np.bool_]:
    """Which claims have a name or number that stands nowhere in their passage: [n]."""
    return np.array([bool(missing_words(row.claim, Ground.of([(row.title, row.passage)]))) for row in rows], np.bool_)


def figures(probability_n: NDArray[np.float64], label_n: Ints, threshold: float) -> dict[str, float]:
    """What the threshold marks, and how well probabilities rank."""
    return marked_figures(probability_n >= threshold, label_n) | {"AUROC": float(roc_auc_score(label_n, probability_n))}


def marked_figures(marked_n: NDArray[np.bool_], label_n: Ints) -> dict[str, float]:
    """Balanced accuracy, and the shares of broken and of supported claims that are marked."""
    return {
        "balanced accuracy": float(balanced_accuracy_score(label_n, marked_n)),
        "broken claims marked": float(marked_n[label_n == 1].mean()),
        "supported claims marked": float(marked_n[label_n == 0].mean()),
    }

"""`modegraph train verifier`: claims in, a folder that `--verifier` takes out. Seconds on one core.

Trees grow on train; dev stops them and sets temperature and threshold; test is only measured on. What cannot be learned from is refused
before training. Legend: n claims, F features."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from data_synth.claims.claims import ClaimRow, claim_from_json, claim_problems
from graph.answer.verifier import (
    FEATURES,
    Ground,
    Verifier,
    claim_features,
    missing_words,
    probability_of_features,
    save_verifier,
)
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.shared.console import say
from graph.shared.ids import checksum, content_id
from graph.shared.jsonl import read_jsonl, write_json
from graph.trees import forest_logits, probabilities
from graph.types import Floats, Ints
from train.run.record import markdown_table
from train.run.save import about_run, fresh_folder
from train.run.settings import VerifierSettings
from train.shared.calibrate import Bin, calibration_error, draw_reliability, fit_temperature, reliability
from train.shared.labelled import check_apart
from train.shared.trees import best_count, fit_trees, to_forest


@dataclass(frozen=True)
class VerifierRecord:
    """How a verifier came to be, and its figures on test. `data` gives the fingerprint of each dataset by its folder's name.

    `kinds`: claims of each kind and the share that is marked as unsupported. `rule` are the figures of the rule that it replaces,
    without its cosine: every name and number of a claim stands in the passages.
    """

    data: Mapping[str, str]
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


MADE_BY = "`modegraph synth claims`"


@dataclass(frozen=True)
class Claims:
    """Claims of one split. `label_n` is 1 for an unsupported one; `kind_n` tells how each was made."""

    features_nF: Floats
    label_n: Ints
    kind_n: tuple[str, ...]


def read_claims(folders: Sequence[Path]) -> tuple[dict[str, list[ClaimRow]], dict[str, str]]:
    """The rows of each split, and the fingerprint of each folder by its name; UserError for data that cannot be learned from."""
    rows: dict[str, list[ClaimRow]] = {split: [] for split in SPLITS}
    fingerprints = {}
    for folder in folders:
        files = {split: folder / f"{split}.jsonl" for split in SPLITS if (folder / f"{split}.jsonl").is_file()}
        if not files:
            raise UserError(f"{folder}: no {', '.join(f'{split}.jsonl' for split in SPLITS)}", MADE_BY, "make the data")
        for split, file in files.items():
            rows[split] += _read(file, split)
        fingerprints[folder.resolve().name] = content_id(*(checksum(file) for file in files.values()))
    for split, of in rows.items():
        broken = sum(not row.supported for row in of)
        if not 0 < broken < len(of):
            found = f"{split}: {broken:,} broken of {len(of):,} claims"
            raise UserError(
                found, "both in train, dev and test", "make claims of more documents, or add another --data"
            )
    passages = {split: {row.passage: row.id for row in of} for split, of in rows.items()}
    check_apart("passage", passages, "splits that share no passage", "make the data again, of all documents at once")
    return rows, fingerprints


def _read(file: Path, split: str) -> list[ClaimRow]:
    """The rows of a split's file; UserError with file and line for a malformed one."""
    found = []
    for number, raw in read_jsonl(file):
        try:
            row = claim_from_json(raw)
            problems = claim_problems(row)
        except (KeyError, TypeError) as problem:
            problems = [f"{type(problem).__name__}: {problem}"]
        else:
            problems += [f"split is {row.split!r}, expected {split!r}"] if row.split != split else []
        if problems:
            raise UserError(f"{file} line {number}: {problems[0]}", f"a row of {MADE_BY}", "make the data again")
        found.append(row)
    return found


def claims_of(rows: Sequence[ClaimRow]) -> Claims:
    """Rows as arrays."""
    features = [claim_features(row.claim, _ground(row.title, row.passage)) for row in rows]
    return Claims(
        np.stack(features), np.array([not row.supported for row in rows], np.int64), tuple(row.kind for row in rows)
    )


@lru_cache(maxsize=64)
def _ground(title: str, passage: str) -> Ground:
    """The claims of a passage follow one another."""
    return Ground.of([(title, passage)])


def by_kind(claims: Claims, marked_n: Sequence[bool]) -> Mapping[str, tuple[int, float]]:
    """How many claims there are of each kind, and the share that is marked; supported kinds first."""
    places: dict[tuple[int, str], list[bool]] = {}
    for label, kind, marked in zip(claims.label_n.tolist(), claims.kind_n, marked_n, strict=True):
        places.setdefault((label, kind), []).append(bool(marked))
    return {
        f"{'broken' if label else 'supported'}, {kind}": (len(marks), sum(marks) / len(marks))
        for (label, kind), marks in sorted(places.items())
    }


ABOUT = """Gradient-boosted trees that say how likely it is that passages do not say what a sentence says, from the words that both share: \
names, numbers, negations, opposites, their order and their neighbours. Made by `modegraph train verifier` from sentences that rules \
restated and broke on purpose; no encoder and no language model is called. Trees grow on train; dev stops them and sets temperature and \
threshold; the figures of test are of documents that were used for neither."""
LIMITS = """Words are what is read, so a sentence that says the same in wholly other words may be marked, and one that is wrong in a way that \
needs knowledge may pass. Negations and opposites are known in English only."""
USE = '`modegraph ask INDEX "question" --model SPEC --verifier FOLDER`, and `serve --verifier FOLDER`.'
RULE = "`rule`: every name and number of the claim stands somewhere in the passages or their titles."


def verifier_card(record: VerifierRecord) -> str:
    """Markdown with the front matter that model hubs read."""
    facts = [
        *((f"data, {name}", fingerprint) for name, fingerprint in record.data.items()),
        *((f"claims of {split}", f"{count:,}") for split, count in record.claims.items()),
        ("trees", record.trees),
        ("temperature", f"{record.temperature:.3f}"),
        (f"threshold ({record.settings['false_marks']:g} of dev's supported claims)", f"{record.threshold:.4f}"),
        ("milliseconds a claim, of one core, features included", f"{record.milliseconds:.2f}"),
    ]
    measured = [
        (name, f"{value:.3f}", f"{record.rule[name]:.3f}" if name in record.rule else "–")
        for name, value in record.figures.items()
    ]
    kinds = [(kind, f"{count:,}", f"{share:.3f}") for kind, (count, share) in record.kinds.items()]
    bins = [
        (f"{b.low:g} to {b.high:g}", f"{b.examples:,}", f"{b.mean_probability:.3f}", f"{b.share_relevant:.3f}")
        for b in record.reliability
    ]
    sections = [
        "---\nlibrary_name: modegraph\npipeline_tag: text-classification\n---",
        "# A verifier of cited sentences",
        f"{ABOUT}\n\n{LIMITS}",
        markdown_table(("what", "value"), facts),
        f"## Test\n\n{RULE}",
        markdown_table(("figure", "verifier", "rule"), measured),
        markdown_table(("claim", "claims", "share marked as unsupported"), kinds),
        "## Reliability on test\n\n![reliability](reliability.png)",
        markdown_table(("probability", "claims", "mean probability", "share unsupported"), bins),
        "## Features\n\n" + ", ".join(f"`{name}`" for name in record.features) + ".",
        f"## Use\n\n{USE}",
        "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in record.versions.items()),
    ]
    return "\n\n".join(sections) + "\n"


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
        probability_n = probability_of_features(verifier, test.features_nF)
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

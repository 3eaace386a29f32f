"""A verifier: how likely it is that passages do not say what a sentence says. Trees over FEATURES; no encoder and no model is called.

`modegraph train verifier` writes the file; one comes with the package (SHIPPED, made from examples/). Nothing in it is code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graph.retrieve.learned.forest import (
    Forest,
    forest_from,
    forest_logits,
    probabilities,
    read_forests,
    save_forest,
    trained_file,
)
from graph.shared.types import Floats
from graph.verify.features import FEATURES, Ground, claim_features

VERIFIER_FILE = "verifier.safetensors"
FORMAT = "modegraph verifier, 2"
HEADER = "verifier"
SHIPPED = Path(__file__).parent / VERIFIER_FILE


@dataclass(frozen=True)
class Verifier:
    """A forest of logits, what makes probabilities of them, and the probability from which a sentence is marked as unsupported."""

    forest: Forest
    temperature: float
    threshold: float


def unsupported(verifier: Verifier, features_nF: Floats) -> NDArray[np.float64]:
    """The probability of each claim, given its FEATURES, to be unsupported: [n]."""
    return probabilities(forest_logits(verifier.forest, features_nF), verifier.temperature)


def judge(verifier: Verifier, claims: Sequence[str], ground: Ground) -> NDArray[np.float64]:
    """The probability of each claim to be unsupported by the passages of `ground`: [n]."""
    if not claims:
        return np.zeros(0)
    return unsupported(verifier, np.stack([claim_features(claim, ground) for claim in claims]))


def save_verifier(folder: Path, verifier: Verifier) -> None:
    """Write VERIFIER_FILE into `folder`."""
    facts = {
        "format": FORMAT,
        "features": FEATURES,
        "temperature": verifier.temperature,
        "threshold": verifier.threshold,
    }
    save_forest(folder / VERIFIER_FILE, HEADER, facts, verifier.forest)


def open_verifier(spec: str) -> Verifier:
    """The verifier in a folder or on the hub, "" for the one that comes with the package; UserError for anything else."""
    file = trained_file(spec, "verifier", VERIFIER_FILE) if spec else SHIPPED
    return _load(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(file: Path, changed_ns: int) -> Verifier:
    del changed_ns
    with read_forests(file, HEADER, FORMAT, FEATURES) as (opened, header):
        forest = forest_from(opened, "", header, len(FEATURES))
        return Verifier(forest, float(header["temperature"]), float(header["threshold"]))

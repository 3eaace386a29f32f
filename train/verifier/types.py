"""What a finished verifier tells of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from train.shared.calibrate import Bin


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

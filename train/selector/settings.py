"""The settings of `modegraph train selector`. The size of the trees was chosen on the dev splits of two public sets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from graph.encode.encoder import MINILM
from graph.shared.config import Settings
from train.shared.labelled import Folders


class CrossSettings(Settings):
    """The cross-encoder of `size: cross`. `start` is the sentence encoder that it starts from.

    Of each question up to `positives` relevant pairs are learned from, the `hard_negatives` that the light selector likes best and
    `random_negatives` of the others. Every `eval_steps` dev is ranked, of each question the best `eval_depth` anew, and training ends
    when the MAP has not risen `patience_evaluations` times. At query time the best `depth` are read.
    """

    start: str = MINILM
    positives: int = Field(default=4, ge=1)
    hard_negatives: int = Field(default=4, ge=0)
    random_negatives: int = Field(default=2, ge=0)
    epochs: float = Field(default=1, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=32, ge=1)
    max_length_tokens: int = Field(default=80, ge=16, le=512)
    learning_rate: float = Field(default=1e-4, gt=0)
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    eval_steps: int = Field(default=56, ge=1)
    eval_depth: int = Field(default=8, ge=1)
    patience_evaluations: int = Field(default=2, ge=1)
    logging_steps: int = Field(default=20, ge=1)
    depth: int = Field(default=16, ge=1)


class SelectorSettings(Settings):
    """`data` are folders that `synth relevance` wrote. `target_recall` is the share of dev's relevant propositions to keep.

    `positive_weight` is what a relevant example counts for in the loss (others count 1): there are about forty of the others to
    each. What it does to the probabilities is taken back after training. `cross` counts with `size: cross` only.
    """

    data: Folders
    output: str
    size: Literal["light", "cross"] = "light"
    target_recall: float = Field(default=0.9, gt=0, le=1)
    positive_weight: float = Field(default=1.0, gt=0)
    learning_rate: float = Field(default=0.05, gt=0)
    max_trees: int = Field(default=400, ge=1)
    patience_trees: int = Field(default=30, ge=1)
    max_leaves: int = Field(default=8, ge=2)
    min_examples_per_leaf: int = Field(default=40, ge=1)
    l2: float = Field(default=1.0, ge=0)
    seed: int = Field(default=0, ge=0)
    cross: CrossSettings = CrossSettings()

"""The settings of `modegraph train selector`. The size of the trees was chosen on the dev splits of two public sets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from graph.config import Settings


class SelectorSettings(Settings):
    """`data` are folders that `synth relevance` wrote. `target_recall` is the share of dev's relevant propositions to keep.

    `positive_weight` is what a relevant example counts for in the loss (others count 1): there are about forty of the others to
    each. What it does to the probabilities is taken back after training.
    """

    data: tuple[str, ...] = Field(min_length=1)
    output: str
    size: Literal["light"] = "light"
    target_recall: float = Field(default=0.9, gt=0, le=1)
    positive_weight: float = Field(default=1.0, gt=0)
    learning_rate: float = Field(default=0.05, gt=0)
    max_trees: int = Field(default=400, ge=1)
    patience_trees: int = Field(default=30, ge=1)
    max_leaves: int = Field(default=8, ge=2)
    min_examples_per_leaf: int = Field(default=40, ge=1)
    l2: float = Field(default=1.0, ge=0)
    seed: int = Field(default=0, ge=0)

    @field_validator("data")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("each dataset once")
        return value

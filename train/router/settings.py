"""The settings of `modegraph train router`."""

from __future__ import annotations

from pydantic import Field

from graph.shared.config import Settings
from train.shared.labelled import Folders


class RouterSettings(Settings):
    """`data` are folders that `synth route` wrote. `tolerance` is the Recall@5 that may be lost against the best single mode.

    `ms_per_token` is what a model's token counts for beside milliseconds. Prices and margin are chosen on predictions for questions
    that the trees which make them have not seen: `folds` parts of train and dev, each predicted from the others.
    """

    data: Folders
    output: str
    tolerance: float = Field(default=0.01, ge=0, le=1)
    ms_per_token: float = Field(default=1.0, ge=0)
    trees: int = Field(default=80, ge=1)
    learning_rate: float = Field(default=0.06, gt=0)
    max_leaves: int = Field(default=6, ge=2)
    min_examples_per_leaf: int = Field(default=20, ge=1)
    folds: int = Field(default=5, ge=2)
    seed: int = Field(default=0, ge=0)

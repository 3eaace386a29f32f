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

    data: Folders = Field(description="folders that `synth route` wrote")
    output: str = Field(description="folder to save the router in; must not exist yet")
    tolerance: float = Field(
        default=0.01, ge=0, le=1, description="Recall@5 that may be lost against the best single mode"
    )
    ms_per_token: float = Field(
        default=1.0, ge=0, description="milliseconds that a token of a language model counts for"
    )
    trees: int = Field(default=80, ge=1, description="trees of each predictor")
    learning_rate: float = Field(default=0.06, gt=0, description="learning rate of the trees")
    max_leaves: int = Field(default=6, ge=2, description="leaves of a tree, at most")
    min_examples_per_leaf: int = Field(default=20, ge=1, description="examples in a leaf, at least")
    folds: int = Field(
        default=5,
        ge=2,
        description="parts of train and dev; each is predicted from the others to choose prices and margin",
    )
    seed: int = Field(default=0, ge=0, description="seed of every random choice")

"""The settings of `modegraph train verifier`."""

from __future__ import annotations

from pydantic import Field

from graph.shared.config import Settings
from train.shared.labelled import Folders


class VerifierSettings(Settings):
    """`data` are folders that `synth claims` wrote. `false_marks` is the share of dev's supported claims that may be marked as unsupported."""

    data: Folders = Field(description="folders that `synth claims` wrote")
    output: str = Field(description="folder to save the verifier in; must not exist yet")
    false_marks: float = Field(
        default=0.03, gt=0, lt=1, description="share of dev's supported claims that may be marked as unsupported"
    )
    learning_rate: float = Field(default=0.08, gt=0, description="learning rate of the trees")
    max_trees: int = Field(default=150, ge=1, description="trees, at most")
    patience_trees: int = Field(
        default=30, ge=1, description="trees without a better loss on dev after which training ends"
    )
    max_leaves: int = Field(default=12, ge=2, description="leaves of a tree, at most")
    min_examples_per_leaf: int = Field(default=30, ge=1, description="examples in a leaf, at least")
    l2: float = Field(default=1.0, ge=0, description="L2 penalty on the leaves")
    seed: int = Field(default=0, ge=0, description="seed of every random choice")

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

    start: str = Field(default=MINILM, description="sentence encoder to start from")
    positives: int = Field(default=4, ge=1, description="relevant pairs of a question to learn from, at most")
    hard_negatives: int = Field(
        default=4, ge=0, description="irrelevant pairs of a question that the light selector likes best"
    )
    random_negatives: int = Field(default=2, ge=0, description="irrelevant pairs of a question drawn at random")
    epochs: float = Field(default=1, gt=0, description="passes over the pairs")
    max_steps: int | None = Field(default=None, ge=1, description="training steps, in place of epochs")
    batch_size: int = Field(default=32, ge=1, description="pairs in a step")
    max_length_tokens: int = Field(default=80, ge=16, le=512, description="longest pair, in tokens")
    learning_rate: float = Field(default=1e-4, gt=0, description="peak learning rate")
    warmup_share: float = Field(
        default=0.1, ge=0, lt=1, description="share of the steps over which the learning rate rises from 0"
    )
    eval_steps: int = Field(default=56, ge=1, description="steps between two rankings of dev")
    eval_depth: int = Field(default=8, ge=1, description="propositions of a question that a ranking of dev reads")
    patience_evaluations: int = Field(
        default=2, ge=1, description="rankings without a better MAP after which training ends"
    )
    logging_steps: int = Field(default=20, ge=1, description="steps between two lines of the log")
    depth: int = Field(default=16, ge=1, description="propositions of a question to read at query time")


class HopSettings(Settings):
    """The second hop of `size: hop`, which learns from indexes (`data`) and their questions."""

    questions: tuple[str, ...] = Field(
        default=(), description="file of questions with gold documents for each index of `data`, in its order"
    )


class SelectorSettings(Settings):
    """`data` are folders that `synth relevance` wrote, or indexes for `size: hop`. `target_recall` is the share of dev's relevant propositions to keep.

    `positive_weight` is what a relevant example counts for in the loss (others count 1): there are about forty of the others to
    each. What it does to the probabilities is taken back after training. `cross` counts with `size: cross` only.
    """

    data: Folders = Field(description="folders that `synth relevance` wrote; indexes for `size: hop`")
    output: str = Field(description="folder to save the selector in; must not exist yet")
    size: Literal["light", "cross", "hop"] = Field(
        "light", description="light: trees; cross: a cross-encoder after them; hop: trees for the second hop of `hops`"
    )
    target_recall: float = Field(
        default=0.9, gt=0, le=1, description="share of the relevant propositions of dev that the threshold keeps"
    )
    positive_weight: float = Field(
        default=1.0, gt=0, description="what a relevant example counts for in the loss, others count 1"
    )
    learning_rate: float = Field(default=0.05, gt=0, description="learning rate of the trees")
    max_trees: int = Field(default=400, ge=1, description="trees, at most")
    patience_trees: int = Field(
        default=30, ge=1, description="trees without a better loss on dev after which training ends"
    )
    max_leaves: int = Field(default=8, ge=2, description="leaves of a tree, at most")
    min_examples_per_leaf: int = Field(default=40, ge=1, description="examples in a leaf, at least")
    l2: float = Field(default=1.0, ge=0, description="L2 penalty on the leaves")
    seed: int = Field(default=0, ge=0, description="seed of every random choice")
    cross: CrossSettings = Field(CrossSettings(), description="the cross-encoder of `size: cross`")
    hop: HopSettings = Field(HopSettings(), description="the questions of `size: hop`")

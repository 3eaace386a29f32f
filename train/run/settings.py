"""The settings of every training command, validated as they are read (graph/config.py reads the YAML and the flags).

GraphMPA's recipe is the default of the trainers: learning rate 1e-5, batches of 4, 2 epochs. The size of the selector's trees was chosen on
the dev splits of two public sets. scikit-learn is not imported here, and torch only for `precision: auto`: settings are checked before
anything heavy is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from graph.config import Settings
from graph.models.checkpoint import computes_in_bfloat16


def machine_precision() -> Literal["float32", "bfloat16"]:
    """bfloat16 on a GPU and on CPUs with instructions for it, else float32: without them, bfloat16 is 6 to 90 times slower (docs/log.md)."""
    import torch

    return "bfloat16" if torch.cuda.is_available() or computes_in_bfloat16() else "float32"


def _resolve_auto(precision: Any) -> Any:
    """`auto` replaced by this machine's number format, so that run.json records the one that was used."""
    if precision not in ("float32", "bfloat16", "auto"):
        raise ValueError("expected 'float32', 'bfloat16' or 'auto'")
    return machine_precision() if precision == "auto" else precision


class TinySettings(Settings):
    """A tokenizer and a small Llama trained from scratch on `texts`: a stand-in for a pretrained model."""

    texts: str = Field(description="folder or .jsonl of documents, or folder of preference data, to train on")
    output: str = Field(description="folder to save the model in; must be new or empty")
    vocabulary: int = Field(default=3000, ge=512, description="tokens in the vocabulary")
    hidden_size: int = Field(default=128, ge=16, description="width of the model")
    layers: int = Field(default=4, ge=1, description="transformer layers")
    heads: int = Field(default=4, ge=1, description="attention heads")
    context_tokens: int = Field(default=1024, ge=64, description="longest context of the model, in tokens")
    steps: int = Field(default=200, ge=1, description="training steps")
    batch_size: int = Field(default=16, ge=1, description="blocks in a step")
    block_tokens: int = Field(default=128, ge=8, description="length of a block of text, in tokens")
    learning_rate: float = Field(default=3e-3, gt=0, description="peak learning rate")
    seed: int = Field(default=0, ge=0, lt=2**32, description="seed of every random choice")


class LoraSettings(Settings):
    """A low-rank adapter, by default on every linear layer except the output head (which TRL's losses read directly)."""

    rank: int = Field(default=16, ge=1, description="rank of the adapter")
    alpha: int = Field(default=32, ge=1, description="scale of the adapter: alpha / rank")
    targets: tuple[str, ...] = Field(
        default=(), description="names of the linear layers that get an adapter, such as q_proj; empty: all"
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout before the adapter, only in SFT")
    rslora: bool = Field(False, description="scale by alpha / √rank (Kalajdzievski 2023)")
    dora: bool = Field(
        False, description="learn the weights' magnitudes in addition to their directions (Liu et al. 2024)"
    )


class TrainSettings(Settings):
    """Settings shared by SFT, preference and reward training."""

    model: str = Field(description="model to start from: a folder, the folder of an adapter, or a hub name")
    data: str = Field(description="folder of training data, such as `modegraph synth` makes")
    output: str = Field(description="folder to save the run in; must be new or empty")
    learning_rate: float = Field(default=1e-5, gt=0, description="peak learning rate")
    epochs: float = Field(default=2, gt=0, description="passes over the data")
    max_steps: int | None = Field(default=None, ge=1, description="training steps, instead of epochs")
    batch_size: int = Field(default=4, ge=1, description="rows in a batch on one device")
    gradient_accumulation: int = Field(default=1, ge=1, description="batches whose gradients make one step")
    max_length_tokens: int = Field(default=1024, ge=8, description="longest row, prompt and answer together, in tokens")
    warmup_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the steps over which the learning rate rises from 0, unless `scheduler` is constant",
    )
    scheduler: Literal["linear", "cosine", "constant"] = Field(
        "linear", description="course of the learning rate after the warm-up"
    )
    weight_decay: float = Field(default=0.0, ge=0, description="weight decay of AdamW")
    max_grad_norm: float = Field(default=1.0, gt=0, description="norm that gradients are clipped to")
    seed: int = Field(default=0, ge=0, lt=2**32, description="seed of every random choice")
    precision: Annotated[Literal["float32", "bfloat16"], BeforeValidator(_resolve_auto)] = Field(
        "float32",
        description="number format of the computation; auto: bfloat16 if the machine has instructions for it, else float32",
    )
    gradient_checkpointing: bool = Field(False, description="compute activations twice, to save memory")
    lora: LoraSettings | None = Field(
        None,
        description="low-rank adapter, by default on all linear layers but the output head; null trains the full model, or continues the adapter in `model`",
    )
    quantise: Literal["none", "nf4"] = Field(
        "none", description="how to load the frozen base model: nf4 is 4 bits (QLoRA)"
    )
    report_to: Literal["none", "tensorboard", "trackio", "wandb", "mlflow"] = Field(
        "none", description="experiment tracker to log to in addition to log.jsonl; it must be installed"
    )
    logging_steps: int = Field(
        default=10,
        ge=1,
        description="steps between two lines of the log, which also has one for each checkpoint and for the last step",
    )
    save_steps: int | None = Field(
        default=None,
        ge=1,
        description="steps between two checkpoints, from which an interrupted run resumes; null: no checkpoints",
    )


class SftSettings(TrainSettings):
    """Supervised fine-tuning on the answers of conversations; adjacent rows with the same passages are computed together."""

    group_tokens: int | None = Field(
        default=None,
        ge=8,
        description="maximum number of tokens in rows that are computed together, with their common beginning counted once; null: max_length_tokens",
    )
    anchor_refusals: bool = Field(
        False,
        description="learn when to refuse (“not in the documents”) as a change in the log-odds that the initial model gives to a refusal, so that the share of refusals in the data does not set how often the model refuses",
    )
    eval_steps: int | None = Field(
        default=None,
        ge=1,
        description="steps between two measurements of greedy answers to dev rows; the model saved at the end is the checkpoint with the best F1; null: only the dev loss, once at the end",
    )
    eval_rows: int = Field(
        default=64,
        ge=1,
        description="dev rows to answer in a measurement, and groups of dev rows to compute the loss on, evenly spaced in the file",
    )
    patience: int | None = Field(
        default=None,
        ge=1,
        description="measurements without a better F1 after which a run ends; null: no early stopping",
    )

    @model_validator(mode="after")
    def _check_steps(self) -> SftSettings:
        if self.eval_steps is not None and self.save_steps not in (None, self.eval_steps):
            raise ValueError(
                f"save_steps = {self.save_steps} differs from eval_steps = {self.eval_steps}: "
                "set both to the same number, so that every measured model is saved, or unset save_steps"
            )
        if self.patience is not None and self.eval_steps is None:
            raise ValueError("patience counts measurements: set eval_steps")
        return self


class RoundsSettings(Settings):
    """On-policy rounds (train/preference/rounds.py): `data` has prompts; each round samples fresh responses to them from the current policy."""

    count: int = Field(
        default=3, ge=1, description="rounds; each samples responses, computes their rewards and trains on them"
    )
    prompts: int | None = Field(
        default=None, ge=1, description="prompts per round, sampled from `data` again for each round; null: all"
    )
    refusals: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of `prompts` whose passages lack the answer, if there are enough of them; null: sample from all prompts alike",
    )
    refusal_responses: Literal["as_sampled", "added", "left_out"] = Field(
        "as_sampled",
        description=(
            "what to do with responses that refuse; as_sampled: include them; added: also add “not in the documents” where no response "
            "refuses; left_out: leave them out, and the prompts whose passages lack the answer"
        ),
    )
    only_different: bool = Field(
        False, description="leave out prompts whose responses all have the same reward, from which little is learned"
    )
    samples: int = Field(default=8, ge=2, description="responses to sample for each prompt")
    temperature: float = Field(default=1.0, gt=0, description="sampling temperature of the responses")
    max_answer_tokens: int = Field(
        default=256,
        ge=1,
        description="maximum length of a response, in tokens; a longer one is truncated, and trained on without an end token",
    )
    epochs: float = Field(
        default=1, gt=0, description="passes over the responses of a round; replaces the `epochs` of the run"
    )
    engine: Literal["hf", "openvino", "vllm"] = Field(
        "hf", description="engine to sample with; openvino, fast on CPUs, rounds the weights to 8 bits"
    )
    reference: Literal["start", "round"] = Field(
        "start", description="reference model of each round: the model at the start of the run, or of the round"
    )

    @model_validator(mode="after")
    def _check_refusals(self) -> RoundsSettings:
        if self.refusals is not None and self.prompts is None:
            raise ValueError("refusals is a share of prompts: set prompts, too")
        return self


class PreferenceSettings(TrainSettings):
    """Preference training on pairs or on scored responses; the data decide which."""

    beta: float = Field(default=0.1, gt=0, description="β_π, strength of the tie to the reference model")
    beta_reward: float = Field(
        default=0.5,
        gt=0,
        description="β_r, softness of the labels of scored responses; the labels of pairs depend on label_smoothing",
    )
    responses: int | None = Field(
        default=None,
        ge=2,
        description="K: the scored responses of a prompt are split into groups of K; null: one group",
    )
    best_against_worst: bool = Field(
        False, description="make one pair of each prompt's scored responses, the best and the worst, instead of groups"
    )
    rewards: dict[str, FiniteFloat] = Field(
        default={"correct": 1.0, "format": 0.5, "grounded": 0.5, "citations": 0.25},
        description="weights of the reward components of scored responses, such as `supported`",
    )
    standardise: bool = Field(False, description="scale the rewards of each prompt to mean 0 and deviation 1")
    over_long: Literal["refuse", "drop"] = Field(
        "refuse", description="what to do with rows longer than max_length_tokens"
    )
    layout: Literal["packed", "plain"] = Field(
        "packed", description="how rows are laid out: packed computes a prompt once for all of its responses"
    )
    row_tokens: int | None = Field(
        default=None,
        ge=8,
        description="length of a packed row, in tokens; null: on a CPU the whole batch, on a GPU the batch's longest group",
    )
    reference: str | None = Field(
        None, description="model that the policy is tied to, instead of `model` as it is before the first step"
    )
    rounds: RoundsSettings | None = Field(
        None,
        description="learn in rounds from fresh responses of the policy; null: learn from those in `data`, in one run",
    )
    reference_cache: str | None = Field(
        None, description="file that caches the log-probabilities of the reference model for other runs"
    )
    sample_steps: int | None = Field(
        default=None,
        ge=1,
        description="steps between two sets of greedy answers to a few dev prompts, whose length and repetition are logged; null: none",
    )
    trainer: Literal["modegraph", "trl"] = Field(
        "modegraph", description="implementation: trl uses TRL's trainers, for pairs only"
    )

    @field_validator("rewards")
    @classmethod
    def _check_weights(cls, weights: dict[str, float]) -> dict[str, float]:
        if not any(weights.values()):
            raise ValueError("all weights are 0, so all rewards are equal: give at least one component another weight")
        return weights

    @model_validator(mode="after")
    def _check_reference_and_rounds(self) -> PreferenceSettings:
        if self.trainer == "trl":
            for name in ("reference", "rounds", "reference_cache", "sample_steps", "over_long"):
                if getattr(self, name) not in (None, "refuse"):
                    raise ValueError(
                        f"TRL's trainer does not support {name}: unset {name}, or set trainer to modegraph"
                    )
        if self.rounds is None:
            return self
        for name in ("reference_cache", "sample_steps"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is for one run on given responses: unset {name}, or unset rounds")
        if self.reference and self.rounds.reference == "round":
            raise ValueError(f"rounds.reference = 'round' and reference = {self.reference!r}: unset one of them")
        return self


WITHOUT_REFERENCE = ("simpo", "orpo")
"""Losses of `train dpo` that need no reference model, all from TRL."""


class DpoSettings(PreferenceSettings):
    """DPO (forward KL) on pairs, with hard labels or smoothed ones, or on scored responses; or another loss of the family (train/preference/losses.py).

    TRL's `ipo` takes means over tokens, ours sums; TRL's `sigmoid` ignores label smoothing, so smoothing needs our trainer.
    """

    loss: Literal["sigmoid", "ipo", "lambda", "nca", "rloo", "simpo", "orpo"] = Field(
        "sigmoid",
        description="loss: sigmoid is DPO, ipo is IPO with τ = beta, lambda is LiPO-λ, nca is NCA, all for pairs and for K responses; rloo is RLOO, for responses sampled from the reference; simpo and orpo are TRL's, for pairs, without a reference",
    )
    simpo_margin: float = Field(default=0.5, ge=0, description="γ of SimPO, the margin that its pairs should reach")
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=0.5, description="ε of pairs: cDPO for sigmoid; 0 gives hard labels"
    )

    @model_validator(mode="after")
    def _check_loss(self) -> DpoSettings:
        if self.trainer == "trl" and self.loss in ("lambda", "rloo"):
            raise ValueError(f"TRL has no loss {self.loss}: set trainer to modegraph")
        if self.trainer == "modegraph" and self.loss in WITHOUT_REFERENCE:
            raise ValueError(f"{self.loss} has no reference, which this trainer needs: set trainer to trl")
        if self.label_smoothing and (self.trainer == "trl" or self.loss in ("lambda", "rloo")):
            which = "TRL's losses" if self.trainer == "trl" else self.loss
            raise ValueError(
                f"label_smoothing = {self.label_smoothing:g} would not soften the labels of {which}: set it to 0"
            )
        if self.label_smoothing and self.rounds and not self.best_against_worst:
            raise ValueError(
                "label_smoothing softens the labels of pairs: set best_against_worst to true, or label_smoothing to 0"
            )
        if self.loss == "rloo":
            self._check_rloo()
        return self

    def _check_rloo(self) -> None:
        """ValueError where the responses would not be samples of RLOO's reference, or its baseline would lack responses of a prompt."""
        if self.rounds and self.rounds.refusal_responses != "as_sampled":
            raise ValueError("rloo learns from responses as sampled: set rounds.refusal_responses to as_sampled")
        if self.best_against_worst:
            raise ValueError("rloo compares a response with all others of its prompt: set best_against_worst to false")
        if self.reference or (self.rounds and self.rounds.reference == "start"):
            change = "set rounds.reference to round" if self.rounds else "unset reference"
            raise ValueError(f"rloo's reference is the model that the responses were sampled from: {change}")


class MsSettings(PreferenceSettings):
    """Mode-seeking (reverse KL); `label_smoothing` is ε of pairs (TRL's `exo_pair`), above 0 because the loss divides by it."""

    label_smoothing: float = Field(
        default=1e-3, gt=0, lt=0.5, description="ε of pairs (TRL's exo_pair); the loss divides by it"
    )


class RewardSettings(TrainSettings):
    """A reward model trained on pairs (Bradley–Terry). `center` weights (r_chosen + r_rejected)² (Eisenstein et al. 2023).

    This keeps rewards near 0, where the sigmoid that maps them to (0, 1) is steepest.
    """

    center: float = Field(
        default=0.01, ge=0, description="weight of (r_chosen + r_rejected)², which keeps rewards near 0"
    )


def _check_distinct(folders: tuple[str, ...]) -> tuple[str, ...]:
    places = [Path(folder).resolve() for folder in folders]
    if repeated := [folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1]:
        raise ValueError(f"{repeated[0]!r} is repeated: name each dataset only once")
    return folders


Folders = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    AfterValidator(_check_distinct),
]
"""The setting that names the datasets: a list, or a single name."""


class HopSettings(Settings):
    """The second hop (`size: hop`), trained on indexes (`data`) and their questions."""

    questions: tuple[str, ...] = Field(
        default=(), description="file of questions with gold documents for each index of `data`, in the same order"
    )


class SelectorSettings(Settings):
    """`data` are folders that `synth relevance` wrote, or indexes for `size: hop`. `target_recall` is the share of dev's relevant propositions to keep.

    `positive_weight` is the weight of a relevant example in the loss (of others, 1); about one in forty examples is relevant. The weight's
    effect on the probabilities is removed after training.
    """

    data: Folders = Field(description="folders that `synth relevance` wrote; indexes for `size: hop`")
    output: str = Field(description="folder to save the selector in; must be new or empty")
    size: Literal["light", "hop"] = Field(
        "light",
        description="light: boosted trees that select propositions; hop: boosted trees for the second hop of `hops`",
    )
    target_recall: float = Field(
        default=0.9, gt=0, le=1, description="share of the relevant propositions of dev that the threshold keeps"
    )
    positive_weight: float = Field(
        default=1.0, gt=0, description="weight of a relevant example in the loss; of others, 1"
    )
    learning_rate: float = Field(default=0.05, gt=0, description="learning rate of the trees")
    max_trees: int = Field(default=400, ge=1, description="maximum number of trees")
    patience_trees: int = Field(
        default=30, ge=1, description="trees without a better loss on dev after which training ends"
    )
    max_leaves: int = Field(default=8, ge=2, description="maximum number of leaves in a tree")
    min_examples_per_leaf: int = Field(default=40, ge=1, description="minimum number of examples in a leaf")
    l2: float = Field(default=1.0, ge=0, description="L2 penalty on the leaves")
    seed: int = Field(default=0, ge=0, lt=2**32, description="seed of every random choice")
    hop: HopSettings = Field(HopSettings(), description="the questions of `size: hop`")


class VerifierSettings(Settings):
    """Settings of a verifier. Trees are trained on `data`, folders that `synth claims` wrote; without `real`, the threshold is
    the lowest value of at least 0.5 that marks at most a share `false_marks` of the supported dev claims.

    A second stage is trained on `real`, sentences that people labelled, with equal weight for each set of `real_sets`; the
    threshold is then the lowest value of at least 0.5 that marks at most a share `max_marked` of the supported dev sentences of
    every set, and of `data`.
    """

    data: Folders = Field(description="folders that `synth claims` wrote")
    output: str = Field(description="folder to save the verifier in; must be new or empty")
    false_marks: float = Field(
        default=0.03, gt=0, lt=1, description="share of dev's supported claims that may be marked, without `real`"
    )
    real: str = Field(
        default="", description="folder that `data import support` wrote, for the second stage; empty: no second stage"
    )
    real_sets: tuple[str, ...] = Field(default=(), description="sets of `real` to train on; empty: all")
    max_marked: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="share of the supported dev sentences of every set that may be marked, with `real`",
    )
    learning_rate: float = Field(default=0.08, gt=0, description="learning rate of the trees")
    max_trees: int = Field(default=150, ge=1, description="maximum number of trees")
    patience_trees: int = Field(
        default=30, ge=1, description="trees without a better loss on dev after which training ends"
    )
    max_leaves: int = Field(default=12, ge=2, description="maximum number of leaves in a tree")
    min_examples_per_leaf: int = Field(default=30, ge=1, description="minimum number of examples in a leaf")
    l2: float = Field(default=1.0, ge=0, description="L2 penalty on the leaves")
    seed: int = Field(default=0, ge=0, lt=2**32, description="seed of every random choice")

"""The settings of every training command, validated at the door (graph/shared/config.py reads the YAML and the flags).

GraphMPA's recipe is the default of the trainers: learning rate 1e-5, batches of 4, 2 epochs.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from graph.shared.config import Settings


class TinySettings(Settings):
    """A tokenizer and a small Llama trained from nothing on `texts`: the stand-in for a pretrained model."""

    texts: str
    output: str
    vocabulary: int = Field(default=3000, ge=512)
    hidden_size: int = Field(default=128, ge=16)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    context_tokens: int = Field(default=1024, ge=64)
    steps: int = Field(default=200, ge=1)
    batch_size: int = Field(default=16, ge=1)
    block_tokens: int = Field(default=128, ge=8)
    learning_rate: float = Field(default=3e-3, gt=0)
    seed: int = 0


class LoraSettings(Settings):
    """A low-rank adapter on every linear layer except the output head (which TRL's losses read directly)."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)


class TrainSettings(Settings):
    """What SFT and preference training share. `model` is a folder, an adapter's folder or a hub name.

    Without `lora` a full model is trained whole, and an adapter goes on training. `max_steps` overrides `epochs`.
    `warmup_share` is the share of steps over which the rate rises from 0; it then falls linearly to 0. `quantise` nf4 loads the
    frozen base in 4 bits (QLoRA). With `save_steps` an interrupted run goes on from its last checkpoint when started again.
    """

    model: str
    data: str
    output: str
    learning_rate: float = Field(default=1e-5, gt=0)
    epochs: float = Field(default=2, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=4, ge=1)
    gradient_accumulation: int = Field(default=1, ge=1)
    max_length_tokens: int = Field(default=1024, ge=8)
    warmup_share: float = Field(default=0.0, ge=0, lt=1)
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    lora: LoraSettings | None = None
    quantise: Literal["none", "nf4"] = "none"
    report_to: Literal["none", "tensorboard", "wandb", "trackio"] = "none"
    logging_steps: int = Field(default=10, ge=1)
    save_steps: int | None = Field(default=None, ge=1)


class SftSettings(TrainSettings):
    """Supervised fine-tuning on the chosen answers."""


class PreferenceSettings(TrainSettings):
    """Preference training on pairs or on scored responses; the data decide which (DESIGN §5).

    `beta` is β_π, the strength of the tie to the reference, and `beta_reward` β_r, the softness of the labels of scored
    responses (pairs have their own label). `responses` is K: the scored responses of a prompt are dealt into groups of K (null:
    all in one). `rewards` weights the components of the data; `standardise` scales each prompt's to mean 0 and deviation 1.
    `layout` packed computes a prompt once for all its responses, in rows of `row_tokens` (null: the longest in the batch).
    Every `sample_steps` steps (null: never) a few dev prompts are answered, and length and repetition logged.
    """

    beta: float = Field(default=0.1, gt=0)
    beta_reward: float = Field(default=0.5, gt=0)
    responses: int | None = Field(default=None, ge=2)
    rewards: dict[str, float] = Field(default={"correct": 1.0, "format": 0.5, "grounded": 0.5, "citations": 0.25})
    standardise: bool = False
    over_long: Literal["refuse", "drop"] = "refuse"
    layout: Literal["packed", "plain"] = "packed"
    row_tokens: int | None = Field(default=None, ge=8)
    reference_cache: str | None = None
    sample_steps: int | None = Field(default=None, ge=1)
    trainer: Literal["modegraph", "trl"] = "modegraph"


class DpoSettings(PreferenceSettings):
    """DPO (forward KL): hard labels for pairs (TRL's `sigmoid`), soft ones for scored responses."""


class MsSettings(PreferenceSettings):
    """Mode-seeking (reverse KL); `label_smoothing` is ε of pairs (TRL's `exo_pair`), above 0 because the loss divides by it."""

    label_smoothing: float = Field(default=1e-3, gt=0, lt=0.5)


class RewardSettings(TrainSettings):
    """A reward model of pairs (Bradley–Terry). `center` weights (r_chosen + r_rejected)² (Eisenstein et al. 2023).

    It holds rewards about 0, where the sigmoid that brings them to 0 to 1 tells them apart.
    """

    center: float = Field(default=0.01, ge=0)

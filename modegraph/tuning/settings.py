"""The settings of `modegraph tune`, and those of its training. This file does not import torch, because the help page shows the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from graph.config import Settings

SFT: dict[str, Any] = {
    "batch_size": 1,
    "gradient_accumulation": 4,
    "warmup_share": 0.03,
    "logging_steps": 5,
    "save_steps": 20,
}
"""As in configs/train/sft-reader-qwen2.5-coder-0.5b.yaml, but one row at a time: activations of four rows took 14 GB in float32."""
MS_ROUND: dict[str, Any] = {
    **SFT,
    "beta": 0.1,
    "beta_reward": 0.25,
    "label_smoothing": 1e-3,
    "warmup_share": 0.1,
    "save_steps": 8,
    "rewards": {"correct": 1.0, "gold": 0.5, "format": 0.25},
    "precision": "auto",
}
"""The settings of the round of MS: those of docs/log.md, "A round of MS on top", but for the reward of a gold citation, .25 there."""
MS_RATE_FACTOR, MS_SAMPLES, MS_TOKENS, MS_REFUSALS = 0.5, 8, 64, 0.2
"""The round's learning rate, as a share of that of the training before it; responses per prompt; tokens of the longest response; share of
prompts whose passages lack the answer (with a tenth, the model stopped refusing; with a third, it learned to refuse and little else)."""


class TuneSettings(Settings):
    """All inputs of `modegraph tune` except the documents and the folder."""

    model: str = Field(
        "reader",
        description="model to tune: the folder of a model or an adapter, a name from `modegraph models list`, or a hub name",
    )
    hours: float = Field(default=2, gt=0, allow_inf_nan=False, description="time for all steps together")
    encoder: str = Field(
        "minilm",
        description="sentence encoder of the index, as in `modegraph index`: e5-small for documents that are not in English",
    )
    ocr_languages: str | None = Field(
        None,
        description="read scanned pages of PDFs with tesseract in these languages, such as eng+deu; null: not at all",
    )
    questions: str | None = Field(
        None,
        description="your own questions with answers: a file, or a folder made by `synth questions`; null: questions made from the documents by rules",
    )
    teacher: str | None = Field(
        None,
        description="model (a SPEC) that writes questions besides those made by rules, during a tenth of `hours`; null: rules alone",
    )
    general: str | None = Field(
        None,
        description="reading set about other documents, on which the tuned model's F1 may drop by at most 1 point; "
        "null: modegraph's examples, if it runs from a clone of its repository",
    )
    general_share: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="share of the training rows that are made from the general set, using only the half on which F1 is not measured",
    )
    max_questions: int = Field(
        default=500, ge=2, description="upper limit for the questions made by rules, and for those of a teacher"
    )
    test_share: float = Field(default=0.3, gt=0, lt=1, description="share of the documents to hold out for testing")
    min_test_questions: int = Field(default=15, ge=1, description="fewest test questions for a verdict")
    passes: int = Field(
        default=3, ge=1, description="training rows made from each question, with different passages in each"
    )
    without_gold: float = Field(
        default=0.1, ge=0, lt=1, description="share of training rows whose passages lack the answer"
    )
    paired: float = Field(
        default=0,
        ge=0,
        le=1,
        description="share of the training questions that get a further row, whose passages lack the answer",
    )
    anchor_refusals: bool | None = Field(
        None,
        description="learn whether to refuse (answer “not in the documents”) as an offset to the untuned model's log-odds of refusing, so that the share "
        "of refusals among the rows does not determine how often the model refuses; null: only for an adapter, such as `reader`, which has learned to refuse",
    )
    answer_words: int = Field(default=30, ge=1, description="longest answer to learn, in words")
    ms_prompts: int = Field(
        default=0,
        ge=0,
        description="prompts in a round of MS after the training, on the model's own responses to training questions (docs/start/tune.md); 0: no round",
    )
    epochs: float = Field(default=1, gt=0, description="passes over the training rows, if the time allows")
    learning_rate: float = Field(default=2e-4, gt=0, description="peak learning rate")
    context_words: int = Field(
        default=600, ge=50, description="upper limit for the words in the passages of a training row"
    )
    max_length_tokens: int = Field(
        default=1536, ge=64, description="longest training row, in tokens; longer ones are left out"
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="seed of every random choice")

    @model_validator(mode="after")
    def _one_source_of_questions(self) -> TuneSettings:
        if self.teacher and self.questions:
            raise ValueError("teacher writes questions, but `questions` already names some: set only one of the two")
        return self

    def training(self, data: Path, output: Path) -> dict[str, Any]:
        """The settings of `train sft` except those that depend on the kind of model (`sft_settings`)."""
        names = ("model", "epochs", "learning_rate", "max_length_tokens", "seed")
        return {**SFT, **{name: getattr(self, name) for name in names}, "data": str(data), "output": str(output)}

    def round_of_ms(self, model: Path, data: Path, output: Path) -> dict[str, Any]:
        """The settings of `train ms` for one round."""
        return {
            **MS_ROUND,
            "model": str(model),
            "data": str(data),
            "output": str(output),
            "learning_rate": MS_RATE_FACTOR * self.learning_rate,
            "max_length_tokens": self.max_length_tokens + MS_TOKENS,
            "seed": self.seed,
            "rounds": {
                "count": 1,
                "prompts": self.ms_prompts,
                "refusals": MS_REFUSALS,
                "samples": MS_SAMPLES,
                "max_answer_tokens": MS_TOKENS,
            },
        }

"""The record and the model card of a finished run, for serving, comparing and publishing.

A run folder has the adapter or the model and its tokenizer as transformers saves them, `run.json` (the record), `settings.yaml` (the
resolved settings), `log.jsonl` (a row per logged step and per measurement on dev rows) and `README.md` (the card)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from data_synth.dataset.write import markdown_table
from graph.errors import UserError
from graph.models.checkpoint import RUN_RECORD
from graph.shared.jsonl import write_json
from graph.types import AnswerForm

Stage = Literal["tiny", "sft", "ms", "dpo", "reward"]


@dataclass(frozen=True)
class Alignment:
    """The parameters that a claim about preference training must state: β_π, K, and β_r for scored responses or ε for pairs; None where they do not apply."""

    beta: float | None = None
    responses_per_prompt: int | None = None
    beta_reward: float | None = None
    label_smoothing: float | None = None


@dataclass(frozen=True)
class RunRecord:
    """The origin and the results of a run. `base_model` is the initial model, `data` the folder of training data.

    `base_weights` is the fingerprint or hub name of the full model below the adapter, or of the initial model ("" for none); `data_fingerprint`
    is that of the training rows ("" for a folder of documents and in older records); `answer_form` is the form that the prompts request (None: none of ours);
    `reference_name` is the name and fingerprint, or the hub name, of the setting `reference` ("" if it is unset).
    """

    stage: Stage
    base_model: str
    base_weights: str
    data: str
    beta: float | None
    beta_reward: float | None
    label_smoothing: float | None
    responses_per_prompt: int | None
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    train_seconds: float
    device: str
    versions: Mapping[str, str]
    data_fingerprint: str = ""
    answer_form: AnswerForm | None = "reasoned"
    reference_name: str = ""


def write_run(folder: Path, record: RunRecord) -> None:
    """Save the record as the last file of a run: a folder without it is not a finished run."""
    write_json(folder / RUN_RECORD, asdict(record))


def read_run(folder: Path) -> RunRecord:
    """The record of a finished run; UserError if `folder` is not one."""
    try:
        return RunRecord(**json.loads((folder / RUN_RECORD).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        found = f"{folder}: no {RUN_RECORD}"
        raise UserError(found, "the folder of a finished training run", "check the path") from None
    except (ValueError, TypeError) as problem:
        found = f"{folder / RUN_RECORD}: not a run record ({problem})"
        raise UserError(found, "an unchanged file", "train again") from None


TITLES = {
    "tiny": "A tiny Llama trained from scratch, a stand-in for a pretrained model",
    "sft": "Supervised fine-tuning",
    "ms": "Mode-seeking preference optimisation",
    "dpo": "Direct preference optimisation",
    "reward": "A reward model: predicts how strongly an answer is preferred",
}
LOSSES = {
    "tiny": "next-token cross-entropy on the texts",
    "sft": "cross-entropy on the completion's tokens only",
    "ms": "KL(softmax(βΔ) ‖ p_r), p_r = softmax(r / β_r), or (1 − ε, ε) for pairs",
    "dpo": "−Σ p_r log softmax(βΔ), p_r = softmax(r / β_r), or (1 − ε, ε) for pairs",
    "reward": "−log σ(r_chosen − r_rejected) + c (r_chosen + r_rejected)²",
}
OTHER_LOSSES = {
    "ipo": "mean of (Δ_i − Δ_j − tanh((r_i − r_j) / 2β_r) / 2τ)², IPO with τ = β",
    "lambda": "−Σ λ_ij log σ(β(Δ_i − Δ_j)), LiPO-λ",
    "nca": "−Σ [p_r log σ(βΔ) + log σ(−βΔ) / K], NCA",
    "rloo": "−mean of min(ρ_i A_i, clip(ρ_i, 1 ± 0.2) A_i), ρ = exp(Δ), RLOO",
    "simpo": "−log σ(β (mean log π(y_w) − mean log π(y_l)) − γ), means over tokens, SimPO with TRL",
    "orpo": "mean cross-entropy of x and y_w − β log σ(log odds(y_w) − log odds(y_l)), odds of the mean log π, ORPO with TRL",
}
"""Losses of `train dpo` other than DPO, by the setting `loss`."""
ANSWERS: Mapping[AnswerForm, str] = {
    "cited": "`answer [n]`: a short answer and the number of its passage, or `not in the documents`",
    "quoted": "`###Answer: … ###Reason: …`, the reason a quotation with the number of its passage",
    "reasoned": "`###Reason: … ###Answer: …`",
}

FILES_NOTE = "All settings are in `settings.yaml`, each logged step and each measurement on dev rows in `log.jsonl`."
USE = f"""## Use

```python
from train.model.load import load_policy

model, tokenizer = load_policy("this folder")
```

or `modegraph ask INDEX "question" --model hf:FOLDER`. {FILES_NOTE}"""
USE_REWARD = f"""## Use

```python
from train.reward import score_texts

rewards = score_texts("this folder", prompts, responses)  # 0 to 1
```

or `modegraph train score FOLDER --data RESPONSES --out OUTPUT`. {FILES_NOTE}"""


def model_card(record: RunRecord, adapter: bool, hub_base: str = "", sections: Sequence[str] = ()) -> str:
    """Markdown with front matter for model hubs. Names and paths are those of the record.

    `hub_base` is the base model's name on the hub, if any; `sections` replace the section on the use of the run's folder.
    """
    facts = [
        ("loss", _loss(record)),
        ("base model", record.base_model),
        ("base weights", record.base_weights or None),
        ("data", record.data),
        ("data fingerprint", record.data_fingerprint or None),
        ("weights", "LoRA adapter" if adapter else "full model"),
        *_alignment(record),
        ("device", record.device),
        ("seconds of training", f"{record.train_seconds:.1f}"),
    ]
    figures = [(name, f"{value:.4g}") for name, value in record.metrics.items()]
    loss = record.settings.get("loss", "")
    title = f"Preference optimisation with the loss {loss}" if loss in OTHER_LOSSES else TITLES[record.stage]
    about = "Made with modegraph."
    if record.stage in ("sft", "ms", "dpo") and record.answer_form is not None:
        about += f" Answers have the form {ANSWERS[record.answer_form]}."
    parts = [
        _front_matter(record, adapter, hub_base),
        f"# {title}",
        about,
        markdown_table(("property", "value"), [(name, str(value)) for name, value in facts if value is not None]),
        "## Figures\n\n" + markdown_table(("figure", "value"), figures),
        *(sections or (USE_REWARD if record.stage == "reward" else USE,)),
        versions_section(record.versions),
    ]
    return "\n\n".join(section for section in parts if section) + "\n"


def versions_section(versions: Mapping[str, str]) -> str:
    """The section of a card that names the libraries' versions."""
    return "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in versions.items())


def reference_of(record: RunRecord) -> str:
    """The reference model of a preference run: that of its settings, by default the model it started from."""
    return str(record.settings.get("reference") or record.base_model)


def _loss(record: RunRecord) -> str:
    if record.settings.get("anchor_refusals"):
        answering = f"{LOSSES['sft']}, given that the completion does not begin like a refusal"
        return (
            f"{answering}; and a loss that anchors the frequency of refusals at the initial model's (train/refusals.py)"
        )
    return OTHER_LOSSES.get(record.settings.get("loss", ""), LOSSES[record.stage])


def _alignment(record: RunRecord) -> list[tuple[str, float | None]]:
    """The fields of `Alignment`, and the product of β_π and β_r: most losses identify only this product (train/preference/losses.py)."""
    beta, beta_reward = record.beta, record.beta_reward
    product = None if beta is None or beta_reward is None else float(f"{beta * beta_reward:.6g}")
    return [
        ("K (responses per prompt)", record.responses_per_prompt),
        ("β (β_π)", beta),
        ("β_r", beta_reward),
        ("β_π β_r", product),
        ("ε (label smoothing)", record.label_smoothing),
    ]


def _front_matter(record: RunRecord, adapter: bool, hub_base: str) -> str:
    lines = [
        *([f"base_model: {hub_base}"] if hub_base else []),
        f"library_name: {'peft' if adapter else 'transformers'}",
        f"pipeline_tag: {'text-classification' if record.stage == 'reward' else 'text-generation'}",
    ]
    return "\n".join(["---", *lines, "---"])

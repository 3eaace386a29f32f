"""The model card of a run: what it is, where it comes from, its figures and how to use it (README.md of the run)."""

from __future__ import annotations

from train.types import RunRecord

TITLES = {
    "tiny": "A tiny Llama trained from nothing, the stand-in for a pretrained model",
    "sft": "Supervised fine-tuning on answers with their reasoning",
    "ms": "Mode-seeking preference optimisation",
    "dpo": "Direct preference optimisation",
}
LOSSES = {
    "tiny": "next-token cross-entropy on the texts",
    "sft": "cross-entropy on the completion's tokens only",
    "ms": "KL(softmax(βΔ) ‖ p_r), p_r = softmax(r / β_r), or (1 − ε, ε) for pairs",
    "dpo": "−Σ p_r log softmax(βΔ), p_r = softmax(r / β_r), or (1, 0) for pairs",
}

USE = """## Use

```python
from train.models import load_policy

model, tokenizer = load_policy("this folder")
```

or `modegraph ask INDEX "question" --model hf:FOLDER`. All settings stand in `settings.yaml`, each logged step in
`log.jsonl`."""


def model_card(record: RunRecord, adapter: bool) -> str:
    """Markdown with the front matter that model hubs read. Paths stand as the user gave them."""
    facts = [
        ("loss", LOSSES[record.stage]),
        ("base model", record.base_model),
        ("data", record.data),
        ("weights", "LoRA adapter" if adapter else "full model"),
        ("K (responses a prompt)", record.responses_per_prompt),
        ("β (β_π)", record.beta),
        ("β_r", record.beta_reward),
        ("ε (label smoothing)", record.label_smoothing),
        ("device", record.device),
        ("seconds", f"{record.train_seconds:.1f}"),
    ]
    sections = [
        f"---\nlibrary_name: {'peft' if adapter else 'transformers'}\npipeline_tag: text-generation\n---",
        f"# {TITLES[record.stage]}",
        "Made with modegraph. Answers have the form `###Reason: … ###Answer: …`." if record.stage != "tiny" else "",
        _table("what", "value", [(name, str(value)) for name, value in facts if value is not None]),
        "## Figures\n\n"
        + _table("figure", "value", [(name, f"{value:.4g}") for name, value in record.metrics.items()]),
        USE,
        "## Versions\n\n" + ", ".join(f"{name} {number}" for name, number in record.versions.items()),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _table(left: str, right: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {left} | {right} |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join(lines)

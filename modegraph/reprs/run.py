"""A finished run in a notebook: its stage, the settings that matter, its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modegraph.reprs.html import table, tag, text, view

MATTER = (
    *("model", "data", "texts", "learning_rate", "epochs", "max_steps", "steps", "batch_size", "gradient_accumulation"),
    *(
        "lora",
        "quantise",
        "precision",
        "beta",
        "beta_reward",
        "label_smoothing",
        "responses",
        "size",
        "tolerance",
        "seed",
    ),
)
"""Settings that tell one run from another."""


def run_html(folder: str, stage: str, settings: Mapping[str, Any], metrics: Mapping[str, float], seconds: float) -> str:
    """The folder, the settings that are set, the figures."""
    chosen = [(text(name), text(settings[name])) for name in MATTER if settings.get(name) is not None]
    figures = [(text(name), text(f"{value:.4g}")) for name, value in metrics.items()]
    return view(
        tag("p", tag("strong", text(f"{stage}: {folder}"))),
        text(f"trained in {seconds:.1f} s", "soft"),
        table(("setting", "value"), chosen),
        table(("figure", "value"), figures),
    )

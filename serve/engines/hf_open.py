"""Opens an hf: model (a full model or a PEFT adapter's folder); an unknown name is reported before torch is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph.models.catalogue import resolve
from graph.models.checkpoint import answer_form, model_name
from graph.models.load import load_for_inference

if TYPE_CHECKING:
    from serve.engines.hf import HfModel


def open_hf(target: str) -> HfModel:
    """Load a folder or a hub name (safetensors only); UserError when there is no such model."""
    model, tokenizer, where = load_for_inference(target)
    from serve.engines.hf import HfModel

    hf_model = HfModel(model_name(resolve(target)), model, tokenizer)
    hf_model.form = answer_form(where)
    return hf_model

"""QLoRA (Dettmers et al. 2023): the frozen base in 4 bits (nf4, with quantised constants), the adapter above it learns."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from transformers import BitsAndBytesConfig

from graph.shared.errors import UserError


def four_bits() -> BitsAndBytesConfig:
    """How the base is loaded; UserError when bitsandbytes is not installed."""
    if importlib.util.find_spec("bitsandbytes") is None:
        found = "quantise = nf4 without bitsandbytes"
        raise UserError(found, "the package bitsandbytes", "pip install 'modegraph[qlora]', or set quantise to none")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def train_quantised(model: Any) -> Any:
    """A model loaded in 4 bits, fit to train an adapter on: norms in float32, inputs with gradients, and no repacked weights.

    On processors with AVX512-BF16 bitsandbytes repacks a layer's weights at its first pass without gradients, after which no
    gradient passes through it any more, without a word; the layers are told that the processor cannot.
    """
    from bitsandbytes.nn.modules import Linear4bit
    from peft import prepare_model_for_kbit_training

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)

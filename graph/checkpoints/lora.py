"""What a LoRA adapter (Hu et al. 2021, arXiv:2106.09685) adds to each matrix of its base, by the names of GGUF, read without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.checkpoints.adapter import ADAPTER_WEIGHTS
from graph.encode.weights import ADAPTER_CONFIG
from graph.shared.errors import UserError

GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Of the Qwen2 family, whose matrices GGUF keeps as they are."""
_KEY = re.compile(r"(?:.*\.)?layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])\.weight")
_OTHER_KINDS = ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices")


def lora_changes(adapter: Path, base: Path) -> dict[str, NDArray[np.float32]]:
    """By the GGUF name of a matrix of the model in `base` what is added to it: float32[O, I], (α / r) B A, with rank-stabilised LoRA (α / √r) B A.

    UserError for an adapter that adds something else, or of a family whose matrices GGUF reorders.
    """
    architecture = json.loads((base / "config.json").read_text(encoding="utf-8"))["model_type"]
    config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    more = [name for name in _OTHER_KINDS if config.get(name)]
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none" or more or architecture != "qwen2":
        found = f"{adapter}: an adapter of {architecture} with {', '.join(more) or config.get('peft_type')}"
        raise UserError(found, "plain LoRA on linear layers of a Qwen2 model", "use hf: instead of openvino:")
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
    weights = read_safetensors(adapter / ADAPTER_WEIGHTS)
    halves: dict[str, dict[str, NDArray[np.float32]]] = {}
    for key, values in weights.items():
        found_key = _KEY.fullmatch(key)
        if found_key is None or found_key[2] not in GGUF_NAMES:
            raise UserError(f"{adapter}: an adapter of {key}", f"of {', '.join(GGUF_NAMES)}", "use hf: instead")
        halves.setdefault(f"blk.{found_key[1]}.{GGUF_NAMES[found_key[2]]}.weight", {})[found_key[3]] = values
    return {name: np.float32(scale) * (half["B"] @ half["A"]) for name, half in halves.items()}


def read_safetensors(file: Path) -> Mapping[str, NDArray[np.float32]]:
    """The tensors of a file in float32, which NumPy has no bfloat16 for; UserError for another number format."""
    from safetensors import deserialize

    return {name: _float32(tensor, f"{file}: {name}") for name, tensor in deserialize(file.read_bytes())}  # type: ignore[no-untyped-call]


def _float32(tensor: Mapping[str, Any], called: str) -> NDArray[np.float32]:
    kind, data = tensor["dtype"], bytes(tensor["data"])
    if kind == "BF16":
        flat = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in ("F16", "F32"):
        flat = np.frombuffer(data, "<f2" if kind == "F16" else "<f4").astype(np.float32)
    else:
        raise UserError(f"{called} in {kind}", "F32, F16 or BF16", "save the adapter in one of them")
    return flat.reshape(tensor["shape"])

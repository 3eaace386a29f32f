"""A LoRA adapter alone as a GGUF file: what llama.cpp puts on a GGUF file of its base (`llama-server --lora`).

The layout of llama.cpp's convert_lora_to_gguf.py. llama.cpp adds (α / r) B A, with one α for the file and r as B has it, so that B is
written times what else scales a module: rank-stabilised LoRA's √r, an α or a rank of the module's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGUFType, GGUFWriter, Keys
from numpy.typing import NDArray

from graph.shared.errors import UserError
from train.export.gguf_file import TYPES, GgufType, TensorNames, add_tensor, check_architecture, write_all

REMEDY = "export it with --gguf TYPE --merge"
REFUSED = {
    "use_dora": "DoRA",
    "modules_to_save": "modules trained as a whole",
    "trainable_token_indices": "trained tokens",
    "target_parameters": "adapters of single parameters",
    "lora_bias": "biases of its own",
    "alora_invocation_tokens": "tokens that switch it on",
}
"""What an adapter may have, by the field of its configuration, that a GGUF file has no place for."""


def write_adapter(model: Any, file: Path, kind: GgufType, name: str, base: str) -> None:
    """Write the adapter of `model` (a PeftModel on its base, which is called `base`); UserError naming what GGUF has no place for."""
    whole = model.get_base_model()
    family = check_architecture(type(whole).__name__, whole.config)
    alpha = _checked(model, name)
    names = TensorNames(family, whole.config)
    wanted, file_type = TYPES[kind]
    writer = GGUFWriter(file, MODEL_ARCH_NAMES[family.arch])
    writer.add_type(GGUFType.ADAPTER)
    writer.add_name(name)
    writer.add_base_model_count(1)
    writer.add_base_model_name(0, base)
    writer.add_file_type(file_type)
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)
    for module, a_RI, b_OR in lora_weights(whole, alpha):
        key = f"{module}.weight"
        for part, weights in (("lora_a", a_RI), ("lora_b", names.ordered(key, b_OR))):
            add_tensor(writer, f"{names.of(key)}.{part}", f"{module}.{part}", weights, wanted)
    write_all(writer)


def lora_weights(whole: Any, alpha: float) -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.float32]]]:
    """(module, A, B) of every adapted module of a model, B such that the module adds (`alpha` / r) B A.

    R rank, I inputs, O outputs: A is float32[R, I], B float32[O, R]. UserError for a module that is no linear layer, and an output head
    that is the embedding too, which llama.cpp would leave as it is.
    """
    from peft.tuners.lora import LoraLayer

    for module, layer in whole.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        if not layer.lora_A or (module == "lm_head" and whole.config.tie_word_embeddings):
            raise UserError(f"an adapter of {module}", "adapters of linear layers alone", REMEDY)
        ((adapter, a),) = layer.lora_A.items()
        rank, scaling = layer.r[adapter], layer.scaling[adapter]
        a_RI, b_OR = (each.weight.detach().float().cpu().numpy() for each in (a, layer.lora_B[adapter]))
        yield module, a_RI, b_OR * np.float32(scaling * rank / alpha)


def _checked(model: Any, name: str) -> float:
    """α of the adapter."""
    (config,) = model.peft_config.values()
    found = [what for field, what in REFUSED.items() if getattr(config, field, None)]
    if config.peft_type != "LORA":
        found = [f"the kind {config.peft_type}"]
    elif config.bias != "none":
        found.append("biases of the base")
    if found:
        raise UserError(f"{name}: an adapter with {' and '.join(found)}", "plain LoRA of linear layers", REMEDY)
    return float(config.lora_alpha)

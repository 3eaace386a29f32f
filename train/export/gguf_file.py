"""A model of transformers as one GGUF file, in 16 or 8 bits: what llama.cpp, Ollama and LM Studio open.

Tensors are named by the package gguf's own map. Matrices are written as asked, vectors (norms, biases) in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, LlamaFileType, get_tensor_name_map
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quantize
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from graph.shared.errors import UserError
from train.export.gguf_tokenizer import add_tokenizer

GgufType = Literal["f16", "bf16", "q8_0"]


@dataclass(frozen=True)
class Family:
    """How llama.cpp reads an architecture: its name there, and whether q and k are stored with rotary pairs side by side."""

    arch: MODEL_ARCH
    pairs: bool


FAMILIES = {
    "LlamaForCausalLM": Family(MODEL_ARCH.LLAMA, True),
    "Qwen2ForCausalLM": Family(MODEL_ARCH.QWEN2, False),
    "Qwen3ForCausalLM": Family(MODEL_ARCH.QWEN3, False),
}
TYPES = {
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "bf16": (GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}


class TensorNames:
    """A model's tensors as llama.cpp names and orders them."""

    def __init__(self, family: Family, config: Any) -> None:
        self._names = get_tensor_name_map(family.arch, config.num_hidden_layers)
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        self._heads = heads if family.pairs else {}

    def of(self, key: str) -> str:
        """The name there of the tensor that transformers calls `key`; UserError for one that llama.cpp does not have."""
        name: str | None = self._names.get_name(key, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise UserError(
                f"a tensor {key}", "those of a plain model of its kind", "train it again from a plain model"
            )
        return name

    def ordered(self, key: str, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Its rows (the module's outputs) as they stand there."""
        module = key.split(".")[-2]
        return paired(weights, self._heads[module]) if module in self._heads else weights


def check_architecture(name: str, config: Any) -> Family:
    """The family of a model of this class; UserError naming what cannot be written."""
    rope = getattr(config, "rope_parameters", None) or {}
    found = ""
    if name not in FAMILIES:
        found = f"a model of type {name}"
    elif rope.get("rope_type", "default") != "default":
        found = f"a {name} with {rope['rope_type']} rotary scaling"
    elif getattr(config, "use_sliding_window", False):
        found = f"a {name} with a sliding window"
    if found:
        remedy = "export it with --merge, and convert the folder with llama.cpp's own converter"
        raise UserError(found, f"{', '.join(FAMILIES)} with plain rotary positions", remedy)
    return FAMILIES[name]


def write_gguf(model: Any, tokenizer: PreTrainedTokenizerBase, file: Path, kind: GgufType, name: str) -> None:
    """Write `model` and its tokenizer to `file`; UserError for an architecture or a tokenizer that it cannot hold."""
    family = check_architecture(type(model).__name__, model.config)
    writer = GGUFWriter(file, MODEL_ARCH_NAMES[family.arch])
    _add_sizes(writer, model.config, name)
    wanted, file_type = TYPES[kind]
    writer.add_file_type(file_type)
    add_tokenizer(writer, tokenizer, model.config.vocab_size)
    names = TensorNames(family, model.config)
    for key, value in model.state_dict().items():
        if key == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        weights = value.detach().float().cpu().numpy()
        add_tensor(writer, names.of(key), key, names.ordered(key, weights), wanted)
    write_all(writer)


def write_all(writer: GGUFWriter) -> None:
    """Everything that was added, to the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensor(
    writer: GGUFWriter, name: str, key: str, weights: NDArray[np.float32], wanted: GGMLQuantizationType
) -> None:
    """Add `weights` under `name`, encoded; UserError naming them as `key` when 16 bits cannot hold them."""
    data, kind = encoded(weights, wanted)
    if not np.isfinite(weights).all() or (kind is GGMLQuantizationType.F16 and not np.isfinite(data).all()):
        raise UserError(f"{key}: weights that 16 bits cannot hold", "finite weights below 65,504", "train again")
    writer.add_tensor(name, data, raw_dtype=kind)


def paired(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head reordered from (first halves, second halves), as transformers rotates them, to pairs (i, i + half).

    >>> paired(np.arange(8.0, dtype=np.float32), 2)
    array([0., 2., 1., 3., 4., 6., 5., 7.], dtype=float32)
    """
    return weights.reshape(heads, 2, -1, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def encoded(
    weights: NDArray[np.float32], wanted: GGMLQuantizationType
) -> tuple[NDArray[np.generic], GGMLQuantizationType]:
    """A tensor as the file holds it: vectors in float32, matrices as `wanted`, in halves where rows do not fill its blocks."""
    kind = GGMLQuantizationType.F32 if weights.ndim == 1 else wanted
    if weights.shape[-1] % GGML_QUANT_SIZES[kind][0]:
        kind = GGMLQuantizationType.F16
    with np.errstate(over="ignore"):  # What overflows is refused by its name.
        return quantize(weights, kind), kind


def _add_sizes(writer: GGUFWriter, config: Any, name: str) -> None:
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_name(name)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])

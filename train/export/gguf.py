"""Writes a transformers model, or a LoRA adapter, as one GGUF file in 16 or 8 bits for llama.cpp, Ollama and LM Studio.

Tensors get their names from the name map of the package gguf; matrices are written in the requested type, vectors in float32. llama.cpp identifies a
tokenizer's pre-tokenizer by name, so only those named here are supported. An adapter has the layout of convert_lora_to_gguf.py: llama.cpp
adds (α / r) B A with one α per file, so where the scale of a module differs, its B is multiplied by the ratio."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFType,
    GGUFWriter,
    Keys,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
)
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quantize
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from graph.errors import UserError

CONVERT = "export it with --merge, and convert the folder with llama.cpp's own converter"
"""The remedy for a model or tokenizer that cannot be written here."""
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE_TOKENIZERS = {
    ("bytes and words",): "gpt-2",
    ("digits", "bytes and words"): "smollm",
    (rf"{_WORDS}|\p{{N}}|{_REST}", "bytes"): "qwen2",
    (rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}", "bytes"): "llama-bpe",
}
"""llama.cpp's names of pre-tokenizers, by their steps as `_step` describes them."""


def add_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
    """Write tokens, merges, special tokens and chat template; `vocabulary` is the number of the model's embeddings.

    UserError for a tokenizer that is not a byte-level BPE, or whose pre-tokenizer has no name in PRE_TOKENIZERS.
    """
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    name = pre_tokenizer_name(definition, str(tokenizer.name_or_path))
    tokens, types = vocabulary_of(tokenizer, vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    merges = definition["model"]["merges"]
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    for add, token in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
        (writer.add_unk_token_id, tokenizer.unk_token_id),
    ):
        if token is not None:
            add(token)
    writer.add_add_bos_token(tokenizer.bos_token_id in tokenizer("a")["input_ids"])
    writer.add_chat_template(tokenizer.chat_template)


def vocabulary_of(tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> tuple[list[str], list[TokenType]]:
    """Every token, in order of id, and its type; embeddings without a token get a placeholder of type UNUSED. UserError for a token without an embedding."""
    by_id = {token: text for text, token in tokenizer.get_vocab().items()}
    if max(by_id) >= vocabulary:
        found = f"the tokenizer has token {max(by_id)}, the model has {vocabulary} embeddings"
        remedy = "export the run with the tokenizer that it was trained with"
        raise UserError(found, "an embedding for each token", remedy)
    types = [TokenType.NORMAL if token in by_id else TokenType.UNUSED for token in range(vocabulary)]
    for token, added in tokenizer.added_tokens_decoder.items():
        types[token] = TokenType.CONTROL if added.special else TokenType.USER_DEFINED
    return [by_id.get(token, f"[PAD{token}]") for token in range(vocabulary)], types


def pre_tokenizer_name(definition: Mapping[str, Any], source: str) -> str:
    """llama.cpp's name for the pre-tokenizer in a tokenizer.json; UserError if there is none."""
    kind, normalizer = definition["model"]["type"], (definition["normalizer"] or {"type": "none"})["type"]
    if kind != "BPE" or definition["model"].get("byte_fallback") or normalizer not in ("none", "NFC"):
        raise _refusal(f"{source}: a tokenizer of type {kind} with normalizer {normalizer}")
    outer = definition["pre_tokenizer"] or {"type": "none"}
    steps = tuple(_step(step) for step in outer.get("pretokenizers", [outer]))
    if steps not in PRE_TOKENIZERS:
        raise _refusal(f"{source}: a tokenizer that splits texts by {' then '.join(steps)}")
    return PRE_TOKENIZERS[steps]


def _step(step: Mapping[str, Any]) -> str:
    """One step of a pre-tokenizer in words; for a split, its regular expression."""
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}:
            return "bytes and words" if use_regex else "bytes"
        case {"type": "Digits", "individual_digits": True}:
            return "digits"
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
            return str(pattern)
    return str(step["type"])


def _refusal(found: str) -> UserError:
    expected = f"byte-level BPE with one of the pre-tokenizers {', '.join(PRE_TOKENIZERS.values())}"
    return UserError(found, expected, CONVERT)


GgufType = Literal["f16", "bf16", "q8_0"]


@dataclass(frozen=True)
class Family:
    """An architecture in llama.cpp: its name, and whether q and k are stored with interleaved rotary pairs."""

    arch: MODEL_ARCH
    interleaved: bool


FAMILIES = {
    "LlamaForCausalLM": Family(MODEL_ARCH.LLAMA, True),
    "Qwen2ForCausalLM": Family(MODEL_ARCH.QWEN2, False),
    "Qwen3ForCausalLM": Family(MODEL_ARCH.QWEN3, False),
}
TYPES = {
    kind: (GGMLQuantizationType[kind.upper()], LlamaFileType[f"MOSTLY_{kind.upper()}"]) for kind in get_args(GgufType)
}


class TensorNames:
    """llama.cpp's names and row orders of a model's tensors."""

    def __init__(self, family: Family, config: Any) -> None:
        self._names = get_tensor_name_map(family.arch, config.num_hidden_layers)
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        self._heads = heads if family.interleaved else {}

    def of(self, key: str) -> str:
        """llama.cpp's name of the tensor `key` in transformers; UserError if it has none."""
        name: str | None = self._names.get_name(key, try_suffixes=(".weight", ".bias"))
        if name is None:
            remedy = "train again, from a model without such a tensor"
            raise UserError(f"an unexpected tensor {key}", "only the tensors of the model's architecture", remedy)
        return name

    def ordered(self, key: str, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """The tensor with its rows (the module's outputs) in llama.cpp's order."""
        module = key.split(".")[-2]
        return paired(weights, self._heads[module]) if module in self._heads else weights


def check_architecture(name: str, config: Any) -> Family:
    """The family of a model class; UserError that names the class or feature that GGUF export does not support."""
    rope = getattr(config, "rope_parameters", None) or {}
    found = ""
    if name not in FAMILIES:
        found = f"a model of type {name}"
    elif rope.get("rope_type", "default") != "default":
        found = f"a {name} with {rope['rope_type']} rotary scaling"
    elif getattr(config, "use_sliding_window", False):
        found = f"a {name} with a sliding window"
    if found:
        raise UserError(found, f"{', '.join(FAMILIES)} with plain rotary positions and full attention", CONVERT)
    return FAMILIES[name]


def write_gguf(model: Any, tokenizer: PreTrainedTokenizerBase, file: Path, kind: GgufType, name: str) -> None:
    """Write `model` and its tokenizer to `file`; UserError for an architecture, tokenizer or tensor that cannot be written."""
    family = check_architecture(type(model).__name__, model.config)
    writer = GGUFWriter(file, MODEL_ARCH_NAMES[family.arch])
    _add_sizes(writer, model.config, name)
    tensor_type, file_type = TYPES[kind]
    writer.add_file_type(file_type)
    add_tokenizer(writer, tokenizer, model.config.vocab_size)
    names = TensorNames(family, model.config)
    for key, value in model.state_dict().items():
        if key == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        weights = value.detach().float().cpu().numpy()
        add_tensor(writer, names.of(key), key, names.ordered(key, weights), tensor_type)
    write_all(writer)


def write_all(writer: GGUFWriter) -> None:
    """Write the added fields and tensors to the file, and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensor(
    writer: GGUFWriter, name: str, key: str, weights: NDArray[np.float32], tensor_type: GGMLQuantizationType
) -> None:
    """Add `weights` under `name`, encoded; UserError naming `key` if they are not finite, or beyond the range of float16 where it is used."""
    data, kind = encoded(weights, tensor_type)
    if not np.isfinite(weights).all() or (kind is GGMLQuantizationType.F16 and not np.isfinite(data).all()):
        remedy = "use --gguf bf16 if they are only too large, or train again"
        raise UserError(f"{key}: weights not finite or too large", "finite weights, below 65,504 in f16", remedy)
    writer.add_tensor(name, data, raw_dtype=kind)


def paired(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head reordered from (first halves, second halves), as transformers rotates them, to pairs (i, i + half).

    >>> paired(np.arange(8.0, dtype=np.float32), 2)
    array([0., 2., 1., 3., 4., 6., 5., 7.], dtype=float32)
    """
    return weights.reshape(heads, 2, -1, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def encoded(
    weights: NDArray[np.float32], tensor_type: GGMLQuantizationType
) -> tuple[NDArray[np.generic], GGMLQuantizationType]:
    """A tensor in its encoding: vectors in float32, matrices in `tensor_type`, or in float16 if its rows do not consist of whole blocks of that type."""
    kind = GGMLQuantizationType.F32 if weights.ndim == 1 else tensor_type
    if weights.shape[-1] % GGML_QUANT_SIZES[kind][0]:
        kind = GGMLQuantizationType.F16
    with np.errstate(over="ignore"):  # `add_tensor` rejects overflows.
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


REMEDY = "export it with --gguf TYPE --merge"
UNSUPPORTED = {
    "use_dora": "DoRA",
    "modules_to_save": "fully trained modules",
    "trainable_token_indices": "trained tokens",
    "target_parameters": "adapters of single parameters",
    "lora_bias": "trained biases",
    "alora_invocation_tokens": "activation tokens",
}
"""Features of an adapter that GGUF does not support, by the field of its configuration."""


def write_adapter(model: Any, file: Path, kind: GgufType, name: str, base: str) -> None:
    """Write the adapter of `model` (a PeftModel on its base model, named `base`); UserError naming the features that GGUF does not support."""
    base_model = model.get_base_model()
    family = check_architecture(type(base_model).__name__, base_model.config)
    alpha = _check_adapter(model, name)
    names = TensorNames(family, base_model.config)
    tensor_type, file_type = TYPES[kind]
    writer = GGUFWriter(file, MODEL_ARCH_NAMES[family.arch])
    writer.add_type(GGUFType.ADAPTER)
    writer.add_name(name)
    writer.add_base_model_count(1)
    writer.add_base_model_name(0, base)
    writer.add_file_type(file_type)
    writer.add_string(Keys.Adapter.TYPE, "lora")
    writer.add_float32(Keys.Adapter.LORA_ALPHA, alpha)
    for module, a_RI, b_OR in lora_weights(base_model, alpha):
        key = f"{module}.weight"
        for part, weights in (("lora_a", a_RI), ("lora_b", names.ordered(key, b_OR))):
            add_tensor(writer, f"{names.of(key)}.{part}", f"{module}.{part}", weights, tensor_type)
    write_all(writer)


def lora_weights(model: Any, alpha: float) -> Iterator[tuple[str, NDArray[np.float32], NDArray[np.float32]]]:
    """(module, A, B) of every adapted module of a model, B such that the module adds (`alpha` / r) B A.

    R rank, I inputs, O outputs: A is float32[R, I], B float32[O, R]. UserError for a module that is not a linear layer, and for an output
    head tied to the embedding, which llama.cpp would not change.
    """
    from peft.tuners.lora import LoraLayer

    for module, layer in model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        if not layer.lora_A or (module == "lm_head" and model.config.tie_word_embeddings):
            expected = "adapters of linear layers only, except an output head tied to the embedding"
            raise UserError(f"an adapter of {module}", expected, REMEDY)
        ((adapter, a),) = layer.lora_A.items()
        rank, scaling = layer.r[adapter], layer.scaling[adapter]
        a_RI, b_OR = (factor.weight.detach().float().cpu().numpy() for factor in (a, layer.lora_B[adapter]))
        yield module, a_RI, b_OR * np.float32(scaling * rank / alpha)


def _check_adapter(model: Any, name: str) -> float:
    """α of the adapter; UserError for features that GGUF does not support."""
    (config,) = model.peft_config.values()
    found = [feature for field, feature in UNSUPPORTED.items() if getattr(config, field, None)]
    if config.peft_type != "LORA":
        found = [f"the type {config.peft_type}"]
    elif config.bias != "none":
        found.append("trained biases of the base model")
    if found:
        raise UserError(f"{name}: an adapter with {' and '.join(found)}", "plain LoRA of linear layers", REMEDY)
    return float(config.lora_alpha)

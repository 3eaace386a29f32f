"""A language model of the catalogue, or an adapter merged into one, as OpenVINO opens it: weights in 8 bits, made once, beside the base.

OpenVINO GenAI reads GGUF, but not every quantisation: the file is written anew in Q8_0, which loses next to nothing of 4 or 5 bits."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.errors import UserError
from graph.models.catalogue import MODELS, PretrainedModel, fetching, folder_of, gguf_of
from graph.models.checkpoint import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_base, check_base
from graph.shared.ids import checksum

OPENVINO_PACKAGE = "openvino_genai"
MatrixChanges = Mapping[str, NDArray[np.float32]]
"""What is added to matrices, by their GGUF names."""
OPENVINO_FOLDER, OPENVINO_MODEL = "openvino", "openvino_model.xml"


def is_installed() -> bool:
    """Whether OpenVINO GenAI is there."""
    return importlib.util.find_spec(OPENVINO_PACKAGE) is not None


def openvino_folder(model: PretrainedModel, note: Callable[[str], None]) -> Path:
    """The folder of a fetched model for OpenVINO, made if it is not there; UserError for a model that was not fetched."""
    gguf, made = gguf_of(model), folder_of(model) / OPENVINO_FOLDER
    if (made / OPENVINO_MODEL).is_file():
        return made
    with fetching(folder_of(model).parent, note):
        if not (made / OPENVINO_MODEL).is_file():
            note(f"preparing {model.name} for OpenVINO (once, about a minute for each GB)")
            with tempfile.TemporaryDirectory(dir=folder_of(model).parent, prefix=f"{model.name}.") as place:
                convert_to_openvino(gguf, Path(place), model)
                shutil.rmtree(made, ignore_errors=True)
                Path(place, OPENVINO_FOLDER).rename(made)
    return made


def convert_to_openvino(gguf: Path, place: Path, model: PretrainedModel) -> None:
    """Write a GGUF file's model and tokenizer into the folder `openvino` of `place`, a place for what is made on the way.

    UserError when it does not reply as it must.
    """
    from openvino_genai import GenerationConfig

    pipeline = write_openvino(gguf, place)
    tokenizer = pipeline.get_tokenizer()
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": model.question}], add_generation_prompt=True)
    asked = GenerationConfig(max_new_tokens=len(model.reply_ids), do_sample=False, apply_chat_template=False)
    reply = pipeline.generate(tokenizer.encode(prompt), asked).tokens[0]
    if not reply or tuple(reply) != model.reply_ids[: len(reply)] or len(reply) < len(model.reply_ids) - 1:
        found = f"openvino:{model.name}: replies {tokenizer.decode(reply)!r} to {model.question!r}"
        raise UserError(
            found, repr(tokenizer.decode(list(model.reply_ids))), f"use gguf:{model.name} or hf:{model.name}"
        )


def write_openvino(gguf: Path, place: Path, changes: MatrixChanges = MappingProxyType({})) -> Any:
    """The pipeline of a GGUF file with `changes` added to its matrices, written into the folder `openvino` of `place`."""
    from openvino_genai import LLMPipeline

    folder = place / OPENVINO_FOLDER
    folder.mkdir()
    eight_bits = folder / "model.gguf"
    requantise(gguf, eight_bits, changes)
    pipeline = LLMPipeline(str(eight_bits), "CPU", enable_save_ov_model=True)
    eight_bits.unlink()
    return pipeline


def requantise(source: Path, target: Path, changes: MatrixChanges = MappingProxyType({})) -> None:
    """The GGUF file `source`, `changes` added to its matrices by name, with every matrix in Q8_0 and every vector in float32."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import dequantize, quantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        kind = field.types[0] if field.types else None
        if kind is None or field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name == "general.file_type":
            writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
            continue
        inner = field.types[-1] if kind is GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        matrix = len(tensor.shape) > 1
        to = GGMLQuantizationType.Q8_0 if matrix else GGMLQuantizationType.F32
        values = dequantize(tensor.data, tensor.tensor_type) + changes.get(tensor.name, np.float32(0))
        writer.add_tensor(tensor.name, quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
_LORA_KEY = re.compile(r"(?:.*\.)?layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])\.weight")
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
        found_key = _LORA_KEY.fullmatch(key)
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


def adapted_folder(adapter: Path, note: Callable[[str], None]) -> Path:
    """The folder, for OpenVINO, of an adapter merged into its base, made if it is not there; UserError for a base that is not in the catalogue."""
    base = adapter_base(str(adapter))
    if base not in MODELS:
        found = f"openvino:{adapter}: an adapter of {base}"
        raise UserError(found, f"of {', '.join(MODELS)}", "use hf: instead, or export it (modegraph train export)")
    check_base(str(adapter), base)
    gguf = gguf_of(MODELS[base])
    adapted = folder_of(MODELS[base]) / "adapted"
    made = adapted / checksum(adapter / ADAPTER_WEIGHTS)[:16]
    if (made / OPENVINO_MODEL).is_file():
        return made
    adapted.mkdir(exist_ok=True)
    with fetching(adapted, note):
        if not (made / OPENVINO_MODEL).is_file():
            note(f"preparing {adapter.name} on {base} for OpenVINO (once, about a minute for each GB)")
            changes = lora_changes(adapter, folder_of(MODELS[base]))
            with tempfile.TemporaryDirectory(dir=adapted) as place:
                write_openvino(gguf, Path(place), changes)
                shutil.rmtree(made, ignore_errors=True)
                Path(place, OPENVINO_FOLDER).rename(made)
    return made

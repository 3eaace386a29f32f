"""Converts a language model of the catalogue, or an adapter merged into one, for OpenVINO (once, to 8-bit weights, below the
model's folder), and opens the result.

OpenVINO GenAI reads GGUF, but not every quantisation: the file is requantised to Q8_0, with almost no loss for 4-bit and 5-bit weights."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.errors import UserError
from graph.models.catalogue import (
    MODELS,
    QWEN_CODER_05B,
    QWEN_CODER_15B,
    PretrainedModel,
    fetch_lock,
    folder_of,
    gguf_of,
    resolve,
    unwritable,
)
from graph.models.checkpoint import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_base, check_base, is_adapter
from graph.shared.console import say
from graph.shared.ids import checksum, content_id

OPENVINO_PACKAGE = "openvino_genai"
MatrixChanges = Mapping[str, NDArray[np.float32]]
"""The change to add to each matrix, by the GGUF name of the matrix."""
OPENVINO_FOLDER, OPENVINO_MODEL = "openvino", "openvino_model.xml"
BATCH_TOKENS = 512
"""The maximum number of prompt tokens in one prefill step: more would take more memory and save no time."""


def is_installed() -> bool:
    return importlib.util.find_spec(OPENVINO_PACKAGE) is not None


def openvino_folder(model: PretrainedModel, note: Callable[[str], None]) -> Path:
    """The folder of a fetched model's OpenVINO files, made if it is missing; UserError for a model that is not fetched."""
    gguf, folder = gguf_of(model), folder_of(model)
    make = partial(convert_to_openvino, gguf, model=model)
    return convert_once(folder / OPENVINO_FOLDER, folder.parent, model.name, make, note)


def convert_once(
    target: Path, cache: Path, name: str, make: Callable[[Path], None], note: Callable[[str], None]
) -> Path:
    """`target`; if it is missing, `make` fills the subfolder `openvino` of a scratch folder in `cache`, and that subfolder becomes `target`.

    The remains of a killed conversion are deleted first. UserError if the cache cannot be written.
    """
    if (target / OPENVINO_MODEL).is_file():
        return target
    prefix = f"{target.parent.name}."
    try:
        with fetch_lock(cache, note):
            if not (target / OPENVINO_MODEL).is_file():
                note(f"preparing {name} for OpenVINO (once, about a minute per GB)")
                for remains in cache.glob(f"{prefix}*"):
                    shutil.rmtree(remains)
                with tempfile.TemporaryDirectory(dir=cache, prefix=prefix) as scratch:
                    make(Path(scratch))
                    shutil.rmtree(target, ignore_errors=True)
                    Path(scratch, OPENVINO_FOLDER).rename(target)
    except OSError as problem:
        raise unwritable(target, problem) from None
    return target


def convert_to_openvino(gguf: Path, scratch: Path, model: PretrainedModel) -> None:
    """Write the model and the tokenizer of a GGUF file into the subfolder `openvino` of `scratch`.

    UserError if the converted model does not give the expected reply to its test question.
    """
    from openvino_genai import GenerationConfig

    pipeline = write_openvino(gguf, scratch, {})
    tokenizer = pipeline.get_tokenizer()
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": model.question}], add_generation_prompt=True)
    generation = GenerationConfig(max_new_tokens=len(model.reply_ids), do_sample=False, apply_chat_template=False)
    reply = pipeline.generate(tokenizer.encode(prompt), generation).tokens[0]
    if not reply or tuple(reply) != model.reply_ids[: len(reply)] or len(reply) < len(model.reply_ids) - 1:
        found = f"openvino:{model.name}: replies {tokenizer.decode(reply)!r} to {model.question!r}"
        expected = repr(tokenizer.decode(list(model.reply_ids)))
        raise UserError(found, expected, f"use gguf:{model.name} or hf:{model.name}")


def write_openvino(gguf: Path, scratch: Path, changes: MatrixChanges) -> Any:
    """The pipeline of a GGUF file with `changes` added to its matrices, written into the subfolder `openvino` of `scratch`."""
    from openvino_genai import LLMPipeline

    folder = scratch / OPENVINO_FOLDER
    folder.mkdir()
    q8_gguf = folder / "model.gguf"
    requantise(gguf, q8_gguf, changes)
    pipeline = LLMPipeline(str(q8_gguf), "CPU", enable_save_ov_model=True)
    q8_gguf.unlink()
    return pipeline


def requantise(source: Path, target: Path, changes: MatrixChanges) -> None:
    """Write the GGUF file `source` to `target`, with `changes` added to its matrices by name, matrices in Q8_0 and vectors in float32."""
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
        is_matrix = len(tensor.shape) > 1
        encoding = GGMLQuantizationType.Q8_0 if is_matrix else GGMLQuantizationType.F32
        values = dequantize(tensor.data, tensor.tensor_type) + changes.get(tensor.name, np.float32(0))
        writer.add_tensor(tensor.name, quantize(values, encoding), raw_dtype=encoding)
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
"""The GGUF names of the linear layers of the Qwen2 family, whose matrices GGUF does not reorder."""
QWEN2 = {model.name: model for model in (QWEN_CODER_05B, QWEN_CODER_15B)}
"""The models of the catalogue in the Qwen2 family."""
_LORA_KEY = re.compile(r"(?:.*\.)?layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])\.weight")
_UNSUPPORTED = ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices")


def lora_changes(adapter: Path, base: Path) -> dict[str, NDArray[np.float32]]:
    """An adapter's change to each matrix that it adapts, by GGUF name: float32[O, I]; `base` is the folder of the adapted model.

    (α / r) B A (Hu et al. 2021, arXiv:2106.09685, Eq. 3), or (α / √r) B A for rank-stabilised LoRA. UserError for an adapter with other
    changes, or for a model outside the Qwen2 family.
    """
    architecture = json.loads((base / "config.json").read_text(encoding="utf-8"))["model_type"]
    config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    unsupported = [name for name in _UNSUPPORTED if config.get(name)]
    if config.get("bias", "none") != "none":
        unsupported.append("bias")
    if config.get("peft_type") != "LORA" or unsupported or architecture != "qwen2":
        found = f"{adapter}: an adapter of {architecture} with {', '.join(unsupported) or config.get('peft_type')}"
        raise UserError(found, "plain LoRA on linear layers of a Qwen2 model", "use hf: instead of openvino:")
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
    halves: dict[str, dict[str, NDArray[np.float32]]] = {}
    for key, values in read_safetensors(adapter / ADAPTER_WEIGHTS).items():
        match = _LORA_KEY.fullmatch(key)
        if match is None or match[2] not in GGUF_NAMES:
            expected = f"only weights of {', '.join(GGUF_NAMES)}"
            raise UserError(f"{adapter}: weights {key}", expected, "use hf: instead of openvino:")
        halves.setdefault(f"blk.{match[1]}.{GGUF_NAMES[match[2]]}.weight", {})[match[3]] = values
    return {name: np.float32(scale) * (half["B"] @ half["A"]) for name, half in halves.items()}


def read_safetensors(file: Path) -> Mapping[str, NDArray[np.float32]]:
    """The tensors of a file, converted to float32 because NumPy has no bfloat16; UserError for formats other than F32, F16 and BF16."""
    from safetensors import deserialize

    return {name: _float32(tensor, f"{file}: {name}") for name, tensor in deserialize(file.read_bytes())}  # type: ignore[no-untyped-call]


def _float32(tensor: Mapping[str, Any], label: str) -> NDArray[np.float32]:
    kind, data = tensor["dtype"], bytes(tensor["data"])
    if kind == "BF16":
        flat = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind in ("F16", "F32"):
        flat = np.frombuffer(data, "<f2" if kind == "F16" else "<f4").astype(np.float32)
    else:
        raise UserError(f"{label} has the type {kind}", "F32, F16 or BF16", "save the adapter in one of these types")
    return flat.reshape(tensor["shape"])


def key_of(adapter: Path) -> str:
    """The folder name of an adapter's conversion: a hash of its weights and settings (such as lora_alpha)."""
    return content_id(*(checksum(adapter / file) for file in (ADAPTER_WEIGHTS, ADAPTER_CONFIG)))[:16]


def adapted_folder(adapter: Path, note: Callable[[str], None]) -> Path:
    """The folder of the OpenVINO files of an adapter merged into its base, made if it is missing; UserError for a base outside QWEN2."""
    base = adapter_base(str(adapter))
    if base not in QWEN2:
        expected = f"one of {', '.join(QWEN2)} as its base"
        remedy = "use hf: instead, or export the adapter (modegraph train export)"
        raise UserError(f"openvino:{adapter}: an adapter of {base}", expected, remedy)
    check_base(str(adapter), base)
    gguf = gguf_of(QWEN2[base])
    adapted = folder_of(QWEN2[base]) / "adapted"
    target = adapted / key_of(adapter)

    def make(scratch: Path) -> None:
        write_openvino(gguf, scratch, lora_changes(adapter, folder_of(QWEN2[base])))

    return convert_once(target, adapted, f"{adapter.name} on {base}", make, note)


def locate(target: str) -> tuple[Path, Path]:
    """For the target of an openvino: SPEC, the folder with its config and tokenizer, and the folder with its OpenVINO files, made first if necessary.

    UserError when the model or OpenVINO is missing.
    """
    if not is_installed():
        remedy = "pip install 'modegraph[cpu]', or use hf: instead"
        raise UserError(f"openvino:{target}: the package openvino-genai is not installed", "this package", remedy)
    path = Path(resolve(target)).expanduser() if target not in MODELS else Path(target)
    if target in MODELS and not path.is_dir():
        source, folder = Path(resolve(target)), openvino_folder(MODELS[target], say)
    elif is_adapter(str(path)):
        source, folder = Path(resolve(adapter_base(str(path)))), adapted_folder(path, say)
    else:
        source = folder = path
    if not (folder / OPENVINO_MODEL).is_file():
        expected = f"a folder with {OPENVINO_MODEL}, or one of {', '.join(MODELS)}"
        remedy = "check the path, or use hf: for a transformers model"
        raise UserError(f"openvino:{target}: no {OPENVINO_MODEL}", expected, remedy)
    return source, folder


def open_pipeline(folder: Path, target: str) -> Any:
    """OpenVINO's pipeline for the files in `folder`; a prefix that prompts share is prefilled once. UserError for damaged files."""
    from openvino_genai import ContinuousBatchingPipeline, SchedulerConfig, Tokenizer

    scheduler = SchedulerConfig()
    scheduler.enable_prefix_caching, scheduler.dynamic_split_fuse = True, True
    scheduler.max_num_batched_tokens, scheduler.cache_size = BATCH_TOKENS, 0
    try:
        return ContinuousBatchingPipeline(str(folder), Tokenizer(str(folder)), scheduler, "CPU")
    except RuntimeError as problem:
        reason = " ".join(str(problem).split())[-300:]
        is_own = folder == Path(target).expanduser()
        remedy = "convert the model again" if is_own else f"delete {folder} and try again"
        raise UserError(f"openvino:{target} cannot be opened ({reason})", "an intact model", remedy) from None

"""A language model of the catalogue as OpenVINO opens it, weights in 8 bits: made once, beside the converted model.

OpenVINO GenAI reads GGUF, but not every quantisation: the file is written anew in Q8_0, which loses next to nothing of 4 or 5 bits.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.pretrained.cache import folder_of, gguf_of
from graph.pretrained.catalogue import PretrainedModel
from graph.pretrained.lock import fetching
from graph.shared.errors import UserError

PACKAGE = "openvino_genai"
Changes = Mapping[str, NDArray[np.float32]]
"""What is added to matrices, by their GGUF names."""
FOLDER, MODEL = "openvino", "openvino_model.xml"


def is_installed() -> bool:
    """Whether OpenVINO GenAI is there."""
    return importlib.util.find_spec(PACKAGE) is not None


def openvino_folder(model: PretrainedModel, note: Callable[[str], None]) -> Path:
    """The folder of a fetched model for OpenVINO, made if it is not there; UserError for a model that was not fetched."""
    gguf, made = gguf_of(model), folder_of(model) / FOLDER
    if (made / MODEL).is_file():
        return made
    with fetching(folder_of(model).parent, note):
        if not (made / MODEL).is_file():
            note(f"preparing {model.name} for OpenVINO (once, about a minute for each GB)")
            with tempfile.TemporaryDirectory(dir=folder_of(model).parent, prefix=f"{model.name}.") as place:
                convert(gguf, Path(place), model)
                shutil.rmtree(made, ignore_errors=True)
                Path(place, FOLDER).rename(made)
    return made


def convert(gguf: Path, place: Path, model: PretrainedModel) -> None:
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


def write_openvino(gguf: Path, place: Path, changes: Changes = MappingProxyType({})) -> Any:
    """The pipeline of a GGUF file with `changes` added to its matrices, written into the folder `openvino` of `place`."""
    from openvino_genai import LLMPipeline

    folder = place / FOLDER
    folder.mkdir()
    eight_bits = folder / "model.gguf"
    requantise(gguf, eight_bits, changes)
    pipeline = LLMPipeline(str(eight_bits), "CPU", enable_save_ov_model=True)
    eight_bits.unlink()
    return pipeline


def requantise(source: Path, target: Path, changes: Changes = MappingProxyType({})) -> None:
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

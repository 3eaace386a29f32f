"""Opens an hf: model, a full model or a PEFT adapter's folder; an unknown name is reported before torch is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph.errors import UserError
from graph.models.catalogue import resolve
from graph.models.checkpoint import (
    ADAPTER_CONFIG,
    adapter_base,
    answer_form,
    check_base,
    computes_in_bfloat16,
    is_adapter,
    model_name,
    tokenizer_place,
    trained_precision,
)
from graph.shared.console import say
from graph.shared.hub import only_in_cache

if TYPE_CHECKING:
    from serve.engines.hf import HfModel


def open_hf(target: str) -> HfModel:
    """Load a folder or a hub name (safetensors only); UserError when there is no such model."""
    path = Path(resolve(target)).expanduser()
    if not path.is_dir() and _looks_like_path(target):
        raise UserError(
            f"hf:{target}: no such folder", "a model's or adapter's folder, or a hub name", "check the path"
        )
    where = str(path) if path.is_dir() else target
    base = base_of(where) if is_adapter(where) else None
    base_model = resolve(base) if base is not None else where
    cached = not Path(base_model).is_dir() and only_in_cache(
        base_model, f"hf:{target}" if base is None else f"base model {base}"
    )
    return _open(target, where, base_model, cached)


def _open(target: str, where: str, base_model: str, cached: bool) -> HfModel:
    """The model `base_model`, with the adapter in `where` if that differs; `cached` avoids requests to the hub.

    On a GPU, the checkpoint sets the precision. On a CPU with instructions for bfloat16, models trained with modegraph have the
    precision of their training, and all others bfloat16; on any other CPU, float32.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from graph.models.load import check_vocabulary, load_adapter, load_whole, read_tokenizer
    from graph.shared.hub import quiet_loading
    from serve.engines.hf import HfModel

    quiet_loading()
    spec = f"hf:{target}"
    precision = (trained_precision(where) or "bfloat16") if computes_in_bfloat16() else "float32"
    dtype: Any = "auto" if torch.cuda.is_available() else getattr(torch, precision)
    model = load_whole(AutoModelForCausalLM, base_model, spec, dtype=dtype, local_files_only=cached)
    if where != base_model:
        # PEFT keeps adapters in float32, which halves the speed of a base in bfloat16; training multiplied them in bfloat16 too.
        model = load_adapter(model, where, base_model).to(model.dtype)
    tokenizer = read_tokenizer(tokenizer_place(where), spec, local_files_only=cached)
    check_vocabulary(model, tokenizer, spec)
    if tokenizer.chat_template is None:
        say(f"{spec} has no chat template (base models have none): it gets prompts as plain text")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    hf_model = HfModel(model_name(resolve(target)), model.to(device), tokenizer)
    hf_model.form = answer_form(where)
    return hf_model


def _looks_like_path(target: str) -> bool:
    """Whether a missing `target` was meant as a folder: a hub name is NAME or OWNER/NAME, and OWNER is not a local folder."""
    if target.startswith((".", "/", "~")) or "\\" in target or target.count("/") > 1:
        return True
    return "/" in target and Path(target).parent.is_dir()


def base_of(folder: str) -> str:
    """The base model of an adapter; UserError when it is missing or has changed."""
    base = adapter_base(folder)
    if not Path(base).is_dir() and _looks_like_path(base):
        found = f"{Path(folder) / ADAPTER_CONFIG}: base model {base!r} does not exist"
        raise UserError(found, "its folder", "restore it or edit the file")
    check_base(folder, base)
    return base

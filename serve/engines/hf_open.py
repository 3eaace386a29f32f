"""Opens an hf: model, a full one or a PEFT adapter's folder; a name that nothing has is told before torch is imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph.encode.weights import ADAPTER_CONFIG, model_name
from graph.pretrained.cache import resolve
from graph.shared.errors import UserError
from graph.shared.hub import only_in_cache

if TYPE_CHECKING:
    from serve.engines.hf import HfModel

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def open_hf(target: str) -> HfModel:
    """Load a folder or a hub name (safetensors only); UserError when there is no such model."""
    path = Path(resolve(target)).expanduser()
    if not path.is_dir() and _looks_like_path(target):
        raise UserError(
            f"hf:{target}: no such folder", "a model's or adapter's folder, or a hub name", "check the path"
        )
    where = str(path) if path.is_dir() else target
    config_file = path / ADAPTER_CONFIG
    base = adapter_base(config_file) if config_file.is_file() else None
    whole = resolve(base) if base is not None else where
    cached = not Path(whole).is_dir() and only_in_cache(whole, f"hf:{target}" if base is None else f"base model {base}")
    return _open(target, where, whole, cached)


def _open(target: str, where: str, whole: str, cached: bool) -> HfModel:
    """The model `whole`, with the adapter in `where` if that is another place; `cached` keeps from asking the hub."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from graph.shared.quiet import quiet_loading
    from serve.engines.hf import HfModel

    quiet_loading()
    dtype: Any = "auto" if torch.cuda.is_available() else torch.float32
    model = _load(AutoModelForCausalLM, whole, target, dtype=dtype, use_safetensors=True, local_files_only=cached)
    if where != whole:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, where)
    own_tokenizer = where == whole or (Path(where) / "tokenizer_config.json").is_file()
    tokenizer = _load(AutoTokenizer, where if own_tokenizer else whole, target, local_files_only=cached)
    return HfModel(model_name(resolve(target)), model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer)


def _looks_like_path(target: str) -> bool:
    """Whether a missing `target` was meant as a folder: a hub name is NAME or OWNER/NAME, in no folder that is here."""
    if target.startswith((".", "/", "~")) or "\\" in target or target.count("/") > 1:
        return True
    return "/" in target and Path(target).parent.is_dir()


def adapter_base(config_file: Path) -> str:
    """The model that an adapter was trained on, from its adapter_config.json."""
    try:
        base = json.loads(config_file.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{config_file}: names no base model", "base_model_name_or_path", "save it again") from None
    if not (config_file.parent / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{config_file.parent}: no {ADAPTER_WEIGHTS}", "an adapter in safetensors", "save it again")
    if not isinstance(base, str) or (not Path(base).is_dir() and _looks_like_path(base)):
        raise UserError(f"{config_file}: base model {base!r} is not here", "its folder", "restore it or edit the file")
    return base


def _load(kind: Any, where: str, target: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(where, **options)
    except (OSError, ValueError, KeyError) as problem:
        reason = " ".join(str(problem).split())[:300]
        raise UserError(
            f"hf:{target}: {where} cannot be loaded ({reason})",
            "a causal language model in safetensors",
            "check the name",
        ) from None

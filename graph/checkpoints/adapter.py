"""An adapter's folder without its weights: which base it names, and whether that base is the one that it was trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from graph.encode.weights import ADAPTER_CONFIG, weights_fingerprint
from graph.pretrained.cache import resolve
from graph.shared.errors import UserError
from graph.shared.types import AnswerForm

ADAPTER_WEIGHTS = "adapter_model.safetensors"
RECORD = "run.json"
"""What a training run says of itself: `base_weights` is the fingerprint of the base that it started from."""


def is_adapter(source: str) -> bool:
    """Whether `source` is the folder or the name of an adapter."""
    return (Path(resolve(source)) / ADAPTER_CONFIG).exists()


def tokenizer_place(source: str) -> str:
    """Where a model's tokenizer lies: beside it, or beside the base of an adapter that has none."""
    place = resolve(source)
    own = not is_adapter(place) or (Path(place) / "tokenizer_config.json").is_file()
    return place if own else resolve(adapter_base(place))


def adapter_base(source: str) -> str:
    """The base model's name or path as an adapter's folder records it; UserError for a folder without that, or without weights."""
    folder = resolve(source)
    config = Path(folder) / ADAPTER_CONFIG
    base = _read(config).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"{config}: names no base model", "base_model_name_or_path", "save it again")
    if not (Path(folder) / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{folder}: no {ADAPTER_WEIGHTS}", "an adapter in safetensors", "save it again")
    if is_adapter(base):
        found = f"{config}: base model {base!r} is an adapter itself"
        raise UserError(found, "a whole model", "merge that one first (modegraph train export --merge)")
    return base


def base_weights(source: str) -> str:
    """The fingerprint of a model's weights, of the base's for an adapter; a hub name stands for itself."""
    base = Path(resolve(adapter_base(source) if is_adapter(source) else source))
    return weights_fingerprint(base) if base.is_dir() else str(base)


def check_base(adapter: str, base: str) -> None:
    """UserError when the run that made an adapter says that its base had other weights than the one that is there now."""
    trained_on = _read(Path(resolve(adapter)) / RECORD).get("base_weights")
    if trained_on and Path(resolve(base)).is_dir() and trained_on != base_weights(base):
        raise another_base(adapter, base, f"trained on weights {trained_on}, found {base_weights(base)}")


def trained_precision(source: str) -> str | None:
    """The number format that a run's model had in training, an adapter's base or a whole model; None where no run tells."""
    settings = _read(Path(resolve(source)) / RECORD).get("settings")
    found = settings.get("precision") if isinstance(settings, dict) else None
    return found if found in ("float32", "bfloat16") else None


def answer_form(source: str | Path) -> AnswerForm:
    """The form of the answers that a model was trained to give, by the run.json beside it; "reasoned" where none says."""
    found = _read(Path(resolve(str(source))) / RECORD).get("answer_form")
    return next((form for form in get_args(AnswerForm) if form == found), "reasoned")


def another_base(adapter: str, base: str, why: str) -> UserError:
    """What to say of an adapter on a base that is not its own."""
    return UserError(
        f"adapter {adapter!r} does not belong to base model {base!r} ({why})",
        "the very model that it was trained on",
        f"put that model back, or fix base_model_name_or_path in {Path(adapter) / ADAPTER_CONFIG}",
    )


def _read(file: Path) -> dict[str, Any]:
    """What a JSON file holds; {} for none, or one that cannot be read."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}

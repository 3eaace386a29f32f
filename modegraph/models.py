"""The language models that an API call names: a SPEC, a run, or a model that is open already."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TypeAlias

from graph.shared.types import LanguageModel
from modegraph.runs import Run

Model: TypeAlias = "str | Run | LanguageModel"
"""`hf:PATH_OR_NAME`, `openai:NAME@URL`, a finished run, or what `open_model` returned."""


def open_model(model: str | Run) -> LanguageModel:
    """Open a model, to be given to several calls; UserError for one that cannot be had."""
    from serve.engines import open_model as open_engine

    return open_engine(spec_of(model))


def spec_of(model: str | Run) -> str:
    """A run's folder as a SPEC; a SPEC as it stands."""
    return model if isinstance(model, str) else f"hf:{model.folder}"


class _Kept:
    """The model that was opened last, so that a loop of questions loads it once; one is held at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._key: tuple[str, int] | None = None
        self._model: LanguageModel | None = None

    def get(self, model: str | Run) -> LanguageModel:
        spec = spec_of(model)
        with self._lock:
            key = (spec, _changed_ns(spec))
            if self._model is None or self._key != key:
                self._model = None
                self._model, self._key = open_model(spec), key
            return self._model


KEPT = _Kept()


def model_of(model: Model) -> LanguageModel:
    """The model to ask; one that is named is opened, and kept until another one is named."""
    return KEPT.get(model) if isinstance(model, str | Run) else model


def _changed_ns(spec: str) -> int:
    """When the folder of a model was last changed; 0 for what is no folder."""
    folder = Path(spec.partition(":")[2]).expanduser()
    return folder.stat().st_mtime_ns if folder.is_dir() else 0

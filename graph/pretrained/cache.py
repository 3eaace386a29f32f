"""The cache of converted models: where one lies, whether it is whole, and what a name stands for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graph.pretrained.catalogue import ADAPTERS, CATALOGUE, MODELS, Pretrained, PretrainedModel
from graph.shared.errors import UserError
from graph.shared.home import user_cache
from graph.shared.ids import checksum

RECORD = "pretrained.json"
"""Beside the weights: which file they came from, and of every file its checksum, size and time. Written last."""


def resolve(model: str, among: Mapping[str, Pretrained] = MODELS) -> str:
    """The folder of a language model of the catalogue, of what is `among` others, or of our own adapter; any other name or path as it stands.

    A folder of that name in the working directory goes first. UserError for a model that was not fetched yet, or is damaged.
    """
    known = among.get(model)
    if Path(model).is_dir() or (known is None and model not in ADAPTERS):
        return model
    if known is None:
        return str(ADAPTERS[model].folder)
    folder = folder_of(known)
    if not is_fetched(known):
        raise UserError(f"model {model!r}: not fetched yet", "it in the cache", f"run: modegraph models get {model}")
    _check_once(folder, model)
    return str(folder)


def gguf_of(model: PretrainedModel) -> Path:
    """The GGUF file of a fetched language model; UserError as `resolve`."""
    return Path(resolve(model.name, {model.name: model})) / model.file


def name_of(folder: str) -> str:
    """A model of the catalogue by its name where `folder` is its own; any other folder or name as it stands."""
    return next((known.name for known in CATALOGUE.values() if Path(folder) == folder_of(known)), folder)


def folder_of(model: Pretrained) -> Path:
    """Where a converted model is kept."""
    return user_cache() / "models" / model.name


def is_fetched(model: Pretrained) -> bool:
    """Whether it is in the cache, made from the very file of the catalogue, which of a language model is there too."""
    record = read_record(model)
    return record.get("sha256") == model.sha256 and (
        not isinstance(model, PretrainedModel) or model.file in record.get("files", {})
    )


def read_record(model: Pretrained) -> dict[str, Any]:
    """What is noted beside a converted model; {} when there is none."""
    return _read(folder_of(model) / RECORD)


def write_record(folder: Path, model: Pretrained) -> None:
    """Note the origin, and the checksum and state of every file in `folder`."""
    files = {
        file.relative_to(folder).as_posix(): {"checksum": checksum(file), **_state(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    record = {"name": model.name, "sha256": model.sha256, "licence": model.licence, "files": files}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def is_whole(model: Pretrained) -> bool:
    """Whether it is in the cache as it was converted, every file of it."""
    try:
        check_files(folder_of(model), model.name)
    except UserError:
        return False
    return is_fetched(model)


def check_files(folder: Path, name: str, changed_only: bool = False) -> None:
    """UserError naming the first file of a converted model that is missing or not as it was written.

    With `changed_only`, a file with the size and the time that were noted is not read again: of gigabytes that would take seconds.
    """
    remedy = f"make it again: modegraph models get {name}"
    files = _read(folder / RECORD).get("files")
    if not isinstance(files, dict) or not files or not all(isinstance(noted, dict) for noted in files.values()):
        raise UserError(f"{folder / RECORD}: no checksums", "those of every file, as converted", remedy)
    for file, noted in files.items():
        path = folder / file
        if changed_only and path.is_file() and _state(path).items() <= noted.items():
            continue
        expected, found = str(noted.get("checksum")), checksum(path) if path.is_file() else "nothing"
        if found != expected:
            raise UserError(f"{path}: checksum {found[:12]}", f"{expected[:12]}, as converted", remedy)


def remove(model: Pretrained) -> bool:
    """Delete a converted model; False when there was none."""
    folder = folder_of(model)
    if not folder.is_dir():
        return False
    shutil.rmtree(folder)
    return True


@cache
def _check_once(folder: Path, name: str) -> None:
    check_files(folder, name, changed_only=True)


def _state(file: Path) -> dict[str, int]:
    """What tells a changed file from the one that was noted, without reading it."""
    status = file.stat()
    return {"bytes": status.st_size, "time_ns": status.st_mtime_ns}


def _read(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}

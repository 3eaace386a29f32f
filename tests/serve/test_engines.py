from pathlib import Path

import pytest

from graph.errors import UserError
from serve.engines import kind_of, open_model


@pytest.mark.parametrize("spec", ["", "hf", "hf:", "gpt-5", "vllm:", "openai:"])
def test_the_error_for_an_unknown_spec_lists_the_forms(spec: str) -> None:
    with pytest.raises(
        UserError, match="hf:PATH_OR_NAME, gguf:FILE, openvino:FOLDER, vllm:PATH_OR_NAME, openai:NAME@URL"
    ):
        open_model(spec)


@pytest.mark.parametrize("name", ["smollm2", "reader"])
def test_a_name_of_the_catalogue_that_is_also_a_folder_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=f"model '{name}': a model of the catalogue, but also a folder.*hf:./{name}"):
        kind_of(name)
    assert kind_of(f"hf:./{name}") == ("hf", f"./{name}")


@pytest.mark.parametrize(
    ("name", "gpu", "installed", "kind"),
    [
        ("qwen2.5-coder-0.5b", True, ("openvino", "llama"), "hf"),
        ("qwen2.5-coder-0.5b", False, ("openvino", "llama"), "openvino"),
        ("smollm2", False, ("openvino", "llama"), "openvino"),
        ("qwen2.5-coder-0.5b", False, ("llama",), "gguf"),
        ("qwen2.5-coder-0.5b", False, (), "hf"),
    ],
)
def test_a_catalogue_model_is_opened_by_the_fastest_available_engine(
    name: str, gpu: bool, installed: tuple[str, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.engines.on_cpu", lambda: not gpu)
    monkeypatch.setattr("serve.engines.openvino_ir.is_installed", lambda: "openvino" in installed)
    monkeypatch.setattr("serve.engines.llama.is_installed", lambda: "llama" in installed)
    assert kind_of(name) == (kind, name)
    assert kind_of(f"vllm:{name}") == ("vllm", name), "an engine named in the spec should take precedence"

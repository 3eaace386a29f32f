from pathlib import Path

import pytest

from graph.errors import UserError
from graph.types import CompletionRequest, Message
from serve.engines import kind_of, open_model
from serve.ledger import Ledger
from tests.fakes import chat_server


@pytest.mark.parametrize("spec", ["", "hf", "hf:", "gpt-5", "vllm:", "openai:"])
def test_the_error_for_an_unknown_spec_lists_the_forms(spec: str) -> None:
    with pytest.raises(
        UserError, match="hf:PATH_OR_NAME, gguf:FILE, openvino:FOLDER, vllm:PATH_OR_NAME, openai:NAME@URL"
    ):
        open_model(spec)


@pytest.mark.long
def test_with_a_ledger_file_a_call_is_made_only_once(tmp_path: Path) -> None:
    with chat_server(lambda body, number: f"answer {number}") as server:
        request = CompletionRequest((Message("user", "hello"),), max_tokens=5)
        for _ in range(2):
            model = open_model(f"openai:m@{server.url}", tmp_path / "ledger.sqlite")
            assert isinstance(model, Ledger)
            assert model.complete([request])[0].text == "answer 1"
        assert len(server.requests) == 1


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

from pathlib import Path

import pytest

from graph.shared.errors import UserError
from graph.shared.types import CompletionRequest, Message
from serve.engines import open_model
from serve.ledger import Ledger
from tests.fakes import chat_server


@pytest.mark.parametrize("spec", ["", "hf", "hf:", "gpt-5", "vllm:", "openai:"])
def test_an_unknown_spec_lists_the_forms(spec: str) -> None:
    with pytest.raises(UserError, match="hf:PATH_OR_NAME, vllm:PATH_OR_NAME, openai:NAME@URL"):
        open_model(spec)


def test_with_a_file_the_model_keeps_a_ledger(tmp_path: Path) -> None:
    with chat_server(lambda body, number: f"answer {number}") as server:
        request = CompletionRequest((Message("user", "hello"),), max_tokens=5)
        for _ in range(2):
            model = open_model(f"openai:m@{server.url}", tmp_path / "ledger.sqlite")
            assert isinstance(model, Ledger)
            assert model.complete([request])[0].text == "answer 1"
        assert len(server.asked) == 1

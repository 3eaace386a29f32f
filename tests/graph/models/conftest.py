"""A tiny language model that is loaded as it is, or copied and damaged."""

from pathlib import Path

import pytest

from tests.tiny_models import write_tiny_llama


@pytest.fixture(scope="session")
def intact_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "intact_model")

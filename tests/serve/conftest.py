"""Tiny models, and a real server (uvicorn, on a free port) with a small real index and an upstream server whose replies each test chooses."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import stamina
import torch
from transformers import AutoModelForCausalLM

from graph.build.build import build_index
from graph.config import parse_settings
from graph.store.index_settings import IndexSettings
from serve.engines.openai_api import ATTEMPTS
from tests.corpora import ISLES
from tests.fakes import ChatServer, HashEncoder, Reply, chat_server
from tests.serve.http.running import Running, serving
from tests.tiny_models import write_tiny_llama

SETTINGS = parse_settings(IndexSettings, {"min_similarity": 0.1}, "test")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with a byte-level tokenizer and ChatML special tokens."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_adapter(tiny_llama: Path) -> Path:
    """An adapter with random weights for `tiny_llama`."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(tiny_llama)
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    folder = tiny_llama.parent / "adapter"
    adapted.save_pretrained(folder)
    return folder


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Failed calls are retried without a delay."""
    with stamina.set_testing(True, attempts=ATTEMPTS, cap=True):
        yield


@pytest.fixture
def isles(shared_isles: Path, tmp_path: Path) -> Path:
    """An index of ISLES that a test may change."""
    return shutil.copytree(shared_isles, tmp_path / "index")


@pytest.fixture(scope="session")
def shared_isles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of ISLES that no test changes."""
    folder = tmp_path_factory.mktemp("isles") / "index"
    build_index(folder, ISLES, SETTINGS, lambda spec: HashEncoder())
    return folder


class Stack:
    """Starts servers, each with an upstream server; all run until the fixture ends."""

    def __init__(self, exits: ExitStack, index: Path) -> None:
        self._exits, self._index = exits, index

    def __call__(
        self,
        reply: Reply | str = "###Reason: so [1]. ###Answer: 1911",
        seconds_per_word: float = 0.0,
        adapters: tuple[str, ...] = (),
        window: int | None = None,
        **settings: object,
    ) -> tuple[Running, ChatServer]:
        replies: Reply = (lambda body, number: reply) if isinstance(reply, str) else reply
        upstream = self._exits.enter_context(chat_server(replies, seconds_per_word, window))
        running = self._exits.enter_context(serving(self._index, f"openai:tiny@{upstream.url}", adapters, **settings))
        return running, upstream


@pytest.fixture
def stack(shared_isles: Path) -> Iterator[Stack]:
    """Each call starts a server on `shared_isles` and its upstream server, and returns both."""
    with ExitStack() as exits:
        yield Stack(exits, shared_isles)


@pytest.fixture(scope="session")
def shared_stack(shared_isles: Path) -> Iterator[tuple[Running, ChatServer]]:
    """A server shared by tests whose requests only search or are refused, and its upstream server, which none of these requests may reach."""
    with ExitStack() as exits:
        yield Stack(exits, shared_isles)()

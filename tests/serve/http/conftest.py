"""A real server (uvicorn, on a free port) over a small real index, in front of a server that says what a test wants."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from graph.build.build import build_index
from graph.config import parse_settings
from graph.store.index_settings import IndexSettings
from tests.corpora import ISLES
from tests.fakes import ChatServer, HashEncoder, Reply, chat_server
from tests.serve.http.running import Running, serving

SETTINGS = parse_settings(IndexSettings, {"min_similarity": 0.1}, "test")


@pytest.fixture
def isles(tmp_path: Path) -> Path:
    """An index of ISLES that a test may change."""
    folder = tmp_path / "index"
    build_index(folder, ISLES, SETTINGS, lambda spec: HashEncoder())
    return folder


@pytest.fixture(scope="session")
def isles_kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of ISLES that no test changes."""
    folder = tmp_path_factory.mktemp("isles") / "index"
    build_index(folder, ISLES, SETTINGS, lambda spec: HashEncoder())
    return folder


class Stack:
    """A server over an upstream that both live until the test ends."""

    def __init__(self, exits: ExitStack, index: Path) -> None:
        self._exits, self._index = exits, index

    def __call__(
        self,
        reply: Reply | str = "###Reason: so [1]. ###Answer: 1911",
        seconds_a_word: float = 0.0,
        adapters: tuple[str, ...] = (),
        window: int | None = None,
        **settings: object,
    ) -> tuple[Running, ChatServer]:
        said: Reply = (lambda body, number: reply) if isinstance(reply, str) else reply
        upstream = self._exits.enter_context(chat_server(said, seconds_a_word, window))
        running = self._exits.enter_context(serving(self._index, f"openai:tiny@{upstream.url}", adapters, **settings))
        return running, upstream


@pytest.fixture
def stack(isles_kept: Path) -> Iterator[Stack]:
    with ExitStack() as exits:
        yield Stack(exits, isles_kept)

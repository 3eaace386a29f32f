"""SERVER of `modegraph serve check` as a running server: one that runs already, or llama.cpp's own for a GGUF file, for as long as the check takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from graph.shared.errors import UserError
from serve.engines.child import OwnServer
from serve.engines.llama import read_llama
from serve.engines.openai_api import split_target
from train.export.server import Server, own_server


@contextmanager
def opened(spec: str) -> Iterator[tuple[str, Server]]:
    """(name, server) of `gguf:FILE`, `gguf:FOLDER`, `gguf:NAME` of the catalogue, `openai:NAME@URL`, or a URL, whose name is "".

    UserError for anything else, and for a file that llama.cpp does not open.
    """
    kind, _, target = spec.partition(":")
    if kind != "gguf":
        name, url = read_target(spec)
        yield name, Server(url)
        return
    llama = read_llama(target, {})
    with closing(OwnServer(llama)) as child:
        child.wait()
        yield next(iter(llama.adapters), llama.name), own_server(llama, child)


def read_target(spec: str) -> tuple[str, str]:
    """(name, URL) of `openai:NAME@URL`, or of a URL alone, whose name is ""; UserError for anything else."""
    if spec.startswith(("http://", "https://")) and urlsplit(spec).hostname:
        return "", spec
    kind, _, target = spec.partition(":")
    if kind != "openai":
        raise UserError(
            f"{spec!r}",
            "openai:NAME@URL, the URL of a server, or gguf:FILE",
            "start the server and give its URL (…/v1), or name an exported GGUF file",
        )
    return split_target(target)

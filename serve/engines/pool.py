"""Several servers of one model as one engine: a call goes to whichever server has room, so a quick one takes more of them.

The name alone stands in a ledger's keys (serve/ledger.py), so a run goes on with other servers and makes no finished call again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition

from graph.shared.console import say
from graph.shared.errors import UserError
from graph.shared.types import AnswerForm, Completion, CompletionRequest, Message
from serve.engines.openai_api import NoAnswer, OpenAIModel, complete_all, open_openai


def open_pool(targets: Sequence[str]) -> ServerPool:
    """`NAME@URL` of each server, one name for all; UserError for two names, or for a server that is given twice. Makes no call."""
    servers = [open_openai(target) for target in targets]
    names = list(dict.fromkeys(server.name for server in servers))
    if len(names) > 1:
        found = f"servers of {' and '.join(repr(name) for name in names)}"
        raise UserError(found, "servers of one model, under one name", "serve it by the same name everywhere")
    twice = next((server.url for number, server in enumerate(servers) if server.url in _urls(servers[:number])), None)
    if twice is not None:
        raise UserError(f"openai:{names[0]}@{twice}: given twice", "each server once", "leave one out")
    return ServerPool(servers)


class ServerPool:
    """The Engine of one model behind several servers; safe to share between threads.

    Each server has at most its own `in_flight` calls. One that gives no answer is asked no more, with a line that says so, and its
    calls are made by the others; the error of the last one is that of every call from then on.
    """

    batch_size = 1
    form: AnswerForm = "reasoned"

    def __init__(self, servers: Sequence[OpenAIModel]) -> None:
        self.name = servers[0].name
        self._first = servers[0]
        self._servers = list(servers)
        self._none_left: NoAnswer | None = None
        self._running = {server.url: 0 for server in servers}
        self._room = Condition()
        self._pool = ThreadPoolExecutor(self.in_flight, thread_name_prefix="servers")

    @property
    def in_flight(self) -> int:
        """How many calls all servers that are left take at once."""
        return sum(server.in_flight for server in self._servers)

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        """Answers in the order asked, whichever server gave them; UserError as OpenAIModel's when no server is left, or one refuses."""
        return complete_all(self._pool, self._complete_one, requests)

    def count_tokens(self, text: str) -> int:
        return self._first.count_tokens(text)

    def window(self) -> int | None:
        """The smallest that a server tells of: any of them may get the call."""
        return min((told for server in self._servers if (told := server.window()) is not None), default=None)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return self._first.prompt_tokens(messages)

    def _complete_one(self, request: CompletionRequest) -> Completion:
        while True:
            server = self._take()
            try:
                return server.complete([request])[0]
            except NoAnswer as problem:
                self._leave_out(server, problem)
            finally:
                self._give_back(server)

    def _take(self) -> OpenAIModel:
        """The server with the most room, as soon as there is one with any; the error of the last one where all are gone."""
        with self._room:
            while not (free := [server for server in self._servers if self._left(server) > 0]):
                if self._none_left is not None:
                    raise self._none_left
                self._room.wait()
            server = max(free, key=self._left)
            self._running[server.url] += 1
            return server

    def _give_back(self, server: OpenAIModel) -> None:
        with self._room:
            self._running[server.url] -= 1
            self._room.notify()

    def _leave_out(self, server: OpenAIModel, problem: NoAnswer) -> None:
        """Ask `server` no more."""
        with self._room:
            if server not in self._servers:
                return
            self._servers.remove(server)
            if self._servers:
                say(f"{problem}: going on with {', '.join(_urls(self._servers))}")
            else:
                self._none_left = problem
                self._room.notify_all()

    def _left(self, server: OpenAIModel) -> int:
        return server.in_flight - self._running[server.url]


def _urls(servers: Sequence[OpenAIModel]) -> list[str]:
    return [server.url for server in servers]

"""A model server (vLLM or llama.cpp) as a child process: supervised for `modegraph serve`, or started and awaited by one command.

The child runs under a guard (process_group_guard.py) in its own process group, so that none of its processes outlives this one.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import httpx2

from graph.errors import UserError
from graph.shared.console import say

LOG = logging.getLogger("modegraph.serve")
POLL_S, BLOCKING_POLL_S = 0.5, 0.05
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
STOP_S = 30.0
PROCESS_GROUP_GUARD = Path(__file__).with_name("process_group_guard.py")


class ServerSpec(Protocol):
    """A server to run. It listens on 127.0.0.1, answers /health with 200 once it is ready, and requires the `key` of its `environment` as a bearer token.

    `engine` is its display name, `name` the name that its model is served under, `adapters` the folders or files of its adapters by name, `default` the
    name of the adapter that clients get by default ("": the model itself), `spec_text` the model's SPEC, for messages, and `remedy` what to do when the
    server does not start.
    """

    @property
    def engine(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def adapters(self) -> Mapping[str, Path]: ...
    @property
    def default(self) -> str: ...
    @property
    def spec_text(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    def command(self, port: int) -> list[str]: ...
    def environment(self, key: str) -> Mapping[str, str]: ...


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _new_log(engine: str) -> Path:
    handle, log = tempfile.mkstemp(prefix=f"modegraph-{engine.lower()}-", suffix=".log")
    os.close(handle)
    return Path(log)


class SupervisedServer:
    """Keeps one server running from `start` to `stop`. `url` and `key` stay the same across restarts."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.key = secrets.token_urlsafe(32)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self.log = _new_log(spec.engine)
        self.ready = asyncio.Event()
        self._has_failed = False
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and return immediately; `ready` is set when it answers."""
        LOG.info("starting %s for %s; its log: %s", self.spec.engine, self.spec.name, self.log)
        self._supervisor = asyncio.create_task(self._keep_running())

    async def stop(self) -> None:
        """Stop the server and all its processes; the log is kept if the server ever exited without being stopped, or never became ready."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        await self._end_process()
        if self.ready.is_set() and not self._has_failed:
            self.log.unlink(missing_ok=True)

    async def _keep_running(self) -> None:
        """Restart the server whenever it ends or cannot be started, after a wait that doubles until the server becomes ready."""
        wait_s, engine = FIRST_WAIT_S, self.spec.engine
        while True:
            try:
                answered = await self._run_once()
                problem = f"{engine} ended"
            except (OSError, UserError) as error:
                answered, problem = False, f"{engine} could not be started: {type(error).__name__}: {error}"
            self.ready.clear()
            self._has_failed = True
            await self._end_process()
            wait_s = FIRST_WAIT_S if answered else wait_s
            LOG.warning("%s; restarting it in %.0f s; its log: %s", problem, wait_s, self.log)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)

    async def _run_once(self) -> bool:
        """Start the server and wait until it ends; return whether it became ready before that."""
        process = await self._launch()
        if not await self._wait_until_ready(process):
            return False
        LOG.info("%s answers at %s", self.spec.engine, self.url)
        self.ready.set()
        await process.wait()
        return True

    async def _launch(self) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(PROCESS_GROUP_GUARD), *self.spec.command(self._port)),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self.spec.environment(self.key),
                start_new_session=True,
            )
        return self._process

    async def _wait_until_ready(self, process: asyncio.subprocess.Process) -> bool:
        """True as soon as the server answers, False when it ends first."""
        async with httpx2.AsyncClient(timeout=2.0, trust_env=False) as client:
            while process.returncode is None:
                try:
                    if (await client.get(_health(self.url))).status_code == 200:
                        return True
                except httpx2.HTTPError:
                    pass
                await asyncio.sleep(POLL_S)
        return False

    async def _end_process(self) -> None:
        """Stop the guard, which stops the group; kill the rest of the group if the guard cannot."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            LOG.warning("%s did not end within %.0f s and is killed", self.spec.engine, STOP_S)
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        self._process = None


class CommandServer:
    """A server that runs for one command: until `close`, or until this process ends for any reason (process_group_guard.py).

    It starts when the object is created, so that the command can load other resources in the meantime; `wait` returns when it answers.
    """

    def __init__(self, spec: ServerSpec) -> None:
        self.spec, self.name, self.key = spec, spec.name, secrets.token_urlsafe(32)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/v1"
        self.log = _new_log(spec.engine)
        self._answered = False
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROCESS_GROUP_GUARD), *spec.command(port)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=spec.environment(self.key),
                start_new_session=True,
            )
        atexit.register(self.close)
        say(f"starting {spec.engine} for {spec.name}")

    @property
    def has_exited(self) -> bool:
        """Whether the server's process has exited."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Stop the guard, and wait until the server has exited; the log is kept if the server had already exited or never answered."""
        atexit.unregister(self.close)
        was_running = self._process.poll() is None
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._answered and was_running:
            self.log.unlink(missing_ok=True)

    def wait(self) -> None:
        """Return once the server answers; UserError when it ends first."""
        while not self._answered and self._process.poll() is None:
            try:
                with _DIRECT.open(_health(self.url), timeout=2.0):
                    self._answered = True
            except OSError:
                time.sleep(BLOCKING_POLL_S)
        if self._answered:
            return
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        causes = [line for line in lines if "rror" in line or "No module" in line] or lines or ["nothing in its log"]
        engine = self.spec.engine
        found = f"{self.spec.spec_text}: {engine} exited before it answered ({causes[-1].strip()[:300]})"
        raise UserError(found, f"a {engine} server that starts", f"{self.spec.remedy}, and see {self.log}")


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs of this machine, ignoring any proxy that the environment sets."""


def _health(url: str) -> str:
    return url.removesuffix("/v1") + "/health"


def public_name(target: str) -> str:
    """The name of a model for clients: the last part of a folder's path, or the target itself.

    >>> public_name("minilm"), public_name("owner/model")
    ('minilm', 'owner/model')
    """
    path = Path(target).expanduser()
    return path.resolve().name if path.is_dir() else target


def check_adapter_names(model: str, adapters: Collection[str]) -> None:
    """UserError for an adapter with the name of the model."""
    if model in adapters:
        raise UserError(f"--adapter {model}=…", "another name: this is the name of the model", "rename the adapter")

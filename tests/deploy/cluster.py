"""The setup of deploy/replicas on this machine: two replicas that share one index, whose rows are in PostgreSQL, behind the shipped nginx.conf."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from graph.build.build import build_index
from graph.postgres.schema import place_in_database
from graph.store.index_settings import IndexSettings
from tests.corpora import ISLES
from tests.fakes import ChatServer, HashEncoder, chat_server
from tests.places import ROOT
from tests.processes import answers, until
from tests.serve.http.running import bound_socket

NGINX_CONF = ROOT / "deploy" / "replicas" / "nginx.conf"
SETTINGS = IndexSettings(min_similarity=0.1)
REPLY = "###Reason: so [1]. ###Answer: 1911 [1]"
REPLY_DELAY_S = 0.3
LOG_SETTINGS = (
    "log_format requests '$http_x_request_id|$upstream_addr|$status|$msec|$request_time'; access_log {} requests;"
)


@dataclass
class Replica:
    """A replica with its own port and its own model server. The model server records the requests that it gets."""

    index: Path
    model: ChatServer
    port: int
    log: Path
    process: "subprocess.Popen[bytes]" = field(init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the replica, and wait until it is ready."""
        words = [str(self.index), f"openai:tiny@{self.model.url}", str(self.port)]
        with self.log.open("ab") as log:
            command = [sys.executable, "-P", "-m", "tests.deploy.replica", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: self.process.poll() is not None or answers(f"{self.url}/ready"), 120)
        assert self.process.poll() is None, (
            f"the replica should keep running; its log ends: {self.log.read_text()[-1000:]}"
        )

    def stop(self) -> None:
        """Stop the replica as a rolling restart does."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=60, verify=False, **options)

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, timeout=60, verify=False, **options)


@dataclass(frozen=True)
class LoggedRequest:
    """A request in nginx's log: the replicas that it was sent to, in order, its status, and when it arrived."""

    replicas: tuple[str, ...]
    status: int
    arrived_at: float


@dataclass(frozen=True)
class Cluster:
    url: str
    index: Path
    replicas: tuple[Replica, Replica]
    nginx_log: Path

    def logged_requests(self) -> dict[str, LoggedRequest]:
        """The requests by their X-Request-Id; of several requests with the same id or without one, only the last."""
        found = {}
        for line in self.nginx_log.read_text().splitlines():
            name, replicas, status, ended_at, seconds = line.split("|")
            found[name] = LoggedRequest(tuple(replicas.split(", ")), int(status), float(ended_at) - float(seconds))
        return found


@contextmanager
def running_cluster(dsn: str, folder: Path) -> Iterator[Cluster]:
    """A cluster that is ready when the `with` block begins and runs until it ends."""
    program = nginx_program()
    index = folder / "index"
    place_in_database(index, dsn)
    build_index(index, ISLES, SETTINGS, lambda spec: HashEncoder())
    with ExitStack() as exits:
        models = [exits.enter_context(chat_server(_reply)) for _ in range(2)]
        ports = free_ports(3)
        replicas = [
            Replica(index, model, port, folder / f"{port}.log") for model, port in zip(models, ports[:2], strict=True)
        ]
        for each in replicas:
            each.start()
            exits.callback(lambda each=each: each.kill())  # type: ignore[misc]
        log = exits.enter_context(running_nginx(program, ports[2], ports[:2], folder))
        yield Cluster(f"http://127.0.0.1:{ports[2]}", index, (replicas[0], replicas[1]), log)


def nginx_program() -> str:
    """The path of nginx; skips the test if nginx is not installed."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        pytest.skip("replicas are tested behind nginx, which is not installed (apt-get install nginx-light)")
    return program


@contextmanager
def running_nginx(program: str, port: int, replicas: Sequence[int], folder: Path) -> Iterator[Path]:
    """Run nginx with the shipped configuration, except for addresses, file locations and a log, whose path is yielded."""
    log = folder / "nginx.log"
    log.touch()
    changes = {
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "access_log off;": LOG_SETTINGS.format(log),
        **{f"server replica-{number}:8080": f"server 127.0.0.1:{at}" for number, at in enumerate(replicas, 1)},
    }
    text = NGINX_CONF.read_text(encoding="utf-8").replace("/tmp/", f"{folder}/")
    for shipped, here in changes.items():
        assert text.count(shipped) == 1, f"nginx.conf should contain {shipped!r} once, not {text.count(shipped)} times"
        text = text.replace(shipped, here)
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    # Started by root, nginx would run its workers as another user, who may lack access to the folder.
    words = "daemon off;" if os.geteuid() else "daemon off; user root;"
    command = [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", words]
    with (folder / "nginx-errors.log").open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors)
    try:
        _wait_for(port, process)
        yield log
    finally:
        process.terminate()
        process.wait(30)


def free_ports(number: int) -> list[int]:
    """Ports on which no process listens."""
    with ExitStack() as exits:
        return [exits.enter_context(bound_socket()).getsockname()[1] for _ in range(number)]


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 30
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        assert process.poll() is None and time.monotonic() < end, (
            f"nginx should accept connections on port {port} within 30 s"
        )
        time.sleep(0.02)


def _reply(body: dict[str, Any], number: int) -> str:
    time.sleep(REPLY_DELAY_S)
    return REPLY

"""Into a Ray cluster: one of our own for as long as a command runs, or one that is there; within seconds, or told in one line.

Ray gets a token, listens on loopback alone, shows no dashboard and sends nothing home where the cluster is ours.
"""

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

from graph.shared.errors import UserError

CONNECT_S = 2.0
"""For the address to answer at all."""
ANSWER_S = 2.5
"""For it to answer as Ray does."""
NO_STATISTICS = {"RAY_USAGE_STATS_ENABLED": "0"}
OURS_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
"""Environment of a cluster of our own. The first, which Ray reads when it is imported, has it use 127.0.0.1 on Linux as elsewhere."""
QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}


class Cluster:
    """A connection to a Ray cluster. `ray` is the module; `unwanted` are folders that Ray puts on its workers' search path alone."""

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        """Connect to `address`, or start a cluster of `cpus` (None: as many as there are) on this machine."""
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            raise UserError("Ray: this process is connected already", "one cluster at a time", "shut that one down")
        self._folder: Path | None = None
        here = str(Path.cwd())
        self.unwanted = () if {here, ""} & {*sys.path} else (here,)
        if address is None:
            self.ray = _load_for_ours()
            self._folder = _own_folder()
            self._init(address="local", num_cpus=cpus, _temp_dir=str(self._folder))
        else:
            _check_reached(address)
            self.ray = load_ray()
            if not _is_ray(address):
                found = f"--ray-address {address}: what answers there is not Ray"
                raise UserError(found, "the port that `ray start --head` told", "")
            self._init(address=address)

    def close(self) -> None:
        """Leave the cluster; one of our own ends."""
        self.ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _init(self, **options: Any) -> None:
        try:
            self.ray.init(**QUIET, **options)
        # Ray raises whatever it meets: RuntimeError, ValueError, ConnectionError, errors of its own.
        except Exception as problem:  # noqa: BLE001
            self.close()
            remedy = "try again when the machine is less busy" if self._folder else "check the address and the version"
            raise UserError(f"Ray: {first_line(problem)}", "", remedy) from None


def _load_for_ours() -> ModuleType:
    """The library, set up for a cluster of our own, which a token opens; also where it was imported before."""
    os.environ.update(OURS_ALONE)
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    is_late = "ray" in sys.modules
    ray = load_ray()
    if is_late:
        from ray._raylet import AuthenticationTokenLoader, Config

        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()
    return ray


def load_ray() -> ModuleType:
    """The library, which sends no statistics; UserError without it."""
    os.environ.update(NO_STATISTICS)
    try:
        import ray
    except ImportError as problem:
        raise UserError(f"ray: {problem}", "the extra scale", "pip install 'modegraph[scale]'") from None
    loaded: ModuleType = ray
    return loaded


def first_line(problem: BaseException) -> str:
    """What an exception says first."""
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)


def _own_folder() -> Path:
    """Where a cluster of our own keeps sockets and logs: as near the root as can be, for a socket's path has 107 characters at most."""
    root = Path("/tmp")
    return Path(tempfile.mkdtemp(prefix="modegraph-ray-", dir=root if root.is_dir() else None))


def _check_reached(address: str) -> None:
    """UserError when nothing answers at HOST:PORT. Ray itself would try for 40 s."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        found, remedy = f"--ray-address {address}", "run the command on a node of the cluster, or in a Ray job"
        raise UserError(found, "HOST:PORT of a cluster", remedy)
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as problem:
        found = f"--ray-address {address}: cannot be reached ({first_line(problem)})"
        raise UserError(found, "a running cluster", "start it with: ray start --head") from None


def _is_ray(address: str) -> bool:
    """Whether the head of a cluster answers in time. The thread that asks one that does not goes on for a while, and keeps nothing up."""
    answered = []

    def ask() -> None:
        from ray._raylet import GcsClient

        with suppress(Exception):
            answered.append(GcsClient(address=address))

    asking = Thread(target=ask, daemon=True)
    with _hushed():
        asking.start()
        asking.join(ANSWER_S)
    return bool(answered)


@contextmanager
def _hushed() -> Iterator[None]:
    """Nothing of this process goes to standard error: Ray's own code writes there, past Python, what another service answered."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)

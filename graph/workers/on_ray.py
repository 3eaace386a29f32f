"""The engine `ray`: a connection to a cluster, pools of workers in it, and one process that feeds them and takes their results in order.

A cluster is one of our own for as long as a command runs (with a token, on loopback alone, without dashboard or statistics) or one that is
running. Workers are actors that keep what they opened, started as there is work; Ray restarts one whose process or machine was lost, and
gives it its batches again."""

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import RLock, Thread
from types import ModuleType
from typing import Any

from graph.errors import UserError
from graph.shared.home import code_hash
from graph.types import Needs, R, T
from graph.workers import worker

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
    with _silenced_stderr():
        asking.start()
        asking.join(ANSWER_S)
    return bool(answered)


@contextmanager
def _silenced_stderr() -> Iterator[None]:
    """Nothing of this process goes to standard error: Ray's own code writes there, past Python, what another service answered."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


BATCHES_AHEAD = 2
"""That a thread of a worker has at a time, so that it need not wait for the next; more would wait behind each other while another worker starts."""
RESULTS_AHEAD = 4
"""For each thread: batches given before the result of the first is taken, which may be the last to come."""
LOOK_S = 1.0
"""After which workers that have no room are looked at again, though none is heard of."""
START_S = 120.0
"""For the first worker: a cluster whose processors are all taken has none for us."""
MAX_LOSSES = 3
"""How often a batch may lose its worker; one that always does (too little memory, say) ends the run."""


@dataclass(frozen=True)
class Place:
    """Where a worker can be: what it asks of Ray (options of an actor), and the batches that it works on at once, each in a thread."""

    options: Mapping[str, Any]
    threads: int = 1


@dataclass
class _RunningWorker:
    """A worker, and references to what it was given and, when somebody looked last, had not done."""

    actor: Any
    threads: int
    given: list[Any] = field(default_factory=list)

    @property
    def load(self) -> float:
        """Batches a thread."""
        return len(self.given) / self.threads


class Pool:
    """At most one worker in each of these places, of which there is at least one."""

    def __init__(self, cluster: Cluster, places: Sequence[Place]) -> None:
        self._cluster, self.places = cluster, places
        cluster.ray.cloudpickle.register_pickle_by_value(worker)
        self._class = cluster.ray.remote(worker.Worker)
        self._lock = RLock()
        self._starting: dict[Any, _RunningWorker] = {}
        self._hired: list[_RunningWorker] = []
        self._functions: dict[str, Any] = {}

    @property
    def room(self) -> int:
        """Batches whose results nobody has taken yet, at most."""
        return RESULTS_AHEAD * max(1, sum(each.threads for each in self._hired))

    def hold(self, function: Callable[[Any], Any]) -> tuple[str, list[Any]]:
        """The function's hash and a reference to its bytes, as Worker.run takes them."""
        ray = self._cluster.ray
        data = ray.cloudpickle.dumps(function)
        key = blake2b(data).hexdigest()
        with self._lock:
            if key not in self._functions:
                self._functions[key] = ray.put(data)
            return key, [self._functions[key]]

    def send(self, held: tuple[str, list[Any]], batch: Any) -> Any:
        """A reference to what will come of the batch, given to the worker that has the fewest, once that has room for it."""
        with self._lock:
            while (least := self._least_busy()).load >= BATCHES_AHEAD:
                self._ready([*self._starting, *self._given()], LOOK_S)
            reference = least.actor.run.remote(*held, batch)
            least.given.append(reference)
            return reference

    def _least_busy(self) -> _RunningWorker:
        """The worker that has the fewest batches. Where each thread has one, as many again are started as there are, for the batches to come."""
        self.wait_for_one()
        done = set(self._ready(self._given()))
        for each in self._hired:
            each.given = [reference for reference in each.given if reference not in done]
        least = min(self._hired, key=lambda each: each.load)
        if least.load >= 1 and not self._starting:
            for place in self.places[len(self._hired) : 2 * len(self._hired)]:
                self._start(place)
        return least

    def _given(self) -> list[Any]:
        """References to all that workers have, or had when somebody looked last."""
        return [reference for each in self._hired for reference in each.given]

    def wait_for_one(self) -> None:
        """Take in the workers that have started, at least one; UserError when none does, or one has other code."""
        with self._lock:
            if not self._hired and not self._starting:
                self._start(self.places[0])
            for greeting in self._ready(list(self._starting), None if self._hired else START_S):
                machine, code = fetch_result(self._cluster, greeting)
                if code != code_hash():
                    raise UserError(
                        f"worker on {machine}: another modegraph ({code[:12]}, this one is {code_hash()[:12]})",
                        "the same on every machine",
                        "install it there",
                    )
                self._hired.append(self._starting.pop(greeting))
            if not self._hired:
                raise UserError(
                    f"Ray: no worker within {START_S:g} s", "a free processor", "wait, or take another cluster"
                )

    def _start(self, place: Place) -> None:
        options = {
            "max_restarts": -1,
            "max_task_retries": MAX_LOSSES,
            "max_concurrency": place.threads,
            **place.options,
        }
        actor = self._class.options(**options).remote(self._cluster.unwanted)
        self._starting[actor.greet.remote()] = _RunningWorker(actor, place.threads)

    def _ready(self, references: list[Any], timeout_s: float | None = None) -> list[Any]:
        """Those whose results are there; waits so long for the first one."""
        if not references:
            return []
        least = len(references) if timeout_s is None else 1
        return list(self._cluster.ray.wait(references, num_returns=least, timeout=timeout_s or 0)[0])


def fetch_result(cluster: Cluster, reference: Any) -> Any:
    """What came of a call; what was raised there is raised here, and what Ray says as a UserError."""
    errors = cluster.ray.exceptions
    try:
        return cluster.ray.get(reference)
    except errors.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        if isinstance(error.cause, ImportError):
            raise UserError(f"a worker: {error.cause}", "the same modegraph on every machine", "install it") from None
        raise
    except errors.RayError as error:
        raise UserError(
            f"Ray: {first_line(error)}", f"workers that live; a batch lost its own {1 + MAX_LOSSES} times", ""
        ) from None


CPUS_PER_ENCODER = 4
"""Processors that one encoder in memory is for, at most: its threads compute side by side, but Python itself does one thing at a time."""


class RayWorkers:
    """The Workers of a cluster. See Cluster for the arguments.

    A processor has a worker for code and models, GPUs one each for models where there are any. Encoders have workers of their own, on
    GPUs or beside the others, which have nothing to do meanwhile.
    """

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        self._cluster = Cluster(address, cpus)
        try:
            resources = self._cluster.ray.cluster_resources()
            on_cpus = Pool(self._cluster, [Place({"num_cpus": 1})] * max(1, int(resources.get("CPU", 1))))
            on_gpus = [Place({"num_cpus": 0, "num_gpus": 1})] * int(resources.get("GPU", 0))
            computing = Pool(self._cluster, on_gpus) if on_gpus else on_cpus
            encoding = computing if on_gpus else Pool(self._cluster, encoder_places(self._cluster))
            self._pools: dict[Needs, Pool] = {"code": on_cpus, "encoder": encoding, "model": computing}
            on_cpus.wait_for_one()
        except BaseException:
            self.close()
            raise

    @property
    def models(self) -> int:
        """One to a worker."""
        return len(self._pools["model"].places)

    def close(self) -> None:
        """End the workers, and the cluster if it is ours."""
        self._cluster.close()

    def map(self, function: Callable[[T], R], batches: Iterable[T], needs: Needs = "code") -> Iterator[R]:
        """Results in the order of the batches, of which as many are taken as the workers have room for.

        Raises what the function raises, and UserError when a batch has lost its worker too often.
        """
        pool = self._pools[needs]
        held = pool.hold(function)
        ahead: deque[Any] = deque()
        for batch in batches:
            ahead.append(pool.send(held, batch))
            while len(ahead) > pool.room:
                yield self._result(ahead.popleft())
        while ahead:
            yield self._result(ahead.popleft())

    def _result(self, reference: Any) -> Any:
        return fetch_result(self._cluster, reference)


def encoder_places(cluster: Cluster) -> list[Place]:
    """One for every SHARING processors of a machine, which it takes none of: those who hold them wait for its vectors."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    places = []
    for node in cluster.ray.nodes():
        processors = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
        there = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)}
        places += [
            Place(there, min(CPUS_PER_ENCODER, processors - first)) for first in range(0, processors, CPUS_PER_ENCODER)
        ]
    return places or [Place({"num_cpus": 0})]

"""The workers of one command, by engine name: `local` is this process, `ray` a cluster.

With Ray, this process connects to the cluster, sends batches to pools of workers in it, and collects the results in order.
A cluster is either started for one command (with a token, on loopback only, without dashboard or statistics) or already running. Workers
are actors, started on demand, that cache the functions and models that they loaded; Ray restarts a worker whose process or machine was lost,
and resends its batches."""

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from threading import RLock, Thread
from types import ModuleType
from typing import Any

from graph.errors import UserError, first_line
from graph.shared.home import code_hash
from graph.types import Needs, R, T, Workers
from graph.workers import worker

CONNECT_S = 2.0
"""Timeout for a TCP connection to the address."""
ANSWER_S = 2.5
"""Timeout for an answer from Ray at the address."""
NO_STATISTICS = {"RAY_USAGE_STATS_ENABLED": "0"}
LOCAL_CLUSTER = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
"""Environment of a cluster started here. The first variable, which Ray reads at import, makes it use 127.0.0.1 on Linux as on other systems."""
QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}


class Cluster:
    """A connection to a Ray cluster. `ray` is the module; `unwanted` are folders that Ray puts on the search path of its workers only."""

    def __init__(self, address: str | None) -> None:
        """Connect to `address`, or start a cluster on this machine."""
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            remedy = "shut down the other one with ray.shutdown()"
            raise UserError("Ray: this process is already connected", "one cluster at a time", remedy)
        self._folder: Path | None = None
        here = str(Path.cwd())
        self.unwanted = () if {here, ""} & {*sys.path} else (here,)
        if address is None:
            self.ray = _load_for_local_cluster()
            # The folder of Ray's sockets and logs is close to the root, since a socket's path has at most 107 characters.
            root = Path("/tmp")
            self._folder = Path(tempfile.mkdtemp(prefix="modegraph-ray-", dir=root if root.is_dir() else None))
            self._init(address="local", _temp_dir=str(self._folder))
        else:
            _check_reachable(address)
            self.ray = load_ray()
            if not _is_ray(address):
                found = f"--ray-address {address}: no Ray cluster answers there"
                raise UserError(found, "the port that `ray start --head` printed", "correct the address")
            self._init(address=address)

    def close(self) -> None:
        """Disconnect; a cluster started here is shut down."""
        self.ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _init(self, **options: Any) -> None:
        try:
            self.ray.init(**QUIET, **options)
        # Ray raises RuntimeError, ValueError, ConnectionError, errors of its own and others.
        except Exception as problem:  # noqa: BLE001
            self.close()
            remedy = "try again when the machine is less busy" if self._folder else "check the address and the version"
            raise UserError(f"Ray: {first_line(problem)}", "", remedy) from None


def _load_for_local_cluster() -> ModuleType:
    """The library, set up for a local cluster protected by a token, even if it was imported before."""
    os.environ.update(LOCAL_CLUSTER)
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
    """The library, with usage statistics disabled; UserError if it is not installed."""
    os.environ.update(NO_STATISTICS)
    try:
        return import_module("ray")
    except ImportError as problem:
        raise UserError(f"ray: {problem}", "the extra `scale`", "pip install 'modegraph[scale]'") from None


def _check_reachable(address: str) -> None:
    """UserError when nothing answers at HOST:PORT. Ray itself would retry for 40 s."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        found, remedy = f"--ray-address {address}", "run the command on a node of the cluster, or in a Ray job"
        raise UserError(found, "HOST:PORT of a cluster", remedy)
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError, UnicodeError) as problem:
        found = f"--ray-address {address}: cannot be reached ({first_line(problem)})"
        raise UserError(found, "a running cluster", "start it with: ray start --head") from None


def _is_ray(address: str) -> bool:
    """Whether the head of a cluster answers in time. If not, the connecting daemon thread ends later and delays nothing."""
    clients = []

    def connect() -> None:
        from ray._raylet import GcsClient

        with suppress(Exception):
            clients.append(GcsClient(address=address))

    thread = Thread(target=connect, daemon=True)
    with _silenced_stderr():
        thread.start()
        thread.join(ANSWER_S)
    return bool(clients)


@contextmanager
def _silenced_stderr() -> Iterator[None]:
    """Redirect this process's standard error to /dev/null: Ray's native code, bypassing Python, writes another service's answer there."""
    stderr = os.dup(2)
    with Path(os.devnull).open("wb") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


BATCHES_AHEAD = 2
"""Unfinished batches per worker thread: one runs, one waits; more would queue up while another worker starts."""
RESULTS_AHEAD = 4
"""Batches per thread sent before a result is taken: results are taken in order, and the first may be the last to arrive."""
POLL_S = 1.0
"""Interval at which busy workers are checked again when none has reported."""
START_S = 120.0
"""Timeout for the first worker: a cluster whose processors are all busy starts none."""
MAX_LOSSES = 3
"""How often a batch may lose its worker; the next loss (for lack of memory, say) ends the run."""


@dataclass(frozen=True)
class Slot:
    """A slot for a worker: the options of its Ray actor, and the number of batches that it runs in parallel, each in a thread."""

    options: Mapping[str, Any]
    threads: int = 1


@dataclass
class _RunningWorker:
    """A worker, and references to the batches sent to it and not finished at the last check."""

    actor: Any
    threads: int
    pending: list[Any] = field(default_factory=list)

    @property
    def load(self) -> float:
        """Pending batches per thread."""
        return len(self.pending) / self.threads


class Pool:
    """Workers in one or more slots, at most one in each."""

    def __init__(self, cluster: Cluster, slots: Sequence[Slot]) -> None:
        self._cluster, self.slots = cluster, slots
        cluster.ray.cloudpickle.register_pickle_by_value(worker)
        self._class = cluster.ray.remote(worker.Worker)
        self._lock = RLock()
        self._starting: dict[Any, _RunningWorker] = {}
        self._running: list[_RunningWorker] = []
        self._functions: dict[str, Any] = {}

    @property
    def capacity(self) -> int:
        """The maximum number of batches that may be sent before the first of their results is taken."""
        return RESULTS_AHEAD * max(1, sum(each.threads for each in self._running))

    def put_function(self, function: Callable[[Any], Any]) -> tuple[str, list[Any]]:
        """The function's hash and a reference to its bytes, as Worker.run takes them."""
        ray = self._cluster.ray
        data = ray.cloudpickle.dumps(function)
        key = blake2b(data).hexdigest()
        with self._lock:
            if key not in self._functions:
                self._functions[key] = ray.put(data)
            return key, [self._functions[key]]

    def send(self, function: tuple[str, list[Any]], batch: Any) -> Any:
        """A reference to the result of a batch, which goes to the least busy worker as soon as that worker can take it."""
        with self._lock:
            while (least := self._least_busy()).load >= BATCHES_AHEAD:
                self._ready([*self._starting, *self._pending()], POLL_S)
            reference = least.actor.run.remote(*function, batch)
            least.pending.append(reference)
            return reference

    def _least_busy(self) -> _RunningWorker:
        """The worker with the fewest batches per thread. When every thread is busy, the number of workers is doubled for the batches to come."""
        self.wait_for_one()
        done = set(self._ready(self._pending()))
        for each in self._running:
            each.pending = [reference for reference in each.pending if reference not in done]
        least = min(self._running, key=lambda each: each.load)
        if least.load >= 1 and not self._starting:
            for slot in self.slots[len(self._running) : 2 * len(self._running)]:
                self._start(slot)
        return least

    def _pending(self) -> list[Any]:
        """References to all batches not finished at the last check."""
        return [reference for each in self._running for reference in each.pending]

    def wait_for_one(self) -> None:
        """Add the workers that have started, after waiting for the first; UserError when none starts in time, or one has another version of modegraph."""
        with self._lock:
            if not self._running and not self._starting:
                self._start(self.slots[0])
            for greeting in self._ready(list(self._starting), None if self._running else START_S):
                machine, code = fetch_result(self._cluster, greeting)
                if code != code_hash():
                    found = (
                        f"worker on {machine}: a different version of modegraph ({code[:12]}; here {code_hash()[:12]})"
                    )
                    raise UserError(found, "the same version on every machine", "install this version there")
                self._running.append(self._starting.pop(greeting))
            if not self._running:
                found = f"Ray: no worker started within {START_S:g} s"
                raise UserError(found, "a free processor", "wait, or use another cluster")

    def _start(self, slot: Slot) -> None:
        options = {"max_restarts": -1, "max_task_retries": MAX_LOSSES, "max_concurrency": slot.threads, **slot.options}
        actor = self._class.options(**options).remote(self._cluster.unwanted)
        self._starting[actor.greet.remote()] = _RunningWorker(actor, slot.threads)

    def _ready(self, references: list[Any], timeout_s: float | None = None) -> list[Any]:
        """The references whose results have arrived, after a wait of up to `timeout_s` for the first one (None: no wait)."""
        if not references:
            return []
        least = len(references) if timeout_s is None else 1
        return list(self._cluster.ray.wait(references, num_returns=least, timeout=timeout_s or 0)[0])


def fetch_result(cluster: Cluster, reference: Any) -> Any:
    """The result of a call. An exception of the call is raised here; an ImportError and Ray's own errors become UserErrors."""
    errors = cluster.ray.exceptions
    try:
        return cluster.ray.get(reference)
    except errors.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        if isinstance(error.cause, ImportError):
            raise UserError(
                f"a worker: {error.cause}", "the same modegraph on every machine", "install it there"
            ) from None
        raise
    except errors.RayError as error:
        remedy = "check the memory and the logs of the machines of the cluster"
        raise UserError(f"Ray: {first_line(error)}", f"at most {MAX_LOSSES} lost workers per batch", remedy) from None


CPUS_PER_ENCODER = 4
"""The maximum number of processors that share one encoder in memory: its threads compute in parallel, but only one of them runs Python code at a time."""


class RayWorkers:
    """The Workers of a cluster. See Cluster for the argument.

    Each processor has a worker for code. Models and encoders run in one worker per GPU. Without GPUs, models run in the workers for code, and
    encoders in separate workers while the others are idle.
    """

    def __init__(self, address: str | None = None) -> None:
        self._cluster = Cluster(address)
        try:
            resources = self._cluster.ray.cluster_resources()
            on_cpus = Pool(self._cluster, [Slot({"num_cpus": 1})] * max(1, int(resources.get("CPU", 1))))
            on_gpus = [Slot({"num_cpus": 0, "num_gpus": 1})] * int(resources.get("GPU", 0))
            computing = Pool(self._cluster, on_gpus) if on_gpus else on_cpus
            encoding = computing if on_gpus else Pool(self._cluster, encoder_slots(self._cluster))
            self._pools: dict[Needs, Pool] = {"code": on_cpus, "encoder": encoding, "model": computing}
            on_cpus.wait_for_one()
        except BaseException:
            self.close()
            raise

    @property
    def models(self) -> int:
        """The number of batches with a model that run in parallel: one per worker."""
        return len(self._pools["model"].slots)

    def close(self) -> None:
        """Disconnect, which ends the workers; a cluster started here is shut down."""
        self._cluster.close()

    def map(self, function: Callable[[T], R], batches: Iterable[T], needs: Needs = "code") -> Iterator[R]:
        """Results in the order of the batches, which are consumed as fast as the workers can take them.

        Raises what the function raises, and UserError when a batch lost its worker too often.
        """
        pool = self._pools[needs]
        reference = pool.put_function(function)
        ahead: deque[Any] = deque()
        for batch in batches:
            ahead.append(pool.send(reference, batch))
            while len(ahead) >= pool.capacity:
                yield fetch_result(self._cluster, ahead.popleft())
        while ahead:
            yield fetch_result(self._cluster, ahead.popleft())


def encoder_slots(cluster: Cluster) -> list[Slot]:
    """One slot per CPUS_PER_ENCODER processors of a machine.

    A slot reserves no processor, because the workers that reserve the processors are idle while encoders run.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    slots = []
    for node in cluster.ray.nodes():
        processors = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
        options = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)}
        slots += [
            Slot(options, min(CPUS_PER_ENCODER, processors - first)) for first in range(0, processors, CPUS_PER_ENCODER)
        ]
    return slots or [Slot({"num_cpus": 0})]


class ThisProcess:
    """The Workers of one process: batches run one after the other, each when its result is needed."""

    models = 1

    def map(self, function: Callable[[T], R], batches: Iterable[T], needs: Needs = "code") -> Iterator[R]:
        """The builtin `map`."""
        del needs
        return map(function, batches)


THIS_PROCESS = ThisProcess()


ENGINES = ("local", "ray")


@contextmanager
def open_workers(engine: str, address: str | None = None) -> Iterator[Workers]:
    """The workers of an engine, for the duration of the block; `address` is that of a Ray cluster (None: start one on this machine).

    UserError for an unknown engine, for an address with the engine local, and for a cluster that cannot be reached or used.
    """
    if engine not in ENGINES:
        raise UserError(f"--engine {engine}", " or ".join(ENGINES), "")
    if engine == "local":
        if address is not None:
            raise UserError(f"--ray-address {address}, but the engine is local", "--engine ray", "add it")
        yield THIS_PROCESS
        return

    with closing(RayWorkers(address)) as workers:
        yield workers

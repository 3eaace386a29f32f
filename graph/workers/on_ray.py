"""Workers of a Ray cluster: actors that keep what they opened, fed by one process, which takes their results in order.

Ray restarts an actor whose process or machine was lost, and gives it its batches again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from threading import RLock
from typing import Any

from graph.shared.errors import UserError
from graph.shared.types import R, T
from graph.workers import worker
from graph.workers.code import code_hash
from graph.workers.connect import Cluster, first_line

BATCHES_AHEAD = 2
"""That a worker has at a time, so that it need not wait for the next; more would wait behind each other while another worker starts."""
RESULTS_AHEAD = 4
"""For each worker: batches given before the result of the first is taken, which may be the last to come."""
LOOK_S = 1.0
"""After which workers that have no room are looked at again, though none is heard of."""
START_S = 120.0
"""For the first worker: a cluster whose processors are all taken has none for us."""
LOSSES = 3
"""How often a batch may lose its worker; one that always does (too little memory, say) ends the run."""


class RayWorkers:
    """The Workers of a cluster: one to a processor, and one to a GPU where there are any. See Cluster for the arguments."""

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        self._cluster = Cluster(address, cpus)
        try:
            resources = self._cluster.ray.cluster_resources()
            self._pool = _Pool(self._cluster, int(resources.get("CPU", 1)), {"num_cpus": 1})
            gpus = int(resources.get("GPU", 0))
            self._computing = _Pool(self._cluster, gpus, {"num_cpus": 0, "num_gpus": 1}) if gpus else self._pool
            self._pool.wait_for_one()
        except BaseException:
            self.close()
            raise

    @property
    def models(self) -> int:
        """One to a worker."""
        return self._computing.most

    def close(self) -> None:
        """End the workers, and the cluster if it is ours."""
        self._cluster.close()

    def map(self, function: Callable[[T], R], batches: Iterable[T], computes: bool = False) -> Iterator[R]:
        """Results in the order of the batches, of which as many are taken as the workers have room for.

        Raises what the function raises, and UserError when a batch has lost its worker too often.
        """
        pool = self._computing if computes else self._pool
        held = pool.hold(function)
        ahead: deque[Any] = deque()
        for batch in batches:
            ahead.append(pool.send(held, batch))
            while len(ahead) > pool.room:
                yield self._result(ahead.popleft())
        while ahead:
            yield self._result(ahead.popleft())

    def _result(self, reference: Any) -> Any:
        return result(self._cluster, reference)


class _Pool:
    """At most so many workers with these resources each, started as there is work for them."""

    def __init__(self, cluster: Cluster, most: int, resources: dict[str, float]) -> None:
        ray = cluster.ray
        self._cluster, self.most = cluster, max(most, 1)
        ray.cloudpickle.register_pickle_by_value(worker)
        self._class = ray.remote(worker.Worker).options(max_restarts=-1, max_task_retries=LOSSES, **resources)
        self._lock = RLock()
        self._starting: dict[Any, Any] = {}
        self._busy: dict[Any, list[Any]] = {}
        self._functions: dict[str, Any] = {}

    @property
    def room(self) -> int:
        """Batches whose results nobody has taken yet, at most."""
        return RESULTS_AHEAD * max(1, len(self._busy))

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
            while len(self._busy[actor := self._least_busy()]) >= BATCHES_AHEAD:
                self._ready([*self._starting, *self._given()], LOOK_S)
            reference = actor.run.remote(*held, batch)
            self._busy[actor].append(reference)
            return reference

    def _least_busy(self) -> Any:
        """The worker that has the fewest batches. Where each has one, as many again are started as there are, for the batches to come."""
        self.wait_for_one()
        done = set(self._ready(self._given()))
        self._busy = {actor: [each for each in given if each not in done] for actor, given in self._busy.items()}
        least = min(self._busy, key=lambda each: len(self._busy[each]))
        if self._busy[least] and not self._starting:
            for _ in range(min(len(self._busy), self.most - len(self._busy))):
                self._start()
        return least

    def _given(self) -> list[Any]:
        """References to all that workers have, or had when somebody looked last."""
        return [each for given in self._busy.values() for each in given]

    def wait_for_one(self) -> None:
        """Take in the workers that have started, at least one; UserError when none does, or one has other code."""
        with self._lock:
            if not self._busy and not self._starting:
                self._start()
            for greeting in self._ready(list(self._starting), None if self._busy else START_S):
                machine, code = result(self._cluster, greeting)
                if code != code_hash():
                    raise UserError(
                        f"worker on {machine}: another modegraph ({code[:12]}, this one is {code_hash()[:12]})",
                        "the same on every machine",
                        "install it there",
                    )
                self._busy[self._starting.pop(greeting)] = []
            if not self._busy:
                raise UserError(
                    f"Ray: no worker within {START_S:g} s", "a free processor", "wait, or take another cluster"
                )

    def _start(self) -> None:
        actor = self._class.remote(self._cluster.unwanted)
        self._starting[actor.greet.remote()] = actor

    def _ready(self, references: list[Any], timeout_s: float | None = None) -> list[Any]:
        """Those whose results are there; waits so long for the first one."""
        if not references:
            return []
        least = len(references) if timeout_s is None else 1
        return list(self._cluster.ray.wait(references, num_returns=least, timeout=timeout_s or 0)[0])


def result(cluster: Cluster, reference: Any) -> Any:
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
            f"Ray: {first_line(error)}", f"workers that live; a batch lost its own {1 + LOSSES} times", ""
        ) from None

"""Workers of one kind on a Ray cluster: actors that keep what they opened, started as there is work for them.

Ray restarts an actor whose process or machine was lost, and gives it its batches again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import RLock
from typing import Any

from graph.shared.errors import UserError
from graph.workers import worker
from graph.workers.code import code_hash
from graph.workers.connect import Cluster, first_line

BATCHES_AHEAD = 2
"""That a thread of a worker has at a time, so that it need not wait for the next; more would wait behind each other while another worker starts."""
RESULTS_AHEAD = 4
"""For each thread: batches given before the result of the first is taken, which may be the last to come."""
LOOK_S = 1.0
"""After which workers that have no room are looked at again, though none is heard of."""
START_S = 120.0
"""For the first worker: a cluster whose processors are all taken has none for us."""
LOSSES = 3
"""How often a batch may lose its worker; one that always does (too little memory, say) ends the run."""


@dataclass(frozen=True)
class Place:
    """Where a worker can be: what it asks of Ray (options of an actor), and the batches that it works on at once, each in a thread."""

    options: Mapping[str, Any]
    threads: int = 1


@dataclass
class _Hired:
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
        self._starting: dict[Any, _Hired] = {}
        self._hired: list[_Hired] = []
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

    def _least_busy(self) -> _Hired:
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
                machine, code = result(self._cluster, greeting)
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
        options = {"max_restarts": -1, "max_task_retries": LOSSES, "max_concurrency": place.threads, **place.options}
        actor = self._class.options(**options).remote(self._cluster.unwanted)
        self._starting[actor.greet.remote()] = _Hired(actor, place.threads)

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

"""Workers of a Ray cluster, fed by one process, which takes their results in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from graph.shared.types import Needs, R, T
from graph.workers.connect import Cluster
from graph.workers.pool import Place, Pool, result

SHARING = 4
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
        return result(self._cluster, reference)


def encoder_places(cluster: Cluster) -> list[Place]:
    """One for every SHARING processors of a machine, which it takes none of: those who hold them wait for its vectors."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    places = []
    for node in cluster.ray.nodes():
        processors = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
        there = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)}
        places += [Place(there, min(SHARING, processors - first)) for first in range(0, processors, SHARING)]
    return places or [Place({"num_cpus": 0})]

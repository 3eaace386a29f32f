"""The workers of one command, by engine name: this process, or a Ray cluster."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager

from graph.errors import UserError
from graph.types import Needs, R, T, Workers


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
    from graph.workers.on_ray import RayWorkers

    with closing(RayWorkers(address)) as workers:
        yield workers

"""An engine by its name: the workers that do the work of one command."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from graph.shared.errors import UserError
from graph.shared.types import Workers
from graph.workers.here import THIS_PROCESS

ENGINES = ("local", "ray")


@contextmanager
def open_workers(engine: str, address: str | None = None) -> Iterator[Workers]:
    """The workers of an engine, for as long as the block lasts; `address` is a Ray cluster's, None starts one on this machine.

    UserError for another engine, and for a cluster that cannot be reached or is not one to work with.
    """
    if engine not in ENGINES:
        raise UserError(f"--engine {engine}", " or ".join(ENGINES), "")
    if engine == "local":
        if address is not None:
            raise UserError(f"--ray-address {address}, and the engine is local", "--engine ray", "add it")
        yield THIS_PROCESS
        return
    from graph.workers.on_ray import RayWorkers

    with closing(RayWorkers(address)) as workers:
        yield workers

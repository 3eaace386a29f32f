"""The benchmarks by name."""

from eval.tasks.sets import (
    abstract,
    examples,
    graphragbench,
    hotpotqa,
    medmcqa,
    medqa,
    multihoprag,
    musique,
    popqa,
    pubmedqa,
    qasper,
    quality,
    riddlesense,
    twowiki,
)
from eval.tasks.sets.types import Task
from graph.shared.errors import UserError, nearest

_MODULES = (
    qasper,
    quality,
    riddlesense,
    pubmedqa,
    medqa,
    medmcqa,
    musique,
    hotpotqa,
    twowiki,
    popqa,
    multihoprag,
    graphragbench,
    abstract,
    examples,
)
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in _MODULES}


def find_task(name: str) -> Task:
    """The task called `name`; UserError with the nearest name."""
    if name not in TASKS:
        near = nearest(name, TASKS)
        expected = f"did you mean '{near}'?" if near else ""
        raise UserError(f"task {name!r}", expected, f"known tasks: {', '.join(TASKS)}")
    return TASKS[name]

"""The benchmarks by name."""

import difflib

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
from graph.shared.errors import UserError

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
        near = difflib.get_close_matches(name, TASKS, n=1, cutoff=0.0)[0]
        raise UserError(f"task {name!r}", f"did you mean '{near}'?", f"known tasks: {', '.join(TASKS)}")
    return TASKS[name]

"""modegraph for Python: index documents, retrieve evidence, ask for cited answers, train small models and compare them.

>>> import modegraph as mg
>>> mg.Document("tides", "Tides", "High tide is at noon.").source
'tides'

The names in `__all__` are public (docs/decisions/0006-public-python-api.md, docs/python.md); everything else may change. Each name is
imported when it is first used, so that `import modegraph` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph.errors import UserError
    from graph.types import Document
    from modegraph import synth, train
    from modegraph.answers import Answer, AnswerStream, AsyncAnswerStream, Evidence, Piece
    from modegraph.arguments import open_model
    from modegraph.comparisons import Comparison, compare
    from modegraph.indexes import Index, index, open  # noqa: A004
    from modegraph.runs import Run, open_run
    from modegraph.tuning.plan import TunePlan
    from modegraph.tuning.tune import Tuned, plan_tune, tune

__all__ = [
    "Answer",
    "AnswerStream",
    "AsyncAnswerStream",
    "Comparison",
    "Document",
    "Evidence",
    "Index",
    "Piece",
    "Run",
    "TunePlan",
    "Tuned",
    "UserError",
    "compare",
    "index",
    "open",
    "open_model",
    "open_run",
    "plan_tune",
    "synth",
    "train",
    "tune",
]
_MODULES = {
    "modegraph.answers": ("Answer", "AnswerStream", "AsyncAnswerStream", "Evidence", "Piece"),
    "modegraph.comparisons": ("Comparison", "compare"),
    "modegraph.indexes": ("Index", "index", "open"),
    "modegraph.arguments": ("open_model",),
    "modegraph.runs": ("Run", "open_run"),
    "modegraph.tuning.plan": ("TunePlan",),
    "modegraph.tuning.tune": ("Tuned", "plan_tune", "tune"),
    "graph.errors": ("UserError",),
    "graph.types": ("Document",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name, imported on first use; ImportError when another file hides one of modegraph's folders, UserError when an extra is missing."""
    if name not in __all__:
        raise AttributeError(f"module 'modegraph' has no attribute {name!r}")
    from modegraph.start import hidden_folder_message, quiet_libraries

    if message := hidden_folder_message():
        raise ImportError(message)
    quiet_libraries()
    try:
        if name not in _MODULE_OF:
            return importlib.import_module(f"modegraph.{name}")
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as problem:
        from modegraph.arguments import missing_extra

        raise (missing_extra(problem) or problem) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""reference/python.md: every public name of `import modegraph`, with its signature and docstring."""

import inspect
import re
from typing import Any

import modegraph
from tools.reference.markdown import page

ABOUT = (
    "`import modegraph as mg`. [Python](../python.md) shows how the names below work together; "
    "[decision 6](../decisions/0006-public-python-api.md) says what may change."
)


def pages() -> dict[str, str]:
    """The page, by file name."""
    return {
        "reference/python.md": page(
            "Python API", ABOUT, *(section(name, getattr(modegraph, name)) for name in modegraph.__all__)
        )
    }


def section(name: str, thing: Any) -> str:
    """A class with its methods, a function, or a module with its functions."""
    inner = [entry(f"mg.{name}.{member}", value, 3) for member, value in members(thing)]
    return "\n\n".join([entry(f"mg.{name}", thing, 2), *inner])


def entry(title: str, thing: Any, level: int) -> str:
    """A heading, the signature (not of an exception or a property), and the docstring."""
    lines = [f"{'#' * level} `{title}`"]
    if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception)):
        lines.append(f"```python\n{title.rpartition('.')[2]}{signature(thing)}\n```")
    target = thing.fget if isinstance(thing, property) else thing
    lines.append(prose(inspect.getdoc(target) or ""))
    return "\n\n".join(line for line in lines if line)


def members(thing: Any) -> list[tuple[str, Any]]:
    """Public methods and properties that a class defines itself, or the public functions of a module, except two helpers for settings."""
    if inspect.ismodule(thing):
        return [
            (name, value)
            for name, value in vars(thing).items()
            if inspect.isfunction(value)
            and value.__module__ == thing.__name__
            and not name.startswith("_")
            and name not in ("settings_of", "merge_settings")
        ]
    if not inspect.isclass(thing):
        return []
    public = [(name, value) for name, value in vars(thing).items() if not name.startswith("_")]
    return [(name, value) for name, value in public if inspect.isfunction(value) or isinstance(value, property)]


def signature(thing: Any) -> str:
    """Parameters and result; names without their modules."""
    try:
        full = inspect.signature(thing)
    except ValueError:
        return "(…)"
    shown = [parameter for parameter in full.parameters.values() if parameter.name != "self"]
    text = str(full.replace(parameters=shown)).replace("'", "")
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text).replace("NoneType", "None")


def prose(doc: str) -> str:
    """A docstring as paragraphs, with its examples as code."""
    parts = [part for part in doc.split("\n\n") if part.strip()]
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>> ") else part for part in parts)

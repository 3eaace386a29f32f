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


def section(name: str, item: Any) -> str:
    """A class with its methods, a function, or a module with its functions."""
    inner = [entry(f"mg.{name}.{member}", value, 3) for member, value in members(item)]
    return "\n\n".join([entry(f"mg.{name}", item, 2), *inner])


def entry(title: str, item: Any, level: int) -> str:
    """A heading, the signature (not of an exception or a property), and the docstring."""
    lines = [f"{'#' * level} `{title}`"]
    if callable(item) and not (inspect.isclass(item) and issubclass(item, Exception)):
        lines.append(f"```python\n{title.rpartition('.')[2]}{signature(item)}\n```")
    target = item.fget if isinstance(item, property) else item
    lines.append(prose(inspect.getdoc(target) or ""))
    return "\n\n".join(line for line in lines if line)


def members(item: Any) -> list[tuple[str, Any]]:
    """The public methods and properties that a class itself defines; of a module, its public functions except two helpers for settings."""
    if inspect.ismodule(item):
        return [
            (name, value)
            for name, value in vars(item).items()
            if inspect.isfunction(value)
            and value.__module__ == item.__name__
            and not name.startswith("_")
            and name not in ("settings_of", "merge_settings")
        ]
    if not inspect.isclass(item):
        return []
    public = [(name, value) for name, value in vars(item).items() if not name.startswith("_")]
    return [(name, value) for name, value in public if inspect.isfunction(value) or isinstance(value, property)]


def signature(item: Any) -> str:
    """The parameters and the type of the result, with class names but without their modules."""
    try:
        full = inspect.signature(item)
    except ValueError:
        return "(…)"
    shown = [parameter for parameter in full.parameters.values() if parameter.name != "self"]
    text = str(full.replace(parameters=shown)).replace("'", "")
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text).replace("NoneType", "None")


def prose(doc: str) -> str:
    """A docstring as paragraphs, with its examples as code."""
    parts = [part for part in doc.split("\n\n") if part.strip()]
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>> ") else part for part in parts)

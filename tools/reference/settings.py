"""reference/settings.md: every settings object that a command takes, key by key."""

from typing import Any

import typer

from graph.config import Settings, setting_lines, settings_class
from graph.retrieve.parts.query import RetrieveSettings
from modegraph.cli import build_app
from modegraph.cli_config import commands_with_settings
from tools.reference.markdown import code, page, table

ABOUT = (
    "A YAML file given with `--config` contains these keys; `--set key=value` overrides it, with dots for nested keys. "
    "`modegraph config show COMMAND` prints a file with all of them, `modegraph config check FILE` reports problems in one. "
    "In Python they are keyword arguments."
)


def pages() -> dict[str, str]:
    """The page, by file name."""
    tree: Any = typer.main.get_command(build_app())
    commands: dict[str, list[str]] = {}
    for full_name, path in commands_with_settings(tree):
        commands.setdefault(path, []).append(full_name)
    parts = [
        section(settings_class(path), "Taken by " + ", ".join(f"`modegraph {name}`" for name in full_names) + ".")
        for path, full_names in commands.items()
    ]
    retrieval = section(
        RetrieveSettings, "Taken by `retrieve` and `ask` in Python, and by retrievers in configurations of `eval run`."
    )
    return {"reference/settings.md": page("Settings", ABOUT, retrieval, *parts)}


def section(kind: type[Settings], about: str) -> str:
    """The section on one settings object."""
    rows = [
        [code(line.key), code(line.default) if line.default != "required" else "required", line.meaning]
        for line in setting_lines(kind)
    ]
    return "\n\n".join([f"## {kind.__name__}", about, table(["key", "default", "meaning"], rows)])

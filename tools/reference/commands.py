"""reference/cli/: every command with its arguments and options, as on its help page."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import typer

from graph.shared.cli_app import ASKING, DATA, EVALUATION, INDEXING, SETTINGS, TRAINING
from modegraph.cli import build_app
from modegraph.cli_config import commands_with_settings
from tools.reference.markdown import anchor, code, page, table

FILES = {INDEXING: "indexing", ASKING: "ask", DATA: "data", TRAINING: "train", EVALUATION: "eval", SETTINGS: "settings"}
"""The page of each group of commands."""
TITLES = {
    INDEXING: "Commands: index",
    ASKING: "Commands: ask and serve",
    DATA: "Commands: data",
    TRAINING: "Commands: train",
    EVALUATION: "Commands: evaluate",
    SETTINGS: "Commands: settings",
}


def pages() -> dict[str, str]:
    """The pages of reference/cli/, by file name."""
    tree: Any = typer.main.get_command(build_app())
    with_settings = dict(commands_with_settings(tree))
    texts = {}
    for panel, name in FILES.items():
        parts = [section(*entry, with_settings) for entry in sorted(in_panel(tree, panel), key=itemgetter(0))]
        about = "Every command has `--help`, and exits with 0 (done), 1 (done in part, or a check found a fault) or 2 (bad input)."
        texts[f"reference/cli/{name}.md"] = page(TITLES[panel], about, *parts)
    return texts


def in_panel(tree: Any, panel: str) -> Iterator[tuple[str, Any]]:
    """The commands of a panel, with their full names; commands of a sub-group belong to the panel of the group."""
    for name, command in tree.commands.items():
        if command.rich_help_panel == panel:
            yield from leaves(name, command)


def leaves(full_name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or all commands of a group, with their full names."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield full_name, command
        return
    for name, subcommand in inner.items():
        yield from leaves(f"{full_name} {name}", subcommand)


def section(full_name: str, command: Any, with_settings: dict[str, str]) -> str:
    """The section on one command; `with_settings` maps the full names of commands that take settings to the settings' classes."""
    parts = [f"## `{full_name}`", command.help]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [
        param
        for param in command.get_params(typer.Context(command, info_name=full_name))
        if param.param_type_name == "option"
    ]
    if arguments:
        parts.append(table(["argument", "meaning"], [[code(param.metavar), param.help] for param in arguments]))
    rows = [option(param) for param in options if "--help" not in param.opts]
    if rows:
        parts.append(table(["option", "default", "meaning"], rows))
    if full_name in with_settings:
        heading = with_settings[full_name].rpartition(":")[2]
        parts.append(f"Settings of `--config` and `--set`: [{heading}](../settings.md#{anchor(heading)}).")
    return "\n\n".join(parts)


def option(param: Any) -> list[str]:
    """The row of one option."""
    names = ", ".join(code(f"{name} {param.metavar}".strip()) for name in (*param.opts, *param.secondary_opts))
    if param.required:
        return [names, "required", param.help]
    shown = (
        param.default
        if not param.is_flag and param.default not in (None, "", ()) and not callable(param.default)
        else ""
    )
    return [names, code(str(getattr(shown, "value", shown))), param.help]

"""`modegraph config`: the settings of commands, and files of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from graph.errors import UserError, did_you_mean
from graph.shared.cli_app import SETTINGS, Command, Group
from graph.shared.cli_options import AsJson
from graph.shared.console import print_json

Words = Annotated[
    list[str], typer.Argument(metavar="COMMAND", help="A command with settings, such as `train ms`, or `ms` for short.")
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of settings.")]


def register(app: typer.Typer, root_command: Callable[[], Any]) -> None:
    """Add `config show` and `config check`; `root_command` returns the root of the command tree."""
    config = typer.Typer(
        help="Show the settings of a command, and check files of settings.", no_args_is_help=True, cls=Group
    )
    app.add_typer(config, name="config", rich_help_panel=SETTINGS)

    @config.command(cls=Command)
    def show(command: Words) -> None:
        """Print all settings of a command with their defaults, as YAML with comments.

        Save the output, fill in the required settings, delete any others you like, and pass the file to the command (usually with `--config`).
        """
        from graph.config import as_yaml, settings_class

        name, path = find_command(" ".join(command), dict(commands_with_settings(root_command())))
        title = f"Settings of `modegraph {name}`. Settings without a value are required."
        print(as_yaml(settings_class(path), title), end="")

    @config.command(cls=Command)
    def check(file: File, as_json: AsJson = False) -> None:
        """Report problems in a file of settings, and name the command that takes it.

        The exit status is 1 if there are problems. Required settings that are missing can still be given with `--set`.
        """
        from graph.config import read_yaml
        from modegraph.config_files import check_settings

        verdict = check_settings(str(file), read_yaml(file), dict(commands_with_settings(root_command())))
        if as_json:
            print_json({"file": str(file), **vars(verdict)})
        else:
            commands = " or ".join(f"`modegraph {name}`" for name in verdict.commands)
            closest = "closest to " if verdict.problems else ""
            print(*verdict.problems, f"{file}: {closest}settings of {commands}", sep="\n")
            if verdict.missing:
                print(f"still required, in the file or with --set: {', '.join(verdict.missing)}")
        if verdict.problems:
            raise typer.Exit(1)


def commands_with_settings(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each command under `command` that takes --config or --set: its full name and the `module:Class` of its settings."""
    for name, inner in getattr(command, "commands", {}).items():
        if getattr(inner, "settings", ""):
            yield " ".join((*path, name)), inner.settings
        yield from commands_with_settings(inner, (*path, name))


def find_command(words: str, known: dict[str, str]) -> tuple[str, str]:
    """The full name and the settings (`module:Class`) of the command that `words` names, in full or by its last word.

    UserError for a group, listing its commands, and for an unknown name.
    """
    within = [name for name in known if name.startswith(f"{words} ")]
    if within and words not in known:
        raise UserError(f"{words}: a group of commands", f"one of {', '.join(within)}", "name the command")
    matches = [name for name in known if words in (name, name.rpartition(" ")[2])]
    if not matches:
        remedy = f"commands with settings: {', '.join(known)}"
        raise UserError(f"{words}: not a command with settings", did_you_mean(words, known), remedy)
    return matches[0], known[matches[0]]

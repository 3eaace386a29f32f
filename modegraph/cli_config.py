"""`modegraph config`: the settings that commands take, and files of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from graph.errors import UserError, nearest
from graph.shared.cli_app import SETTINGS, Command, Group
from graph.shared.cli_options import AsJson
from graph.shared.console import print_json

Words = Annotated[
    list[str], typer.Argument(metavar="COMMAND", help="A command with settings, such as `train ms` or ms.")
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of settings.")]


def register(app: typer.Typer, whole: Callable[[], Any]) -> None:
    """Add `config show` and `config check`; `whole` gives the whole tree of commands."""
    config = typer.Typer(
        help="Show the settings of a command, and check files of them.", no_args_is_help=True, cls=Group
    )
    app.add_typer(config, name="config", rich_help_panel=SETTINGS)

    @config.command(cls=Command)
    def show(command: Words) -> None:
        """Print all settings of a command with their defaults, as YAML with comments.

        Save it, give what is required a value, delete the rest at will, and pass it with `--config`.
        """
        from graph.config import as_yaml, settings_class

        name, path = find_command(" ".join(command), dict(commands_with_settings(whole())))
        title = f"Settings of `modegraph {name}`. Those without a value must be given."
        print(as_yaml(settings_class(path), title), end="")

    @config.command(cls=Command)
    def check(file: File, as_json: AsJson = False) -> None:
        """Say what is wrong in a file of settings, and which command takes it.

        Exits with 1 when something is. A setting that is required may still be given with `--set`.
        """
        from graph.config import read_yaml
        from modegraph.config_files import check_settings

        verdict = check_settings(str(file), read_yaml(file), dict(commands_with_settings(whole())))
        if as_json:
            print_json(
                {
                    "file": str(file),
                    "commands": verdict.commands,
                    "problems": verdict.problems,
                    "missing": verdict.missing,
                }
            )
        else:
            takes = " or ".join(f"`modegraph {name}`" for name in verdict.commands)
            print(
                "\n".join(
                    [*verdict.problems, f"{file}: {'closest to ' if verdict.problems else ''}settings of {takes}"]
                )
            )
            if verdict.missing:
                print(f"still to be given, in the file or with --set: {', '.join(verdict.missing)}")
        if verdict.problems:
            raise typer.Exit(1)


def commands_with_settings(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each command below that takes --config or --set, by its words, with `module:Class` of its settings."""
    for name, inner in getattr(command, "commands", {}).items():
        if getattr(inner, "settings", ""):
            yield " ".join((*path, name)), inner.settings
        yield from commands_with_settings(inner, (*path, name))


def find_command(words: str, known: dict[str, str]) -> tuple[str, str]:
    """A command by its words, or by the last of them, with its settings; UserError with the nearest one."""
    found = [name for name in known if words in (name, name.rpartition(" ")[2])]
    if not found:
        near = nearest(words, known)
        expected = f"did you mean {near}?" if near else ""
        raise UserError(f"{words}: no command with settings", expected, f"those are {', '.join(known)}")
    return found[0], known[found[0]]

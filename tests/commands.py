"""The command line of modegraph, in this process."""

from functools import cache

import typer
from typer.main import get_command
from typer.testing import CliRunner, Result

import modegraph.cli


@cache
def build_app() -> typer.Typer:
    """The full command line, built once."""
    return modegraph.cli.build_app()


def options_of(command: str) -> set[str]:
    """The options of a command, such as {"--out", …}."""
    found = get_command(build_app()).commands[command]  # type: ignore[attr-defined]
    return {option for each in found.params for option in each.opts if option.startswith("--")}


def run(*words: object) -> Result:
    """The outcome of a command."""
    return CliRunner().invoke(build_app(), [str(word) for word in words])

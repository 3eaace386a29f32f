"""The command line of modegraph, in this process."""

from functools import cache

import typer
from typer.testing import CliRunner, Result

import modegraph.cli


@cache
def build_app() -> typer.Typer:
    """The full command line, built once."""
    return modegraph.cli.build_app()


def run(*words: object) -> Result:
    """The outcome of a command."""
    return CliRunner().invoke(build_app(), [str(word) for word in words])

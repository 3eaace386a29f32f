"""What stands before any command: --version, completion, and how a wrong command line is told."""

from typing import Annotated

import typer

from graph.shared.cli_app import words_of
from graph.shared.errors import UserError


def show_versions(wanted: bool) -> None:
    """Print the versions and end, when --version is given."""
    if wanted:
        from modegraph.version import versions

        print(versions())
        raise typer.Exit


def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=show_versions,
            is_eager=True,
            help="Show the versions of modegraph, Python and the main libraries, and exit.",
        ),
    ] = False,
) -> None:
    """Fine-tune small language models to answer from your own documents."""


def in_one_line(problem: typer.TyperException) -> str:
    """A wrong command line as any other bad input is told; "" when the help page has been shown in its place."""
    said = " ".join(problem.format_message().split())
    context = getattr(problem, "ctx", None)
    if not said or context is None:
        return said
    found = f"{words_of(context) or context.command_path}: {said[:1].lower()}{said[1:]}"
    return str(UserError(found, "", f"`{context.command_path} --help` lists what there is"))

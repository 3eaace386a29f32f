"""The root command: --version with its output, and how a wrong command line is reported."""

import platform
from typing import Annotated

import typer

from graph.errors import UserError
from graph.shared.cli_app import full_command_name

LIBRARIES = ("torch", "transformers", "trl", "peft", "vllm")


def show_versions(requested: bool) -> None:
    """Print the versions of modegraph, Python and the most important libraries, and exit, if --version is given."""
    if requested:
        from graph.shared.home import installed_version

        print(f"modegraph {installed_version('modegraph')}\nPython {platform.python_version()}")
        for name in LIBRARIES:
            print(name, installed_version(name))
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


def usage_error_message(problem: typer.TyperException) -> str:
    """The error of a wrong command line on one line, worded like a UserError; "" if the help page has been shown instead."""
    message = " ".join(problem.format_message().split())
    context = getattr(problem, "ctx", None)
    if not message or context is None:
        return message
    found = f"{full_command_name(context) or context.command_path}: {message[:1].lower()}{message[1:]}"
    return str(UserError(found, "", f"`{context.command_path} --help` shows the usage"))

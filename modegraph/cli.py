"""The command line: puts the commands of all packages together and passes them `open_model`.

graph, data_synth, serve, train and eval each have a `cli.py` with `register(app, open_model)`. They do heavy imports
inside the commands, so that `modegraph --help` is fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from modegraph.start import FOLDERS, hidden_folder_message, quiet_libraries

if TYPE_CHECKING:
    import typer

    from graph.types import LanguageModel, Workers

PROGRAM = "modegraph"


def main() -> None:
    """Run the command line; bad input becomes one line on standard error and exit status 2."""
    if message := hidden_folder_message():
        sys.exit(message)
    quiet_libraries()

    import typer

    from graph.errors import UserError

    try:
        sys.exit(build_app()(prog_name=PROGRAM, standalone_mode=False) or 0)
    except UserError as problem:
        print(f"{PROGRAM}: {problem}", file=sys.stderr)
        sys.exit(2)
    except typer.TyperException as problem:
        from modegraph.cli_root import usage_error_message

        if message := usage_error_message(problem):
            print(f"{PROGRAM}: {message}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as problem:
        from modegraph.arguments import missing_extra

        if (error := missing_extra(problem)) is None:
            raise
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(2)


def build_app() -> typer.Typer:
    """The full command line: every package registers its own commands."""
    import typer

    from graph.shared.cli_app import Group
    from modegraph import cli_config, cli_plan, cli_tune
    from modegraph.cli_root import root

    app = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in FOLDERS:
        importlib.import_module(f"{name}.cli").register(app, open_model)
    cli_tune.register(app)
    command = cache(lambda: typer.main.get_command(app))
    cli_config.register(app, command)
    cli_plan.register(app, lambda: dict(cli_config.commands_with_settings(command())))
    return app


def open_model(spec: str | Sequence[str], ledger: Path | None = None, workers: Workers | None = None) -> LanguageModel:
    """Open the model of a SPEC, or of the SPECs of its servers (see serve/engines); the engines are imported only when a command needs them."""
    from serve.engines import open_model as open_engine

    return open_engine(spec, ledger, workers)

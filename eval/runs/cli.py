"""The command `modegraph runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.cli_app import TRAINING, Command
from graph.shared.cli_options import AsJson
from graph.shared.console import print_json

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to look in, and below.")]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(cls=Command, rich_help_panel=TRAINING)(runs)


def runs(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """List what was trained and measured, and what is under way: state, figures and settings.

    Only files are read. A run is `running` while the process that makes it lives, and `stopped` when it ended without finishing:
    one with `save_steps`, or of `eval run`, goes on when its command is given again.
    """
    from dataclasses import asdict

    from eval.runs.find import find_runs
    from eval.runs.show import runs_table
    from eval.shared.tables import as_text

    found = find_runs(folder)
    print_json({"runs": [asdict(run) for run in found]}) if as_json else print(as_text(runs_table(found)))

"""The command `modegraph eval support`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.cli_app import command
from graph.shared.cli_options import AsJson, Limit, Seed, SomeSplit, Verifier
from graph.shared.console import print_json

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Labelled sentences: rows of passages, sentence, question or null, supported (true or false).",
    ),
]


def register(commands: typer.Typer) -> None:
    """Add `support` to the commands of `eval`."""

    @commands.command(cls=command())
    def support(
        file: File,
        verifier: Verifier = "",
        split: SomeSplit = None,
        limit: Limit = None,
        seed: Seed = 0,
        as_json: AsJson = False,
    ) -> None:
        """Measure whether a verifier tells supported sentences from unsupported ones.

        Prints AUC with its interval, the shares that are marked, and milliseconds; overlap of words and of stems beside.
        """
        from eval.shared.tables import as_text
        from eval.support.measure import measure_support, read_support, support_json, support_table
        from graph.verify.verifier import open_verifier

        rows = read_support(file, split, limit, seed)
        figures = measure_support(rows, open_verifier(verifier), seed)
        print_json(support_json(figures)) if as_json else print(as_text(support_table(str(file), figures)))

"""The command `modegraph eval router`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.console import print_json


def register(commands: typer.Typer) -> None:
    """Add `router` to the commands of `eval`."""
    from eval.shared.spread import SpreadingCommand

    @commands.command(cls=SpreadingCommand)
    def router(
        data: Annotated[
            list[Path], typer.Option("--data", help="Folders that `synth route` wrote, one or several (--data A B).")
        ],
        router: Annotated[str, typer.Option(help="A trained router: a folder or a hub name.")],
        split: Annotated[str, typer.Option(help="Which rows: test, train, dev or all.")] = "test",
        out: Annotated[Path | None, typer.Option(help="Folder for the report and the frontier's plot.")] = None,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Quality against cost: every single mode, auto by rule and by router, and the oracle, from route rows."""
        from eval.router.measure import evaluate_router
        from eval.router.report import to_json, to_text, write_router_report

        report = evaluate_router(data, router, split, seed)
        if out is not None:
            write_router_report(report, out)
        print_json(to_json(report)) if as_json else print(to_text(report))

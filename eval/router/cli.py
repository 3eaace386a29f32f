"""The command `modegraph eval router`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph.shared.cli_app import command
from graph.shared.cli_options import AsJson, DataFolders, Router, Seed, SomeOut, Split
from graph.shared.console import print_json

if TYPE_CHECKING:
    import typer


def register(commands: typer.Typer) -> None:
    """Add `router` to the commands of `eval`."""

    @commands.command(cls=command(several=("--data",)))
    def router(
        data: DataFolders,
        router: Router,
        split: Split = "test",
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Compare quality and cost of every mode, of auto by rule and by router, and of the oracle.

        Reads the data of `synth route` (--data A B for several folders); --split all takes every row.
        """
        from eval.router.measure import evaluate_router
        from eval.router.report import to_json, to_text, write_router_report

        report = evaluate_router(data, router, split, seed)
        if out is not None:
            write_router_report(report, out)
        print_json(to_json(report)) if as_json else print(to_text(report))

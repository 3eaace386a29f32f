"""`modegraph train router`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from graph.shared.cli_app import command
from graph.shared.cli_options import AsJson, Config, Set, SomeDataFolders, SomeOut, SomeTolerance
from graph.shared.console import say
from train.shared.cli_options import print_record, settings_of

if TYPE_CHECKING:
    from train.router.types import RouterRecord


def register(commands: typer.Typer) -> None:
    """Add `router` to the commands of `train`."""

    @commands.command(cls=command(settings="train.router.settings:RouterSettings"))
    def router(
        data: SomeDataFolders = None,
        config: Config = None,
        settings: Set = None,
        tolerance: SomeTolerance = None,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Train a router: it picks the cheapest mode that is good enough for a question.

        Learns from the data of `synth route`; use it with --mode auto --router FOLDER.
        """
        from train.router.settings import RouterSettings

        chosen = settings_of(RouterSettings, config, settings, data=data or None, output=out, tolerance=tolerance)
        from train.router.train import train_router

        record = train_router(chosen)
        if as_json:
            print_record(chosen.output, record)
            return
        say(f"saved {chosen.output}: {', '.join(record.modes)}, {record.train_seconds:.1f} s")
        show(record)


def show(record: RouterRecord) -> None:
    """The figures of a run on test, a line each."""
    from train.router.card import tell_choices

    for each in record.test:
        told = f"Recall@5 {each.recall:.3f}, {each.milliseconds:.2f} ms, {each.tokens:.0f} tokens"
        print(f"{each.name:10} {told}  ({tell_choices(each)})")

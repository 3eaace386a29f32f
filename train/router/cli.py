"""`modegraph train router`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import say
from train.shared.cli_options import AsJson, Overrides, SomeConfig, print_record, settings_of

if TYPE_CHECKING:
    from train.router.types import RouterRecord


def register(commands: typer.Typer) -> None:
    """Add `router` to the commands of `train`."""

    @commands.command()
    def router(
        data: Annotated[
            list[Path] | None, typer.Option(help="A folder that `synth route` wrote; may be given many times.")
        ] = None,
        out: Annotated[Path | None, typer.Option(help="Folder to save the router in; must not exist yet.")] = None,
        tolerance: Annotated[
            float | None, typer.Option(help="Recall@5 that may be lost against the best single mode, .01 by default.")
        ] = None,
        config: SomeConfig = None,
        overrides: Overrides = None,
        as_json: AsJson = False,
    ) -> None:
        """Train what chooses the mode of a question (`--mode auto --router`) on route data: the cheapest that is good enough."""
        from train.router.settings import RouterSettings

        settings = settings_of(RouterSettings, config, overrides, data=data or None, output=out, tolerance=tolerance)
        from train.router.train import train_router

        record = train_router(settings)
        if as_json:
            print_record(settings.output, record)
            return
        say(f"saved {settings.output}: {', '.join(record.modes)}, {record.train_seconds:.1f} s")
        show(record)


def show(record: RouterRecord) -> None:
    """The figures of a run on test, a line each."""
    from train.router.card import tell_choices

    for each in record.test:
        told = f"Recall@5 {each.recall:.3f}, {each.milliseconds:.2f} ms, {each.tokens:.0f} tokens"
        print(f"{each.name:10} {told}  ({tell_choices(each)})")

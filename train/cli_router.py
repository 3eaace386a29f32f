"""`modegraph train router`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.console import print_json, say

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
        config: Annotated[Path | None, typer.Option(help="YAML file of settings.")] = None,
        overrides: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be given many times."),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the run's record as one JSON object.")] = False,
    ) -> None:
        """Train what chooses the mode of a question (`--mode auto --router`) on route data: the cheapest that is good enough."""
        from graph.config import load_settings
        from train.router.settings import RouterSettings

        given = {
            "data": [str(folder) for folder in data] if data else None,
            "output": str(out) if out is not None else None,
            "tolerance": tolerance,
        }
        named = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items() if value is not None]
        settings = load_settings(RouterSettings, config, [*(overrides or []), *named])
        from train.router.train import train_router

        record = train_router(settings)
        if as_json:
            from dataclasses import asdict

            print_json({"output": settings.output, **asdict(record)})
            return
        say(f"saved {settings.output}: {', '.join(record.modes)}, {record.train_seconds:.1f} s")
        show(record)


def show(record: RouterRecord) -> None:
    """The figures of a run on test, a line each."""
    from train.router.card import tell_choices

    for each in record.test:
        told = f"Recall@5 {each.recall:.3f}, {each.milliseconds:.2f} ms, {each.tokens:.0f} tokens"
        print(f"{each.name:10} {told}  ({tell_choices(each)})")

"""`modegraph train selector`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.console import print_json, say

if TYPE_CHECKING:
    from train.selector.types import SelectorRecord


def register(commands: typer.Typer) -> None:
    """Add `selector` to the commands of `train`."""

    @commands.command()
    def selector(
        data: Annotated[
            list[Path] | None, typer.Option(help="A folder that `synth relevance` wrote; may be given many times.")
        ] = None,
        out: Annotated[Path | None, typer.Option(help="Folder to save the selector in; must not exist yet.")] = None,
        size: Annotated[
            str | None,
            typer.Option(
                help="light (default): trees over what retrieval knows, milliseconds a question; cross: a cross-encoder after them."
            ),
        ] = None,
        target_recall: Annotated[
            float | None, typer.Option(help="Share of the relevant propositions of dev that the threshold keeps.")
        ] = None,
        config: Annotated[Path | None, typer.Option(help="YAML file of settings.")] = None,
        overrides: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be given many times."),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the run's record as one JSON object.")] = False,
    ) -> None:
        """Train what chooses among propositions (`--selector`) on relevance data, in place of a language model."""
        from graph.config import load_settings
        from train.selector.settings import SelectorSettings

        given = {
            "data": [str(folder) for folder in data] if data else None,
            "output": str(out) if out is not None else None,
            "size": size,
            "target_recall": target_recall,
        }
        named = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items() if value is not None]
        settings = load_settings(SelectorSettings, config, [*(overrides or []), *named])
        from train.selector.train import train_selector

        record = train_selector(settings)
        if as_json:
            from dataclasses import asdict

            print_json({"output": settings.output, **asdict(record)})
            return
        read = f", {record.cross.pairs:,} pairs read" if record.cross is not None else ""
        say(f"saved {settings.output}: {record.trees} trees{read}, {record.train_seconds:.1f} s")
        show(record)


def show(record: SelectorRecord) -> None:
    """The figures of a run, a line each."""
    for each in record.ranked:
        told = f"MAP {each.selector:.3f}, cosine {each.cosine:.3f}, {each.questions} questions"
        print(f"{each.dataset} {each.split:5} {told}")
    for name, value in record.figures.items():
        print(f"{name:30} {value:.4g}")

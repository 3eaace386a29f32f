"""`modegraph train selector`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import say
from train.shared.cli_options import AsJson, Overrides, SomeConfig, print_record, settings_of

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
        config: SomeConfig = None,
        overrides: Overrides = None,
        as_json: AsJson = False,
    ) -> None:
        """Train what chooses among propositions (`--selector`) on relevance data, in place of a language model."""
        from train.selector.settings import SelectorSettings

        settings = settings_of(
            SelectorSettings, config, overrides, data=data or None, output=out, size=size, target_recall=target_recall
        )
        from train.selector.train import train_selector

        record = train_selector(settings)
        if as_json:
            print_record(settings.output, record)
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

"""`modegraph train selector`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import MODEL, command
from graph.shared.cli_options import AsJson, Config, Set, SomeDataFolders, SomeOut
from graph.shared.console import say
from train.shared.cli_options import print_record, settings_of

if TYPE_CHECKING:
    from train.selector.hop import HopRecord
    from train.selector.types import SelectorRecord

Size = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        rich_help_panel=MODEL,
        help="light: trees, milliseconds a question; cross: a cross-encoder after them; hop: trees for the second hop of `hops`. light by default.",
    ),
]
TargetRecall = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=MODEL,
        help="Share of the relevant propositions of dev that the threshold keeps.",
    ),
]


def register(commands: typer.Typer) -> None:
    """Add `selector` to the commands of `train`."""

    @commands.command(cls=command(settings="train.selector.settings:SelectorSettings"))
    def selector(
        data: SomeDataFolders = None,
        config: Config = None,
        settings: Set = None,
        size: Size = None,
        target_recall: TargetRecall = None,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Train a selector: it picks the relevant propositions, in place of a language model.

        Learns from the data of `synth relevance`; use it with --selector FOLDER. With --size hop it ranks the second hop of the mode
        `hops`, and learns from indexes and their questions.
        """
        from train.selector.settings import SelectorSettings

        chosen = settings_of(
            SelectorSettings, config, settings, data=data or None, output=out, size=size, target_recall=target_recall
        )
        from train.selector.hop import HopRecord
        from train.selector.train import train_selector

        record = train_selector(chosen)
        if as_json:
            print_record(chosen.output, record)
            return
        if isinstance(record, HopRecord):
            say(f"saved {chosen.output}: {record.trees} trees, {record.train_seconds:.1f} s")
            show_hop(record)
            return
        read = f", {record.cross.pairs:,} pairs read" if record.cross is not None else ""
        say(f"saved {chosen.output}: {record.trees} trees{read}, {record.train_seconds:.1f} s")
        show(record)


def show(record: SelectorRecord) -> None:
    """The figures of a run, a line each."""
    for each in record.ranked:
        told = f"MAP {each.selector:.3f}, cosine {each.cosine:.3f}, {each.questions} questions"
        print(f"{each.dataset} {each.split:5} {told}")
    for name, value in record.figures.items():
        print(f"{name:30} {value:.4g}")


def show_hop(record: HopRecord) -> None:
    """The figures of a hop, a line for each index."""
    for each in record.ranked:
        told = f"Recall@5 {each.recall:.3f} ({each.recall_before:.3f} before), all gold@5 {each.all_gold:.3f} ({each.all_gold_before:.3f})"
        print(f"{each.index} {told}, {each.questions} questions of test")

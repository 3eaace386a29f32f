"""The `train` commands: read the settings, train, print the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import INPUT, TRAINING, Group, command
from graph.shared.cli_options import AsJson, Config, Set, SomeOut
from graph.shared.console import say
from train.export.cli import register as register_export
from train.reward.cli import register as register_score
from train.router.cli import register as register_router
from train.selector.cli import register as register_selector
from train.shared.cli_options import print_record, settings_of
from train.verifier.cli import register as register_verifier

if TYPE_CHECKING:
    from graph.shared.types import OpenModel
    from train.shared.types import RunRecord


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `modegraph train` and its commands. Training opens its own models, so `open_model` stays unused."""
    commands = typer.Typer(
        help="Train a language model, a reward model, a selector, a router or a verifier.",
        no_args_is_help=True,
        cls=Group,
    )
    for train in (tiny, sft, ms, dpo, reward):
        settings = f"train.run.settings:{train.__name__.capitalize()}Settings"
        commands.command(train.__name__, cls=command(settings=settings))(train)
    register_score(commands)
    register_export(commands)
    register_selector(commands)
    register_router(commands)
    register_verifier(commands)
    app.add_typer(commands, name="train", rich_help_panel=TRAINING)


def tiny(
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=INPUT,
            help="Folder or .jsonl of documents, or folder of preference data, to train on.",
        ),
    ] = None,
    config: Config = None,
    settings: Set = None,
    out: SomeOut = None,
    as_json: AsJson = False,
) -> None:
    """Train a tokenizer and a tiny Llama from nothing: a stand-in where no pretrained model can be had."""
    from train.run.settings import TinySettings

    chosen = settings_of(TinySettings, config, settings, texts=texts, output=out)
    from train.tiny import train_tiny

    report(train_tiny(chosen), chosen.output, as_json)


def sft(config: Config = None, settings: Set = None, as_json: AsJson = False) -> None:
    """Fine-tune a model on the chosen answers of preference pairs (SFT)."""
    from train.run.settings import SftSettings

    chosen = settings_of(SftSettings, config, settings)
    from train.sft import train_sft

    report(train_sft(chosen), chosen.output, as_json)


def ms(config: Config = None, settings: Set = None, as_json: AsJson = False) -> None:
    """Tune a model on preferences, mode-seeking (MS, reverse KL): on pairs or on K scored responses."""
    from train.run.settings import MsSettings

    chosen = settings_of(MsSettings, config, settings)
    from train.preference.train import train_ms

    report(train_ms(chosen), chosen.output, as_json)


def dpo(config: Config = None, settings: Set = None, as_json: AsJson = False) -> None:
    """Tune a model on preferences, directly (DPO, forward KL): on pairs or on K scored responses."""
    from train.run.settings import DpoSettings

    chosen = settings_of(DpoSettings, config, settings)
    from train.preference.train import train_dpo

    report(train_dpo(chosen), chosen.output, as_json)


def reward(config: Config = None, settings: Set = None, as_json: AsJson = False) -> None:
    """Train a reward model on preference pairs; `train score` rewards responses with it."""
    from train.run.settings import RewardSettings

    chosen = settings_of(RewardSettings, config, settings)
    from train.reward.reward import train_reward

    report(train_reward(chosen), chosen.output, as_json)


def report(record: RunRecord, output: str, as_json: bool) -> None:
    """The finished run, as JSON or as a short text."""
    if as_json:
        print_record(output, record)
        return
    say(f"saved {output}: {record.stage}, {record.train_seconds:.1f} s on {record.device}")
    for name, value in record.metrics.items():
        print(f"{name:24} {value:.4g}")

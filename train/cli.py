"""The `train` commands: read the settings, train, print the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import say
from train.export.cli import register as register_export
from train.reward.cli import register as register_score
from train.router.cli import register as register_router
from train.selector.cli import register as register_selector
from train.shared.cli_options import AsJson, Config, Overrides, SomeConfig, print_record, settings_of

if TYPE_CHECKING:
    from graph.shared.types import OpenModel
    from train.shared.types import RunRecord


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `modegraph train` and its commands. Training opens its own models, so `open_model` stays unused."""
    commands = typer.Typer(
        help="Train: a model (tiny from nothing, sft, ms for mode-seeking, dpo), a reward model, a selector, a router; score, export.",
        no_args_is_help=True,
    )
    commands.command("tiny")(tiny)
    commands.command("sft")(sft)
    commands.command("ms")(ms)
    commands.command("dpo")(dpo)
    commands.command("reward")(reward)
    register_score(commands)
    register_export(commands)
    register_selector(commands)
    register_router(commands)
    app.add_typer(commands, name="train")


def tiny(
    texts: Annotated[
        str | None, typer.Option(help="Folder of documents, .jsonl of documents, or preference-data folder.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder to save the model in; must not exist yet.")] = None,
    config: SomeConfig = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Train a tokenizer and a tiny Llama on texts: a stand-in where no pretrained model can be had."""
    from train.run.settings import TinySettings

    settings = settings_of(TinySettings, config, overrides, texts=texts, output=out)
    from train.tiny import train_tiny

    report(train_tiny(settings), settings.output, as_json)


def sft(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Supervised fine-tuning on the chosen answers of a preference-data folder."""
    from train.run.settings import SftSettings

    settings = settings_of(SftSettings, config, overrides)
    from train.sft import train_sft

    report(train_sft(settings), settings.output, as_json)


def ms(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Mode-seeking preference optimisation (reverse KL) on pairs or on K scored responses."""
    from train.run.settings import MsSettings

    settings = settings_of(MsSettings, config, overrides)
    from train.preference.train import train_ms

    report(train_ms(settings), settings.output, as_json)


def dpo(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Direct preference optimisation (forward KL) on pairs or on K scored responses."""
    from train.run.settings import DpoSettings

    settings = settings_of(DpoSettings, config, overrides)
    from train.preference.train import train_dpo

    report(train_dpo(settings), settings.output, as_json)


def reward(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """A reward model of preference pairs: what `train score` rewards responses by."""
    from train.run.settings import RewardSettings

    settings = settings_of(RewardSettings, config, overrides)
    from train.reward.reward import train_reward

    report(train_reward(settings), settings.output, as_json)


def report(record: RunRecord, output: str, as_json: bool) -> None:
    """The finished run, as JSON or as a short text."""
    if as_json:
        print_record(output, record)
        return
    say(f"saved {output}: {record.stage}, {record.train_seconds:.1f} s on {record.device}")
    for name, value in record.metrics.items():
        print(f"{name:24} {value:.4g}")

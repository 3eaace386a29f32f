"""The `train` commands: read the settings, train, print the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.console import print_json, say
from train.cli_export import register as register_export
from train.cli_router import register as register_router
from train.cli_score import register as register_score
from train.cli_selector import register as register_selector

if TYPE_CHECKING:
    from graph.types import OpenModel
    from train.types import RunRecord

Config = Annotated[Path, typer.Option("--config", help="YAML file of settings (see configs/train and configs/demo).")]
SomeConfig = Annotated[
    Path | None, typer.Option("--config", help="YAML file of settings (see configs/demo/tiny.yaml).")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be given many times.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the run's record as one JSON object.")]


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `modegraph train` and its commands. Training opens its own models, so `open_model` stays unused."""
    commands = typer.Typer(
        help="Train a model: tiny (from nothing), sft, ms (mode-seeking), dpo or reward; score with it, export it.",
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
    from graph.config import load_settings
    from train.settings import TinySettings

    given = (("texts", texts), ("output", out))
    named = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given if value is not None]
    settings = load_settings(TinySettings, config, [*(overrides or []), *named])
    from train.tiny import train_tiny

    report(train_tiny(settings), settings.output, as_json)


def sft(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Supervised fine-tuning on the chosen answers of a preference-data folder."""
    from graph.config import load_settings
    from train.settings import SftSettings

    settings = load_settings(SftSettings, config, overrides or [])
    from train.sft import train_sft

    report(train_sft(settings), settings.output, as_json)


def ms(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Mode-seeking preference optimisation (reverse KL) on pairs or on K scored responses."""
    from graph.config import load_settings
    from train.settings import MsSettings

    settings = load_settings(MsSettings, config, overrides or [])
    from train.preference import train_ms

    report(train_ms(settings), settings.output, as_json)


def dpo(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Direct preference optimisation (forward KL) on pairs or on K scored responses."""
    from graph.config import load_settings
    from train.settings import DpoSettings

    settings = load_settings(DpoSettings, config, overrides or [])
    from train.preference import train_dpo

    report(train_dpo(settings), settings.output, as_json)


def reward(config: Config, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """A reward model of preference pairs: what `train score` rewards responses by."""
    from graph.config import load_settings
    from train.settings import RewardSettings

    settings = load_settings(RewardSettings, config, overrides or [])
    from train.reward import train_reward

    report(train_reward(settings), settings.output, as_json)


def report(record: RunRecord, output: str, as_json: bool) -> None:
    """The finished run, as JSON or as a short text."""
    if as_json:
        from dataclasses import asdict

        print_json({"output": output, **asdict(record)})
        return
    say(f"saved {output}: {record.stage}, {record.train_seconds:.1f} s on {record.device}")
    for name, value in record.metrics.items():
        print(f"{name:24} {value:.4g}")

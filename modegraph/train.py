"""Training, one function per stage: `run = modegraph.train.ms("ms.yaml", data="my-pairs", out="my-ms")`.

Every function takes the settings of the command of the same name, validated the same way: from a YAML file or a mapping (`config`), overridden
by keyword arguments. `out` (the setting `output`) is the folder for the run: a new or empty one or, with `rounds`, that of an interrupted run. A run is
accepted wherever a setting names a folder: `model=run`. Progress is shown with `progress=True`.

UserError for a setting that is unknown or out of range, and for data that cannot be trained on, before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeAlias, TypeVar

from graph.config import Settings, parse_settings, read_yaml, settings_class
from modegraph.arguments import plain, public_call
from modegraph.runs import Run
from serve.engines import open_model as open_engine

Config: TypeAlias = "str | Path | Mapping[str, Any] | None"
S = TypeVar("S", bound=Settings)
__all__ = ["dpo", "ms", "reward", "selector", "sft", "tiny", "verifier"]


def tiny(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A tokenizer and a tiny Llama trained from scratch on `texts` (documents, or preference data), for trials without a real model."""
    return _train("tiny", "train.tiny:train_tiny", config, out, progress, settings)


def sft(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """Supervised fine-tuning of `model` on the answers in `data`: those of conversations, or the chosen ones of pairs."""
    return _train("sft", "train.sft:train_sft", config, out, progress, settings)


def ms(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """Mode-seeking preference optimisation (reverse KL) of `model` on the pairs or scored responses of `data`.

    With `rounds={"count": 3}`, training runs in rounds, each on fresh responses of the policy to the prompts of `data`.
    """
    return _train("ms", "train.preference.rounds:train_preference", config, out, progress, settings, open_engine)


def dpo(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """Direct preference optimisation (forward KL) of `model` on the pairs or scored responses of `data`, or in `rounds`, as in `ms`."""
    return _train("dpo", "train.preference.rounds:train_preference", config, out, progress, settings, open_engine)


def reward(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A reward model trained on the pairs of `data`."""
    return _train("reward", "train.reward:train_reward", config, out, progress, settings)


def selector(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A selector of propositions (`retrieve(…, selector=run)`), trained on the relevance data in the folders `data`.

    With `size="hop"`, it reranks the results of `hops` instead, and `data` names index folders.
    """
    return _train("selector", "train.selector.selector:train_selector", config, out, progress, settings)


def verifier(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A verifier that marks sentences that passages do not support (`ask(…, verifier=run)`), trained on the claims in the folders `data`."""
    return _train("verifier", "train.verifier:train_verifier", config, out, progress, settings)


def _train(
    stage: str, trainer: str, config: Config, out: str | Path | None, progress: bool, values: dict[str, Any], *more: Any
) -> Run:
    """Call `trainer` (`module:function`) with the settings of the stage and `more`; its module is imported once the settings are valid."""
    kind = settings_class(f"train.run.settings:{stage.capitalize()}Settings")
    chosen: Any = settings_of(kind, f"train.{stage}", config, out, values)
    with public_call(progress):
        train = resolve_name(trainer)
        return Run(Path(chosen.output), train(chosen, *more), stage)


def settings_of(kind: type[S], call: str, config: Config, out: str | Path | None, keywords: Mapping[str, Any]) -> S:
    """The settings in `config`, overridden by those given as keywords; UserError like the command's, naming the file or the call."""
    overrides = {**keywords, **({} if out is None else {"output": out})}
    if isinstance(config, str | Path):
        return parse_settings(kind, merge_settings(read_yaml(Path(config)), overrides), str(config))
    return parse_settings(kind, merge_settings(config or {}, overrides), call)


def merge_settings(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`values` updated with `overrides`, nested groups merged, paths and runs as text.

    >>> merge_settings({"data": "a", "lora": {"rank": 8}}, {"data": Path("b"), "lora": {"alpha": 16}})
    {'data': 'b', 'lora': {'rank': 8, 'alpha': 16}}
    """
    merged = {key: plain(value) for key, value in values.items()}
    for key, value in overrides.items():
        base = merged.get(key)
        if isinstance(base, dict) and isinstance(value, Mapping):
            merged[key] = merge_settings(base, value)
        else:
            merged[key] = plain(value)
    return merged

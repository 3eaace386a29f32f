"""Training, one function per stage: `run = modegraph.train.ms("ms.yaml", data="my-pairs", out="my-ms")`.

Every function takes the settings of the command of the same name, validated the same way: from a YAML file or a mapping (`config`), overridden
by keyword arguments. `out` is the folder for the run, which must be new or empty (the setting `output`). A run is accepted
wherever a setting names a folder: `model=run`. Progress is shown with `progress=True`.

UserError for a setting that is unknown or out of range, and for data that cannot be trained on, before the first step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from graph.config import Settings, parse_settings, read_yaml
from modegraph.arguments import show_progress
from modegraph.runs import Record, Run
from serve.engines import open_model as open_engine

Config: TypeAlias = "str | Path | Mapping[str, Any] | None"
S = TypeVar("S", bound=Settings)
__all__ = ["dpo", "ms", "reward", "selector", "sft", "tiny", "verifier"]


def tiny(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A tokenizer and a tiny Llama trained from scratch on `texts` (documents, or preference data), for trials without a real model."""
    from train.run.settings import TinySettings

    chosen = settings_of(TinySettings, "train.tiny", config, out, settings)
    from train.tiny import train_tiny

    return _run(train_tiny, chosen, chosen.output, "tiny", progress)


def sft(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """Supervised fine-tuning of `model` on the answers in `data`: those of conversations, or the chosen ones of pairs."""
    from train.run.settings import SftSettings

    chosen = settings_of(SftSettings, "train.sft", config, out, settings)
    from train.sft import train_sft

    return _run(train_sft, chosen, chosen.output, "sft", progress)


def ms(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """Mode-seeking preference optimisation (reverse KL) of `model` on the pairs or scored responses of `data`.

    With `rounds={"count": 3}`, training runs in rounds, each on fresh responses of the policy to the prompts of `data`.
    """
    from train.run.settings import MsSettings

    chosen = settings_of(MsSettings, "train.ms", config, out, settings)
    from train.preference.rounds import train_preference

    return _run(partial(train_preference, open_model=open_engine), chosen, chosen.output, "ms", progress)


def dpo(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """Direct preference optimisation (forward KL) of `model` on the pairs or scored responses of `data`, or in `rounds`, as in `ms`."""
    from train.run.settings import DpoSettings

    chosen = settings_of(DpoSettings, "train.dpo", config, out, settings)
    from train.preference.rounds import train_preference

    return _run(partial(train_preference, open_model=open_engine), chosen, chosen.output, "dpo", progress)


def reward(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A reward model trained on the pairs of `data`."""
    from train.run.settings import RewardSettings

    chosen = settings_of(RewardSettings, "train.reward", config, out, settings)
    from train.reward import train_reward

    return _run(train_reward, chosen, chosen.output, "reward", progress)


def selector(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A selector of propositions (`retrieve(…, selector=str(run))`), trained on the relevance data in the folders `data`.

    With `size="hop"`, it reranks the results of `hops` instead, and `data` are indexes.
    """
    from train.run.settings import SelectorSettings

    chosen = settings_of(SelectorSettings, "train.selector", config, out, settings)
    from train.selector.selector import train_selector

    return _run(train_selector, chosen, chosen.output, "selector", progress)


def verifier(config: Config = None, *, out: str | Path | None = None, progress: bool = False, **settings: Any) -> Run:
    """A verifier that marks sentences that passages do not support (`ask(…, verifier=str(run))`), trained on the claims in the folders `data`."""
    from train.run.settings import VerifierSettings

    chosen = settings_of(VerifierSettings, "train.verifier", config, out, settings)
    from train.verifier import train_verifier

    return _run(train_verifier, chosen, chosen.output, "verifier", progress)


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
    merged = {key: _plain(value) for key, value in values.items()}
    for key, value in overrides.items():
        base = merged.get(key)
        if isinstance(base, dict) and isinstance(value, Mapping):
            merged[key] = merge_settings(base, value)
        else:
            merged[key] = _plain(value)
    return merged


def _plain(value: Any) -> Any:
    if isinstance(value, Path | Run):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _run(train: Callable[[S], Record], settings: S, output: str, stage: str, progress: bool) -> Run:
    with show_progress(progress):
        return Run(Path(output), train(settings), stage)

"""The `train` commands: most read their settings, train, and print the figures of the run; `score` and `export` take a finished run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graph.errors import UserError
from graph.shared.cli_app import INPUT, MODEL, OUTPUT, TRAINING, Command, Group, command, option
from graph.shared.cli_options import AsJson, Config, Conversations, Data, Out, RunFolder, Set, SomeDataFolders, SomeOut
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from graph.config import S
    from graph.types import OpenModel
    from train.run.record import RunRecord
    from train.selector.hop import HopRecord
    from train.selector.selector_data import SelectorRecord


def settings_of(kind: type[S], config: Path | None, overrides: list[str] | None, **options: Any) -> S:
    """The settings in `config`, overridden by `--set` and then by the command's own options (paths as text)."""
    from graph.config import load_settings

    option_overrides = [
        f"{key}={json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in options.items()
        if value is not None
    ]
    return load_settings(kind, config, [*(overrides or []), *option_overrides])


def print_record(output: str, record: DataclassInstance) -> None:
    """Print a finished run as one JSON object."""
    print_json({"output": output, **asdict(record)})


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `modegraph train` and its commands. Training opens its own models; `open_model` opens the policies that responses are sampled from in rounds."""
    commands = typer.Typer(
        help="Train a language model, a reward model, a selector or a verifier.", no_args_is_help=True, cls=Group
    )
    ms, dpo = preference_commands(open_model)
    for each in (tiny, sft, ms, dpo, reward, score, export, selector, verifier):
        settings = f"train.run.settings:{each.__name__.capitalize()}Settings"
        commands.command(cls=Command if each in (score, export) else command(settings=settings))(each)
    app.add_typer(commands, name="train", rich_help_panel=TRAINING)


def tiny(
    texts: Annotated[
        Path | None, option("PATH", INPUT, "Folder or .jsonl of documents, or folder of preference data, to train on.")
    ] = None,
    config: Config = None,
    settings: Set = None,
    out: SomeOut = None,
    as_json: AsJson = False,
) -> None:
    """Train a tokenizer and a tiny Llama from scratch: a stand-in for a pretrained model."""
    from train.run.settings import TinySettings

    chosen = settings_of(TinySettings, config, settings, texts=texts, output=out)
    from train.tiny import train_tiny

    report(train_tiny(chosen), chosen.output, as_json)


def sft(config: Config = None, settings: Set = None, as_json: AsJson = False) -> None:
    """Fine-tune a model on the answers of conversations or reading rows, or on the chosen responses of pairs (SFT)."""
    from train.run.settings import SftSettings

    chosen = settings_of(SftSettings, config, settings)
    from train.sft import train_sft

    report(train_sft(chosen), chosen.output, as_json)


Rounds = Annotated[
    int | None,
    option(
        "--rounds N",
        INPUT,
        "Train in N rounds, each on fresh responses to the prompts of `data`; the group `rounds` contains the other settings.",
    ),
]


def preference_commands(open_model: OpenModel) -> tuple[Callable[..., None], Callable[..., None]]:
    """The commands `ms` and `dpo`; rounds open their policies with `open_model`."""

    def ms(config: Config = None, settings: Set = None, rounds: Rounds = None, as_json: AsJson = False) -> None:
        """Tune a model by mode-seeking preference optimisation (MS, reverse KL), on pairs or on K scored responses.

        With --rounds, the responses are sampled from the policy as it learns, and `data` is a folder of prompts.
        """
        from train.run.settings import MsSettings

        chosen = settings_of(MsSettings, config, settings, **{"rounds.count": rounds})
        from train.preference.rounds import train_preference

        report(train_preference(chosen, open_model), chosen.output, as_json)

    def dpo(config: Config = None, settings: Set = None, rounds: Rounds = None, as_json: AsJson = False) -> None:
        """Tune a model by direct preference optimisation (DPO, forward KL), on pairs or on K scored responses.

        With --rounds, the responses are sampled from the policy as it learns, and `data` is a folder of prompts.
        """
        from train.run.settings import DpoSettings

        chosen = settings_of(DpoSettings, config, settings, **{"rounds.count": rounds})
        from train.preference.rounds import train_preference

        report(train_preference(chosen, open_model), chosen.output, as_json)

    return ms, dpo


def reward(config: Config = None, settings: Set = None, as_json: AsJson = False) -> None:
    """Train a reward model on preference pairs; `train score` scores responses with it."""
    from train.run.settings import RewardSettings

    chosen = settings_of(RewardSettings, config, settings)
    from train.reward import train_reward

    report(train_reward(chosen), chosen.output, as_json)


def report(record: RunRecord, output: str, as_json: bool) -> None:
    """Print a finished run as JSON, or as a short text with its figures."""
    if as_json:
        print_record(output, record)
        return
    say(f"saved {output}: {record.stage}, {record.train_seconds:.1f} s on {record.device}")
    for name, value in record.metrics.items():
        print(f"{name:24} {value:.4g}")


def score(run: RunFolder, data: Data, out: Out, as_json: AsJson = False) -> None:
    """Score responses with a reward model: add the reward component `reward_model`, from 0 to 1.

    RUN is a run of `train reward`, --data a folder that `synth responses` wrote.
    """
    from train.reward import score_responses

    scored = score_responses(run, data, out)
    if as_json:
        print_record(str(out), scored)
        return
    print(f"{out}: {scored.prompts:,} prompts, {scored.responses:,} responses, mean reward {scored.mean_reward:.3f}")
    print(
        "to train on these rewards, give them a weight in the setting `rewards` of `train ms` or `train dpo`: reward_model: 1.0"
    )


def export(
    run: RunFolder,
    out: Out,
    merge: Annotated[
        bool,
        option(
            "--merge",
            OUTPUT,
            "Merge the adapter into its base, in bf16. --gguf merges it too, unless --adapter-only is given.",
        ),
    ] = False,
    adapter_only: Annotated[bool, option("--adapter-only", OUTPUT, "Write the adapter alone.")] = False,
    gguf: Annotated[
        str,
        option(
            "TYPE",
            OUTPUT,
            "Write a GGUF file of this type (f16, bf16 or q8_0) and an Ollama Modelfile; with --adapter-only, a GGUF file of the adapter alone.",
        ),
    ] = "",
    conversations: Conversations = None,
    hub_base: Annotated[
        str,
        option(
            "OWNER/NAME",
            OUTPUT,
            "With --adapter-only: the base model's name on the hub, if the adapter was trained from a local copy.",
        ),
    ] = "",
    push: Annotated[
        str,
        option(
            "OWNER/NAME",
            OUTPUT,
            "Upload the export to this hub repository; if it does not exist, it is created as a private one.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Export a run for others: a full model, an adapter or a GGUF file, with a model card and no local paths."""
    check_export_options(merge, adapter_only, gguf, hub_base, conversations)
    from train.export.export import check_hub_names, export_adapter, export_merged, push_to_hub

    check_hub_names(hub_base, push)
    if gguf:
        from train.export.gguf_export import CONVERSATIONS, describe_export, export_gguf

        exported = export_gguf(run, out, gguf, adapter_only, conversations or CONVERSATIONS)  # type: ignore[arg-type]
        result, summary = asdict(exported), f"{exported.file}, {exported.megabytes:,} MB\n{describe_export(exported)}"
    else:
        result = asdict(export_merged(run, out)) if merge else {"base_model": export_adapter(run, out, hub_base)}
        values = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in result.items()}
        summary = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
    if push:
        push_to_hub(out, push)
    print_json({"output": str(out), **result}) if as_json else print(f"{out}: {summary}")


def check_export_options(merge: bool, adapter_only: bool, gguf: str, hub_base: str, conversations: int | None) -> None:
    """UserError for options of `export` that contradict one another or name nothing to write, and for an unknown GGUF type."""
    formats = {"--merge": merge, "--adapter-only": adapter_only}
    options = [option for option, chosen in formats.items() if chosen]
    if len(options) > 1 or not (options or gguf):
        found = f"export: {' and '.join(options) or 'nothing to write'}"
        raise UserError(found, "one of --merge, --adapter-only and --gguf TYPE", "name one")
    if hub_base and (gguf or not adapter_only):
        found = f"--hub-base {hub_base} {'with --gguf' if gguf else 'without --adapter-only'}"
        raise UserError(found, "--hub-base only with --adapter-only and without --gguf", "leave it out")
    if conversations is not None and not gguf:
        found = f"--conversations {conversations} without --gguf"
        raise UserError(found, "--conversations only with --gguf", "leave it out")
    if gguf:
        from train.export.gguf import TYPES

        if gguf not in TYPES:
            raise UserError(f"--gguf {gguf}", f"one of {', '.join(TYPES)}", "name one")


Size = Annotated[
    str | None,
    option(
        "SIZE",
        MODEL,
        "light (the default): boosted trees, a few milliseconds per question; hop: boosted trees that rerank the second hop of mode `hops`.",
    ),
]
TargetRecall = Annotated[
    float | None, option("SHARE", MODEL, "Share of the relevant dev propositions that the threshold should keep.")
]


def selector(
    data: SomeDataFolders = None,
    config: Config = None,
    settings: Set = None,
    size: Size = None,
    target_recall: TargetRecall = None,
    out: SomeOut = None,
    as_json: AsJson = False,
) -> None:
    """Train a selector, which replaces the language model that picks the relevant propositions.

    It learns from the data of `synth relevance`; use it with --selector FOLDER. With --size hop it reranks the results of the mode
    `hops`, and learns from indexes and their questions.
    """
    from train.run.settings import SelectorSettings

    chosen = settings_of(
        SelectorSettings, config, settings, data=data or None, output=out, size=size, target_recall=target_recall
    )
    from train.selector.hop import HopRecord
    from train.selector.selector import train_selector

    record = train_selector(chosen)
    if as_json:
        print_record(chosen.output, record)
        return
    say(f"saved {chosen.output}: {record.trees} trees, {record.train_seconds:.1f} s")
    show_hop_selector(record) if isinstance(record, HopRecord) else show_selector(record)


def show_selector(record: SelectorRecord) -> None:
    """Print the figures of a selector: a line for each ranked dataset, then one for each other figure."""
    for ranked in record.ranked:
        figures = f"MAP {ranked.selector:.3f} (by cosine {ranked.cosine:.3f}), {ranked.questions} questions"
        print(f"{ranked.dataset} {ranked.split:5} {figures}")
    for name, value in record.figures.items():
        print(f"{name:30} {value:.4g}")


def show_hop_selector(record: HopRecord) -> None:
    """Print the figures of a hop selector, one line per index."""
    for ranked in record.ranked:
        figures = f"Recall@5 {ranked.recall:.3f} ({ranked.recall_before:.3f} before), all gold@5 {ranked.all_gold:.3f} ({ranked.all_gold_before:.3f} before)"
        print(f"{ranked.index} {figures}, {ranked.questions} test questions")


def verifier(
    data: SomeDataFolders = None,
    config: Config = None,
    settings: Set = None,
    out: SomeOut = None,
    as_json: AsJson = False,
) -> None:
    """Train a verifier, which marks sentences that their cited passages do not support.

    It learns from the data of `synth claims`, and with --set real=FOLDER also from sentences that people labelled, in a folder
    that `data import support` wrote; use it with --verifier FOLDER.
    """
    from train.run.settings import VerifierSettings

    chosen = settings_of(VerifierSettings, config, settings, data=data or None, output=out)
    from train.verifier import train_verifier

    record = train_verifier(chosen)
    if as_json:
        print_record(chosen.output, record)
        return
    say(f"saved {chosen.output}: {record.trees} trees, {record.milliseconds:.2f} ms for a claim's features")
    for name, value in record.figures.items():
        rule = f" (baseline rule {record.rule[name]:.3f})" if name in record.rule else ""
        print(f"{name:26} {value:.3f}{rule}")
    for kind, (count, share) in record.kinds.items():
        print(f"{kind:26} {share:.3f} of {count:,} marked")
    for each in record.real:
        marked = f"{each.supported_marked:.3f} of the supported, {each.unsupported_marked:.3f} of the unsupported"
        print(f"{each.name:26} AUC {each.auc:.3f}, marked: {marked} ({each.dev:,} dev sentences)")

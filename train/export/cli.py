"""`modegraph train export`: a finished run as a model to give away."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graph.shared.cli_app import INPUT, OUTPUT, command
from graph.shared.cli_options import AsJson, Out, RunFolder
from graph.shared.console import print_json
from graph.shared.errors import UserError

GGUF_TYPES = ("f16", "bf16", "q8_0")


def register(commands: typer.Typer) -> None:
    """Add `export` to the commands of `train`."""
    commands.command("export", cls=command({"--adapter": "--adapter-only", "--base": "--hub-base"}))(export)


def export(
    run: RunFolder,
    out: Out,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge",
            metavar="",
            rich_help_panel=OUTPUT,
            help="Merge the adapter into its base, in bf16 or in the type of --gguf, which merges by itself.",
        ),
    ] = False,
    adapter_only: Annotated[
        bool, typer.Option("--adapter-only", metavar="", rich_help_panel=OUTPUT, help="Write the adapter alone.")
    ] = False,
    gguf: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            rich_help_panel=OUTPUT,
            help="Write a GGUF file of this type (f16, bf16 or q8_0) and an Ollama Modelfile; with --adapter-only the adapter's own GGUF file.",
        ),
    ] = "",
    conversations: Annotated[
        int,
        typer.Option(metavar="N", min=1, rich_help_panel=INPUT, help="Conversations of the run's dev rows to compare."),
    ] = 100,
    hub_base: Annotated[
        str,
        typer.Option(
            metavar="OWNER/NAME",
            rich_help_panel=OUTPUT,
            help="With --adapter-only: name of the base on the hub, when it was trained on a local folder.",
        ),
    ] = "",
    push: Annotated[
        str,
        typer.Option(
            metavar="OWNER/NAME",
            rich_help_panel=OUTPUT,
            help="Then upload it to the hub, into this new private repository.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Export a run to give away: a whole model, an adapter or a GGUF file, with its card and no local path."""
    forms = {"--merge": merge, "--adapter-only": adapter_only}
    named = [form for form, given in forms.items() if given]
    if len(named) > 1 or not (named or gguf):
        found = f"export: {' and '.join(named) or 'nothing to write'}"
        raise UserError(found, "one of --merge, --adapter-only and --gguf TYPE", "name one")
    if hub_base and (gguf or not adapter_only):
        found = f"--hub-base {hub_base} {'with --gguf' if gguf else 'without --adapter-only'}"
        raise UserError(found, "a base with --adapter-only in safetensors", "leave it out")
    if gguf not in ("", *GGUF_TYPES):
        raise UserError(f"--gguf {gguf}", f"one of {', '.join(GGUF_TYPES)}", "name one")
    from train.export.export import check_hub_names, push_to_hub

    check_hub_names(hub_base, push)
    if gguf:
        result, words = _gguf(run, out, gguf, adapter_only, conversations)
    else:
        result = _merged(run, out) if merge else _adapter(run, out, hub_base)
        words = ", ".join(f"{what.replace('_', ' ')} {_short(value)}" for what, value in result.items())
    if push:
        push_to_hub(out, push)
    print_json({"output": str(out), **result}) if as_json else print(f"{out}: {words}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _merged(run: Path, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from train.export.export import export_merged

    return asdict(export_merged(run, out))


def _adapter(run: Path, out: Path, base: str) -> dict[str, Any]:
    from train.export.export import export_adapter

    return {"base_model": export_adapter(run, out, base)}


def _gguf(run: Path, out: Path, kind: str, adapter_only: bool, conversations: int) -> tuple[dict[str, Any], str]:
    from dataclasses import asdict

    from train.export.gguf_run import export_gguf, in_words

    made = export_gguf(run, out, kind, adapter_only, conversations)  # type: ignore[arg-type]
    return asdict(made), f"{made.file}, {made.megabytes:,} MB\n{in_words(made)}"

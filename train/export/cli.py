"""`modegraph train export`: a finished run as a model to give away."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graph.shared.cli_app import OUTPUT, command
from graph.shared.cli_options import AsJson, Out, RunFolder
from graph.shared.console import print_json
from graph.shared.errors import UserError

GGUF_TYPES = ("f16", "q8_0")


def register(commands: typer.Typer) -> None:
    """Add `export` to the commands of `train`."""
    commands.command("export", cls=command({"--adapter": "--adapter-only", "--base": "--hub-base"}))(export)


def export(
    run: RunFolder,
    out: Out,
    merge: Annotated[
        bool,
        typer.Option("--merge", metavar="", rich_help_panel=OUTPUT, help="Merge the adapter into its base, in bf16."),
    ] = False,
    adapter_only: Annotated[
        bool, typer.Option("--adapter-only", metavar="", rich_help_panel=OUTPUT, help="Write the adapter alone.")
    ] = False,
    gguf: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            rich_help_panel=OUTPUT,
            help="Write a GGUF file of this type, f16 or q8_0, an adapter merged into it, and an Ollama Modelfile.",
        ),
    ] = "",
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
    forms = {"--merge": merge, "--adapter-only": adapter_only, "--gguf": bool(gguf)}
    named = [form for form, given in forms.items() if given]
    if len(named) != 1:
        raise UserError(f"export: {' and '.join(named) or 'none'}", f"one of {', '.join(forms)}", "name one")
    if hub_base and not adapter_only:
        raise UserError(f"--hub-base {hub_base} with {named[0]}", "a base with --adapter-only", "leave it out")
    if gguf not in ("", *GGUF_TYPES):
        raise UserError(f"--gguf {gguf}", f"one of {', '.join(GGUF_TYPES)}", "name one")
    from train.export.export import check_hub_names, push_to_hub

    check_hub_names(hub_base, push)
    told = _merged(run, out) if merge else _gguf(run, out, gguf) if gguf else _adapter(run, out, hub_base)
    if push:
        push_to_hub(out, push)
    if as_json:
        print_json({"output": str(out), **told})
    else:
        print(f"{out}: " + ", ".join(f"{what.replace('_', ' ')} {value}" for what, value in told.items()))


def _merged(run: Path, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    from train.export.export import export_merged

    return asdict(export_merged(run, out))


def _adapter(run: Path, out: Path, base: str) -> dict[str, Any]:
    from train.export.export import export_adapter

    return {"base_model": export_adapter(run, out, base)}


def _gguf(run: Path, out: Path, kind: str) -> dict[str, Any]:
    from dataclasses import asdict

    from train.export.gguf_run import export_gguf

    return asdict(export_gguf(run, out, kind))  # type: ignore[arg-type]

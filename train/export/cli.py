"""`modegraph train export`: a finished run as a model to give away."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graph.shared.cli_app import OUTPUT, command
from graph.shared.cli_options import AsJson, Out, RunFolder
from graph.shared.console import print_json
from graph.shared.errors import UserError


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
    """Export a run to give away: a whole model or an adapter, with tokenizer and card and no local path."""
    if merge == adapter_only:
        raise UserError(
            "--merge and --adapter-only" if merge else "export: neither", "one of --merge, --adapter-only", "name one"
        )
    if merge and hub_base:
        raise UserError(f"--hub-base {hub_base} with --merge", "a base with --adapter-only", "leave it out")
    from train.export.export import check_hub_names, push_to_hub

    check_hub_names(hub_base, push)
    told = _merged(run, out) if merge else _adapter(run, out, hub_base)
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

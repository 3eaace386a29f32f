"""`modegraph train export`: a finished run as a model to give away."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graph.shared.console import print_json
from graph.shared.errors import UserError


def register(commands: typer.Typer) -> None:
    """Add `export` to the commands of `train`."""
    commands.command("export")(export)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run with an adapter.")],
    out: Annotated[Path, typer.Option(help="The folder to write; must not exist yet.")],
    merge: Annotated[bool, typer.Option("--merge", help="The adapter merged into its base, in bf16.")] = False,
    adapter: Annotated[bool, typer.Option("--adapter", help="The adapter alone.")] = False,
    base: Annotated[
        str, typer.Option(metavar="OWNER/NAME", help="With --adapter: the base on the hub, if a local folder was used.")
    ] = "",
    push: Annotated[
        str, typer.Option(metavar="REPO", help="Then upload it to this (new, private) repository on the hub.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write a run as a whole model or as an adapter, with tokenizer and card, without local paths."""
    if merge == adapter:
        raise UserError(
            "--merge and --adapter" if merge else "export: neither", "one of --merge, --adapter", "name one"
        )
    if merge and base:
        raise UserError(f"--base {base} with --merge", "a base with --adapter only", "leave it out")
    from train.export.export import check_hub_names, push_to_hub

    check_hub_names(base, push)
    told = _merged(run, out) if merge else _adapter(run, out, base)
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

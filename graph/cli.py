"""`modegraph index`: documents in, index out."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from graph.console import print_json, say
from graph.types import OpenModel


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add this folder's commands."""
    del open_model
    app.command("index")(index_command)


def index_command(
    src: Annotated[
        Path,
        typer.Argument(help="folder of .txt/.md/.html/.pdf files, one such file, or a .jsonl of {id, title, text}"),
    ],
    out: Annotated[Path, typer.Option("--out", help="folder of the index; an existing one is added to")],
    config: Annotated[Path | None, typer.Option("--config", help="YAML file of index settings")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="one setting, as key=value; repeatable")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as one JSON object")] = False,
) -> None:
    """Read documents into an index: passages, propositions, names, vectors, the graphs and their summaries."""
    from graph.build import build_index, settings_for
    from graph.encoder import open_encoder
    from graph.read import read_documents

    chosen = settings_for(out, config, settings or [])
    report = build_index(out, read_documents(src, say), chosen, open_encoder)
    if as_json:
        print_json({"index": str(out), **asdict(report)})
        return
    print(
        f"{out}: {report.documents:,} documents ({report.written:,} written, {report.unchanged:,} unchanged), "
        f"{report.passages:,} passages, {report.propositions:,} propositions, {report.names:,} names, "
        f"{report.summaries:,} summaries"
    )
    print(f'Next: modegraph ask {out} "your question"')

"""The commands on an index: make it, add to it, look at it, mend it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from graph.console import print_json, say
from graph.types import OpenModel

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="folder of an index")]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as one JSON object")]


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add this folder's commands."""
    del open_model
    app.command("index")(index_command)
    app.command("status")(status_command)
    app.command("delete")(delete_command)
    app.command("resume")(resume_command)
    app.command("verify")(verify_command)
    app.command("repair")(repair_command)
    app.command("compact")(compact_command)


def index_command(
    src: Annotated[
        Path,
        typer.Argument(help="folder of .txt/.md/.html/.pdf files, one such file, or a .jsonl of {id, title, text}"),
    ],
    out: Annotated[Path, typer.Option("--out", help="folder of the index; an existing one is added to")],
    config: Annotated[Path | None, typer.Option("--config", help="YAML file of index settings")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="one setting, as key=value; repeatable")] = None,
    as_json: AsJson = False,
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


def status_command(index: IndexFolder, as_json: AsJson = False) -> None:
    """What an index holds, its size, and whether the last run finished."""
    from graph.lifecycle import index_status

    status = index_status(index)
    if as_json:
        print_json(asdict(status))
        return
    held = ", ".join(f"{count:,} {table}" for table, count in status.rows.items())
    print(f"{index}: generation {status.generation}, encoder {status.encoder}, {status.disk_bytes / 1e6:,.1f} MB")
    print(held)
    if status.unfinished:
        print(f"{status.unfinished} ({status.documents_to_extract:,} documents to extract)")


def delete_command(
    index: IndexFolder,
    source: Annotated[list[str], typer.Option("--source", help="source of a document to remove; repeatable")],
    as_json: AsJson = False,
) -> None:
    """Remove documents and everything that was read from them alone."""
    from graph.encoder import open_encoder
    from graph.lifecycle import delete_documents

    left = len(delete_documents(index, source, open_encoder).document_sources)
    if as_json:
        print_json({"index": str(index), "deleted": source, "documents": left})
    else:
        print(f"{index}: {len(source):,} removed, {left:,} documents left")


def resume_command(index: IndexFolder, as_json: AsJson = False) -> None:
    """Finish what an interrupted run left; nothing that was done is done again."""
    from graph.encoder import open_encoder
    from graph.lifecycle import resume_build

    documents = len(resume_build(index, open_encoder).document_sources)
    if as_json:
        print_json({"index": str(index), "documents": documents})
    else:
        print(f"{index}: finished, {documents:,} documents")


def verify_command(index: IndexFolder, as_json: AsJson = False) -> None:
    """Compare every byte with what was written; exit status 1 when something is damaged."""
    from graph.lifecycle import verify_index

    damage = verify_index(index)
    if as_json:
        print_json({"index": str(index), "damage": [asdict(found) for found in damage]})
    for found in damage if not as_json else []:
        print(f"{index}/{found.file}: {found.problem}; mend it with: {found.repair}")
    if damage:
        raise typer.Exit(1)
    if not as_json:
        print(f"{index}: every byte is as it was written")


def repair_command(index: IndexFolder, as_json: AsJson = False) -> None:
    """Rebuild damaged arrays from index.sqlite, keeping vectors that are sound."""
    from graph.encoder import open_encoder
    from graph.lifecycle import repair_index

    damage = repair_index(index, open_encoder)
    if as_json:
        print_json({"index": str(index), "repaired": [asdict(found) for found in damage]})
    else:
        print(f"{index}: {'repaired ' + ', '.join(found.file for found in damage) if damage else 'nothing to repair'}")


def compact_command(index: IndexFolder, as_json: AsJson = False) -> None:
    """Give back the space of deleted rows and of the previous generation."""
    from graph.lifecycle import compact_index

    freed = compact_index(index)
    if as_json:
        print_json({"index": str(index), "freed_bytes": freed})
    else:
        print(f"{index}: {freed / 1e6:,.1f} MB given back")

"""The commands that create, extend, inspect and repair an index."""

import json
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.errors import UserError
from graph.export.cli import export_command, register_copy
from graph.models.cli import register as register_models
from graph.shared.cli_app import INDEXING, INPUT, MODEL, OUTPUT, Command, command, option
from graph.shared.cli_options import (
    AsJson,
    Config,
    Documents,
    EngineChoice,
    ExtractorModel,
    FileMemory,
    FileSeconds,
    IndexFolder,
    OcrLanguages,
    OcrPages,
    OcrPageSeconds,
    OcrProgram,
    Out,
    RayAddress,
    Set,
    Strict,
    SummaryModel,
    WholePages,
)
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.build.build import BuildReport
    from graph.build.estimate import BuildPlan
    from graph.build.watch import WatchedFolder
    from graph.documents.parse.formats import Limits
    from graph.documents.read import SkipLog
    from graph.store.index_settings import IndexSettings
    from graph.types import OpenModel

_IMPORT = 'Read propositions from a .jsonl file of {"id", "entities", "triples"}.'
ImportFile = Annotated[Path | None, option("--import FILE", INPUT, _IMPORT)]
PriceIn = Annotated[float, option("--price-in PRICE", MODEL, "Price per million prompt tokens.", min=0)]
PriceOut = Annotated[float, option("--price-out PRICE", MODEL, "Price per million reply tokens.", min=0)]
Failed = Annotated[bool, option("--failed", INPUT, "Retry the passages in quarantine.")]
_WATCH = "Keep running and update the index when files in the folder are added, changed or removed, until Ctrl-C."
Watch = Annotated[bool, option("--watch", INPUT, _WATCH)]
_DELETE_MISSING = "Delete from the index the documents that are no longer in DOCUMENTS."
DeleteMissing = Annotated[bool, option("--delete-missing", INPUT, _DELETE_MISSING)]
POLL_S = 2.0
"""Seconds between two checks of a watched folder."""
_STORE = "Keep the rows of a new index in PostgreSQL: postgresql://USER@HOST/DATABASE."
StoreDsn = Annotated[str | None, option("--store DSN", OUTPUT, _STORE)]
_SOURCES = "Documents to remove, as the index names them (file or id)."
Sources = Annotated[list[str], typer.Argument(metavar="SOURCE", help=_SOURCES)]
INDEX_SETTINGS = "graph.store.index_settings:IndexSettings"


def register(app: typer.Typer, open_model: "OpenModel") -> None:
    _add_index(app, open_model)
    app.command("plan", cls=command(settings=INDEX_SETTINGS), rich_help_panel=INDEXING)(plan_command)
    app.command("status", cls=Command, rich_help_panel=INDEXING)(status_command)
    _add_resume_and_retry(app, open_model)
    _add_delete_and_repair(app, open_model)
    app.command("verify", cls=Command, rich_help_panel=INDEXING)(verify_command)
    _add_compact(app, open_model)
    app.command("export", cls=Command, rich_help_panel=INDEXING)(export_command)
    register_copy(app, open_model)
    register_models(app)


def _add_index(app: typer.Typer, open_model: "OpenModel") -> None:
    @app.command(cls=command(settings=INDEX_SETTINGS), rich_help_panel=INDEXING)
    def index(
        documents: Documents,
        out: Out,
        extractor_model: ExtractorModel = None,
        import_file: ImportFile = None,
        summary_model: SummaryModel = None,
        store: StoreDsn = None,
        file_seconds: FileSeconds = 4.5,
        file_memory_mb: FileMemory = 512,
        whole_pages: WholePages = False,
        ocr: OcrProgram = None,
        ocr_languages: OcrLanguages = "eng",
        ocr_pages: OcrPages = 500,
        ocr_page_seconds: OcrPageSeconds = 30.0,
        strict: Strict = False,
        delete_missing: DeleteMissing = False,
        watch: Watch = False,
        engine: EngineChoice = "local",
        ray_address: RayAddress = None,
        config: Config = None,
        settings: Set = None,
        as_json: AsJson = False,
    ) -> None:
        """Create an index of documents, or add to one.

        --out is the folder of the index; with --store its rows are in a database whose address is in that folder. Rules extract the
        propositions, unless --extractor-model names a language model or --import a file; the index stores that choice. Files
        that cannot be read are skipped and listed with the reason; a .modegraphignore file in DOCUMENTS names files to
        leave out. Exits with 1 when more passages failed than max_failed_share allows. --engine ray creates the same index
        (docs/scale.md).
        """
        from graph.build.build import build_index
        from graph.build.stores import model_settings, settings_for
        from graph.build.watch import watch_folder
        from graph.documents.parse.formats import Limits
        from graph.documents.parse.ocr import ocr_settings
        from graph.documents.read import SkipLog, present_in, read_documents
        from graph.models.encoder import open_encoder, prepare_for_questions
        from graph.workers.engines import open_workers

        scans = ocr_settings(ocr, ocr_languages, ocr_pages, ocr_page_seconds)
        limits, skipped = Limits(file_seconds, file_memory_mb, scans, whole_pages), SkipLog(say)
        watched = watch_folder(documents, out) if watch else None
        if store is not None:
            from graph.postgres.schema import place_in_database

            place_in_database(out, store)
        reading = model_settings(extractor_model, import_file, summary_model)
        chosen = settings_for(out, config, settings or [], reading)
        parsed = read_documents(documents, skipped, limits)
        with open_workers(engine, ray_address) as workers:
            keep = present_in(documents) if delete_missing else None
            report = build_index(out, parsed, chosen, open_encoder, partial(open_model, workers=workers), workers, keep)
        prepare_for_questions(chosen.encoder)
        if as_json:
            print_json({"index": str(out), **asdict(report), "skipped": skipped.lines})
        else:
            _show_report(out, report)
        _exit_if_quarantined(out)
        _exit_if_skipped(skipped, strict)
        if watched is not None:
            with suppress(KeyboardInterrupt):
                _follow(out, watched, limits, open_model, strict, as_json)


def _show_report(out: Path, report: "BuildReport") -> None:
    deleted = f", {report.deleted:,} deleted" if report.deleted else ""
    print(
        f"{out}: {report.documents:,} documents ({report.written:,} written, {report.unchanged:,} unchanged{deleted}), "
        f"{report.passages:,} passages, {report.propositions:,} propositions, {report.entities:,} entities, "
        f"{report.summaries:,} summaries"
    )
    _show_readers(report.read_by, report.quarantined, report.dropped)
    print(f'Next: modegraph ask {out} "your question"')


def _follow(
    out: Path, watched: "WatchedFolder", limits: "Limits", open_model: "OpenModel", strict: bool, as_json: bool
) -> None:
    """Update the index whenever the folder changes, and print each edit; exit with status 1 in the cases of `_exit_if_quarantined` and `_exit_if_skipped`."""
    from functools import cache

    from graph.build.watch import follow
    from graph.documents.read import SkipLog
    from graph.models.encoder import open_encoder

    def wait() -> bool:
        time.sleep(POLL_S)
        return True

    say(f"watching {watched.folder} (stop with Ctrl-C)")
    skipped = SkipLog(say)
    for edit in follow(out, watched, limits, skipped, wait, cache(open_encoder), open_model):
        if as_json:
            changes = {"read": edit.read, "deleted": edit.deleted, "skipped": skipped.lines}
            print(json.dumps({"index": str(out), **asdict(edit.report), **changes}, ensure_ascii=False), flush=True)
        else:
            totals = f"{edit.report.documents:,} documents, {edit.report.passages:,} passages"
            print(f"{out}: {len(edit.read):,} read, {len(edit.deleted):,} deleted; {totals}", flush=True)
        _exit_if_quarantined(out)
        _exit_if_skipped(skipped, strict)
        skipped.lines.clear()


def plan_command(
    documents: Documents,
    out: Out,
    extractor_model: ExtractorModel = None,
    import_file: ImportFile = None,
    summary_model: SummaryModel = None,
    price_in: PriceIn = 0.0,
    price_out: PriceOut = 0.0,
    file_seconds: FileSeconds = 4.5,
    file_memory_mb: FileMemory = 512,
    whole_pages: WholePages = False,
    ocr: OcrProgram = None,
    ocr_languages: OcrLanguages = "eng",
    ocr_pages: OcrPages = 500,
    ocr_page_seconds: OcrPageSeconds = 30.0,
    strict: Strict = False,
    config: Config = None,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Show what `modegraph index` would do and cost.

    Takes the options of `modegraph index` for input (but not `--delete-missing` and `--watch`), models and settings. Calls no
    language model and leaves the index unchanged. The encoder's tokenizer counts the tokens.
    """
    from graph.build.estimate import Prices, plan_build
    from graph.build.stores import model_settings, settings_for
    from graph.documents.parse.formats import Limits
    from graph.documents.parse.ocr import ocr_settings
    from graph.documents.read import SkipLog, read_documents
    from graph.models.encoder import open_encoder

    chosen = settings_for(out, config, settings or [], model_settings(extractor_model, import_file, summary_model))
    prices = Prices(price_in, price_out) if price_in or price_out else None
    skipped = SkipLog(say)
    scans = ocr_settings(ocr, ocr_languages, ocr_pages, ocr_page_seconds)
    parsed = read_documents(documents, skipped, Limits(file_seconds, file_memory_mb, scans, whole_pages))
    plan = plan_build(out, parsed, chosen, open_encoder, prices)
    if as_json:
        print_json({"index": str(out), **asdict(plan), "skipped": skipped.lines})
    else:
        _show_plan(out, plan)
    _exit_if_skipped(skipped, strict)


def _show_plan(out: Path, plan: "BuildPlan") -> None:
    print(
        f"{out}: {plan.new:,} new, {plan.changed:,} changed, {plan.unchanged:,} unchanged, "
        f"{plan.waiting:,} left from an unfinished run"
    )
    print(f"to read: {plan.passages:,} passages; to encode: {plan.encoder_texts:,} texts, plus the summaries")
    cost = "" if plan.money is None else f", {plan.money:,.2f} at these prices"
    tokens = f"{plan.prompt_tokens:,} tokens in and {plan.reply_tokens:,} out"
    print(f"model calls: {plan.model_calls:,}, about {tokens}{cost}")
    if plan.not_counted:
        print(f"not counted: {plan.not_counted}")


def status_command(index: IndexFolder, as_json: AsJson = False) -> None:
    """Show what an index contains, its size, and whether the last run finished."""
    from graph.build.lifecycle import index_status
    from graph.store.sqlite import SQLITE_FILE

    status = index_status(index)
    if as_json:
        print_json(asdict(status))
        return
    version = f"generation {status.generation} ({status.identity[:8]})"
    print(f"{index}: {version}, encoder {status.encoder}, {status.disk_bytes / 1e6:,.1f} MB")
    print(", ".join(f"{count:,} {table}" for table, count in status.rows.items()))
    if status.store != SQLITE_FILE:
        print(f"rows in {status.store}")
    _show_readers(status.read_by, status.quarantined, status.dropped)
    if status.ann_recall:
        recalls = ", ".join(f"{recall:.3f} for {kind}" for kind, recall in status.ann_recall.items())
        print(f"share of the ten nearest neighbours that ANN indexes (approximate search) find: {recalls}")
    if status.changed_passages:
        changed = "1 passage has" if status.changed_passages == 1 else f"{status.changed_passages:,} passages have"
        print(
            f"{changed} been added or removed since the communities were detected; the communities are detected "
            f"again once this number exceeds a tenth of the passages, or when you run: modegraph compact {index}"
        )
    if status.unfinished:
        print(f"{status.unfinished} ({status.documents_to_extract:,} documents to extract)")


def _add_resume_and_retry(app: typer.Typer, open_model: "OpenModel") -> None:
    @app.command(cls=Command, rich_help_panel=INDEXING)
    def resume(
        index: IndexFolder,
        extractor_model: ExtractorModel = None,
        summary_model: SummaryModel = None,
        engine: EngineChoice = "local",
        ray_address: RayAddress = None,
        as_json: AsJson = False,
    ) -> None:
        """Finish an interrupted run, without repeating finished work.

        If the language model has a new address, give it with --extractor-model or --summary-model.
        """
        from graph.build.lifecycle import resume_build
        from graph.models.encoder import open_encoder
        from graph.workers.engines import open_workers

        settings = _stored_settings(index, extractor_model, summary_model)
        with open_workers(engine, ray_address) as workers:
            open_in_workers = partial(open_model, workers=workers)
            documents = len(resume_build(index, open_encoder, open_in_workers, settings, workers).document_sources)
        if as_json:
            print_json({"index": str(index), "documents": documents})
        else:
            print(f"{index}: finished, {documents:,} documents")
        _exit_if_quarantined(index)

    @app.command(cls=command(settings=INDEX_SETTINGS), rich_help_panel=INDEXING)
    def retry(
        index: IndexFolder,
        failed: Failed = False,
        extractor_model: ExtractorModel = None,
        summary_model: SummaryModel = None,
        settings: Set = None,
        as_json: AsJson = False,
    ) -> None:
        """Retry the passages that the language model could not read.

        If the language model has a new address, give it with --extractor-model or --summary-model.
        """
        from graph.build.lifecycle import index_status, retry_failed
        from graph.models.encoder import open_encoder

        if not failed:
            raise UserError("retry: no passages chosen", "--failed", f"modegraph retry {index} --failed")
        changed = _stored_settings(index, extractor_model, summary_model, settings)
        retried = retry_failed(index, open_encoder, open_model, changed)
        remaining = index_status(index).quarantined
        if as_json:
            print_json({"index": str(index), "retried": retried, "quarantined": remaining})
        else:
            print(f"{index}: {retried:,} passages retried, {remaining:,} still in quarantine")
        _exit_if_quarantined(index)


def _add_delete_and_repair(app: typer.Typer, open_model: "OpenModel") -> None:
    @app.command(cls=Command, rich_help_panel=INDEXING)
    def delete(index: IndexFolder, sources: Sources, as_json: AsJson = False) -> None:
        """Remove documents, and everything read only from them."""
        from graph.build.lifecycle import delete_documents
        from graph.models.encoder import open_encoder

        sources = list(dict.fromkeys(sources))
        remaining = len(delete_documents(index, sources, open_encoder, open_model).document_sources)
        if as_json:
            print_json({"index": str(index), "deleted": sources, "documents": remaining})
        else:
            print(f"{index}: {len(sources):,} removed, {remaining:,} documents left")

    @app.command(cls=Command, rich_help_panel=INDEXING)
    def repair(index: IndexFolder, as_json: AsJson = False) -> None:
        """Rebuild the damaged files of an index.

        Arrays are rebuilt from the rows in index.sqlite or the database. Intact vectors are reused; vectors in damaged files
        are computed again.
        """
        from graph.build.lifecycle import repair_index
        from graph.models.encoder import open_encoder

        damage = repair_index(index, open_encoder, open_model)
        if as_json:
            print_json({"index": str(index), "repaired": [asdict(found) for found in damage]})
        else:
            files = ", ".join(found.file for found in damage)
            print(f"{index}: repaired {files}" if damage else f"{index}: nothing to repair")


def _add_compact(app: typer.Typer, open_model: "OpenModel") -> None:
    @app.command(cls=Command, rich_help_panel=INDEXING)
    def compact(index: IndexFolder, as_json: AsJson = False) -> None:
        """Free the space of deleted rows and of the previous generation.

        Vector segments written by edits are merged into one. Communities that edits carried over (layers_on_edit = later) are
        detected again.
        """
        from graph.build.lifecycle import compact_index
        from graph.models.encoder import open_encoder

        freed = compact_index(index, open_encoder, open_model)
        if as_json:
            print_json({"index": str(index), "freed_bytes": freed})
        else:
            print(f"{index}: {freed / 1e6:,.1f} MB freed")


def verify_command(index: IndexFolder, as_json: AsJson = False) -> None:
    """Check the files of an index against their checksums.

    Exits with 1 when a file is damaged or the last run did not finish, and names the remedy. Rows in a database are not checked.
    """
    from graph.build.lifecycle import verify_index

    damage = verify_index(index)
    if as_json:
        print_json({"index": str(index), "damage": [asdict(found) for found in damage]})
    elif damage:
        for found in damage:
            print(f"{index}/{found.file}: {found.problem}; to fix it: {found.repair}")
    else:
        print(f"{index}: all files match their checksums")
    if damage:
        raise typer.Exit(1)


def _stored_settings(
    index: Path, extractor_model: str | None, summary_model: str | None, overrides: list[str] | None = None
) -> "IndexSettings":
    """The index's settings, overridden by the models' new addresses and `overrides`."""
    from graph.build.stores import model_settings, read_settings, settings_for

    read_settings(index)
    return settings_for(index, None, overrides or [], model_settings(extractor_model, None, summary_model))


def _show_readers(read_by: dict[str, int], quarantined: int, dropped: int) -> None:
    readers = ", ".join(f"{count:,} by {reader}" for reader, count in read_by.items())
    print(f"passages read: {readers or 'none'}; {quarantined:,} in quarantine, {dropped:,} parts of replies dropped")


def _exit_if_skipped(skipped: "SkipLog", strict: bool) -> None:
    """Print how many files, rows and scans were skipped, if any; with --strict, exit with status 1."""
    if count := len(skipped.lines):
        say(f"{count:,} skipped, for the reasons above")
        if strict:
            raise typer.Exit(1)


def _exit_if_quarantined(index: Path) -> None:
    """Exit with status 1 and a warning when more passages are in quarantine than the settings allow."""
    from graph.build.lifecycle import quarantine_warning

    if warning := quarantine_warning(index):
        say(warning)
        raise typer.Exit(1)

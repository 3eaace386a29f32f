"""An index as an object: make or open it, retrieve from it, ask it questions, edit and inspect it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from graph.answer.support import open_verifier
from graph.build.build import BuildReport, Edit, build_index, edit_index
from graph.build.lifecycle import IndexStatus, delete_documents, index_status, quarantine_warning
from graph.build.stores import model_settings, settings_for
from graph.config import parse_settings
from graph.documents.parse.formats import Limits
from graph.documents.parse.ocr import Ocr, ocr_settings
from graph.documents.read import present_in
from graph.errors import UserError
from graph.index.index import FreshIndex, row_of
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.console import counted
from graph.shared.home import local_path
from graph.shared.modes import ABSTAIN_AT, DEFAULT_MODE, Mode
from graph.types import LanguageModel
from modegraph.answers import Answer, AnswerStream, AsyncAnswerStream, Evidence, public_answer, public_evidence
from modegraph.arguments import (
    Documents,
    FrameKind,
    Model,
    documents_of,
    frames_of,
    model_of,
    plain,
    public_call,
    rows_of,
    skip_log,
)
from modegraph.notebook import index_html
from modegraph.runs import Run
from serve.engines import open_model as open_engine
from serve.pipeline import answer_from

if TYPE_CHECKING:
    import graph.index.index
    from graph.explain import Explanation

MAX_ANSWER_TOKENS = 256
LIMITS, OCR = Limits(), Ocr()


class Index:
    """An open index: any number of threads can read it while it is changed, by this object or by another process.

    Each call reads one complete generation, the current one when the call begins; later calls see the changes made since.
    """

    def __init__(self, folder: str | Path) -> None:
        from graph.models.encoder import open_encoder

        self.folder = local_path(folder)
        self._fresh = FreshIndex(self.folder, open_encoder)

    def retrieve(
        self,
        question: str,
        *,
        mode: Mode = DEFAULT_MODE,
        top_k: int = 5,
        where: str | Sequence[str] = (),
        model: Model | None = None,
        **settings: Any,
    ) -> Evidence:
        """The evidence for a question; a language model is only called if one is given and the mode can use it.

        `where` contains conditions on documents ("year>=1990"). Further settings: unit, selector, reranker, layers,
        suggestions, max_context_tokens, and abstain. With `abstain`, the evidence contains the probability that the documents do not answer
        the question (`absence`); if it reaches `abstain`, `ask` abstains without calling the model. UserError for an unknown setting, an
        empty question, and conditions that no document meets.
        """
        chosen = _settings_of(RetrieveSettings, "retrieve", mode, top_k, where, settings)
        with public_call():
            language_model = None if model is None else model_of(model)
            return public_evidence(retrieve(self.current(), question, chosen, language_model))

    def explain(
        self, question: str, passage: str, *, mode: Mode = DEFAULT_MODE, top_k: int = 5, where: str | Sequence[str] = ()
    ) -> Explanation:
        """Why a question retrieves a passage, or does not: its rank and score in `mode` and in every other mode except `plan`, and the paths to it.

        No model is called. `passage` is a passage's `id`, its first digits, or the source of a document with one passage. UserError as in
        `retrieve`, and if `passage` names no passage or several.
        """
        from graph.explain import explain_passage

        chosen = _settings_of(RetrieveSettings, "explain", mode, top_k, where, {})
        with public_call():
            return explain_passage(self.current(), question, passage, chosen)

    def ask(
        self,
        question: str,
        *,
        model: Model,
        mode: Mode = DEFAULT_MODE,
        top_k: int = 5,
        where: str | Sequence[str] = (),
        max_answer_tokens: int = MAX_ANSWER_TOKENS,
        verifier: str | Path | Run | None = "",
        **settings: Any,
    ) -> Answer:
        """A cited answer from the evidence that `retrieve` finds with the same settings; every citation is checked.

        If the documents do not cover the question (probability of absence at least `abstain`, by default .9), the answer is “not in
        the documents” and the model is not called.

        `verifier` finds sentences that the passages do not support (`unsupported`), and names those that it cannot judge
        (`not_checked`): a folder or hub name, "" for the one included in modegraph, None for none.

        UserError as in `retrieve`, for a model that cannot be opened or refuses the request, and when the model becomes unavailable.
        """
        given = {"abstain": ABSTAIN_AT, "max_answer_tokens": max_answer_tokens, **settings}
        chosen = _settings_of(AskSettings, "ask", mode, top_k, where, given)
        with public_call():
            opened_verifier = open_verifier(str(verifier)) if verifier is not None else None
            language_model = model_of(model)
            evidence = self._evidence(chosen, question, language_model)
            limits = (chosen.top_k, chosen.max_context_tokens, language_model, chosen.max_answer_tokens)
            return public_answer(answer_from(evidence, *limits, opened_verifier))

    def ask_stream(self, question: str, *, model: Model, **settings: Any) -> AnswerStream:
        """Like `ask`, but streamed: iterate over the pieces, then read `answer`. Needs the extra `serve`."""
        return AnswerStream(self.astream(question, model=model, **settings))

    def astream(
        self,
        question: str,
        *,
        model: Model,
        mode: Mode = DEFAULT_MODE,
        top_k: int = 5,
        where: str | Sequence[str] = (),
        max_answer_tokens: int = MAX_ANSWER_TOKENS,
        verifier: str | Path | Run | None = "",
        **settings: Any,
    ) -> AsyncAnswerStream:
        """Like `ask_stream`, for use in an event loop: `async for piece in index.astream(…)`."""
        given = {"abstain": ABSTAIN_AT, "max_answer_tokens": max_answer_tokens, **settings}
        chosen = _settings_of(AskSettings, "astream", mode, top_k, where, given)
        with public_call():
            from modegraph.streaming import answer_parts

            opened_verifier = open_verifier(str(verifier)) if verifier is not None else None
        limits = (chosen.top_k, chosen.max_context_tokens, chosen.max_answer_tokens, opened_verifier)
        return AsyncAnswerStream(partial(answer_parts, model, partial(self._evidence, chosen, question), *limits))

    def add(
        self,
        documents: Documents,
        *,
        file_seconds: float = LIMITS.seconds,
        file_memory_mb: int = LIMITS.memory_mb,
        whole_pages: bool = LIMITS.whole_pages,
        ocr: str | None = None,
        ocr_languages: str = OCR.languages,
        ocr_pages: int = OCR.pages,
        ocr_page_seconds: float = OCR.page_seconds,
        progress: bool = False,
    ) -> BuildReport:
        """Add documents, or replace those with the same source; the report says how many were new and what the index contains.

        Input is accepted or skipped as in `modegraph.index`, with the same options for reading files; the index does not store these options,
        so give the ones that were used to make it. The call waits while another writer is active. UserError for documents that cannot be
        read, leaving the index unchanged; and, after the documents are added, if a larger share of passages than `max_failed_share` could
        not be read.
        """
        scans = ocr_settings(ocr, ocr_languages, ocr_pages, ocr_page_seconds)
        limits = Limits(file_seconds, file_memory_mb, scans, whole_pages)
        with public_call(progress):
            new_documents = list(documents_of(documents, limits, skip_log()))
            results = edit_index(self.folder, lambda: [Edit(add=new_documents)], self._fresh.open_encoder, open_engine)
        _raise_if_too_many_failed(self.folder)
        return results[0].report

    def delete(self, *sources: str, progress: bool = False) -> None:
        """Remove documents by source, with everything derived from them alone; UserError, and nothing is removed, if a source is unknown."""
        for source in sources:
            if not isinstance(source, str):
                remedy = "for a list, write delete(*sources)"
                raise UserError(f"delete: {source!r:.80}", "the sources of documents, as text", remedy)
        with public_call(progress):
            delete_documents(self.folder, sources, self._fresh.open_encoder, open_engine)

    def current(self) -> graph.index.index.Index:
        """The current generation as the internal class of graph/, for work beyond the public API; unlike that API, it may change."""
        return self._fresh.get()

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of all documents, sorted."""
        return self.current().sources()

    @property
    def generation(self) -> int:
        """How many times the index has been written."""
        return self.current().manifest.generation

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the index."""
        return self.current().settings.model_dump()

    def status(self) -> IndexStatus:
        """Counts, size on disk, and whether the last run finished."""
        return index_status(self.folder)

    def to_frames(self, kind: FrameKind = "pandas") -> dict[str, Any]:
        """The index as tables, by name: documents, passages, propositions and so on, with their vectors, then occurrences and edges."""
        from graph.export.graph_files import index_tables

        return frames_of(index_tables(self.current()), kind)

    def __len__(self) -> int:
        return len(self.current().data.document_sources)

    def __contains__(self, source: object) -> bool:
        return isinstance(source, str) and row_of(self.current().data, "document", source) is not None

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, {counted(len(self), 'document')}, generation {self.generation})"

    def _repr_html_(self) -> str:
        return index_html(self.status())

    def _evidence(self, chosen: RetrieveSettings, question: str, model: LanguageModel) -> Evidence:
        evidence = public_evidence(retrieve(self.current(), question, chosen, model))
        if stopped := evidence.trace.stopped:
            found = f"the retrieval stopped before it was done: {stopped}"
            raise UserError(found, "a model that stays available", "ask again, or call retrieve to get what was found")
        return evidence


def index(
    documents: Documents,
    out: str | Path,
    *,
    config: str | Path | None = None,
    extractor_model: str | None = None,
    import_file: str | Path | None = None,
    summary_model: str | None = None,
    file_seconds: float = LIMITS.seconds,
    file_memory_mb: int = LIMITS.memory_mb,
    whole_pages: bool = LIMITS.whole_pages,
    ocr: str | None = None,
    ocr_languages: str = OCR.languages,
    ocr_pages: int = OCR.pages,
    ocr_page_seconds: float = OCR.page_seconds,
    strict: bool = False,
    delete_missing: bool = False,
    progress: bool = False,
    store: str | None = None,
    **settings: Any,
) -> Index:
    """Read documents into the index in `out`, creating or extending it, and open it.

    `documents` is a folder, a file or a `.jsonl`; or `Document`s, dicts with `id` and `text` (optionally `title` and `metadata`), or rows of a table.
    `delete_missing` deletes the documents of the index that `documents` does not contain.
    `store` puts the rows of a new index in PostgreSQL (postgresql://USER@HOST/DATABASE).
    `whole_pages` also reads the text around the main content of HTML pages: navigation, footers, cookie notices.
    `ocr="tesseract"` reads PDF pages that have no text; tesseract and pdftoppm must be installed.
    Settings are those of `modegraph index --set` (encoder=, max_passage_tokens=, …) and override those of the YAML file `config`.
    Files of a folder that cannot be read are skipped, each with a warning from the logger "modegraph"; with `strict`, UserError names them
    after the others are indexed. UserError also for other unreadable input (the index is then unchanged), and, after indexing, if too many passages failed.
    """
    from graph.models.encoder import open_encoder, prepare_for_questions

    folder = local_path(out)
    with public_call(progress):
        if store is not None:
            from graph.postgres.schema import place_in_database

            place_in_database(folder, store)
        models = model_settings(extractor_model, Path(import_file) if import_file else None, summary_model)
        file = Path(config) if config is not None else None
        chosen = settings_for(folder, file, (), {**settings, **models}, "index")
        skipped = skip_log()
        scans = ocr_settings(ocr, ocr_languages, ocr_pages, ocr_page_seconds)
        limits, keep = Limits(file_seconds, file_memory_mb, scans, whole_pages), None
        if delete_missing and isinstance(documents, str | Path):
            keep = present_in(Path(documents))
        elif delete_missing:
            documents = rows = list(rows_of(documents))
            keep = {str(row.get("id")) for row in rows}.__contains__
        build_index(folder, documents_of(documents, limits, skipped), chosen, open_encoder, open_engine, keep=keep)
        prepare_for_questions(chosen.encoder)
    _raise_if_too_many_failed(folder)
    if strict and skipped.lines:
        found = f"{len(skipped.lines)} skipped: {' | '.join(skipped.lines)}"
        raise UserError(found, "only readable documents (strict)", "repair or remove these, or leave out strict")
    return Index(folder)


def open(folder: str | Path) -> Index:  # noqa: A001
    """Open the index in `folder`; UserError when there is none."""
    return Index(folder)


class AskSettings(RetrieveSettings):
    """How a question is answered: how its evidence is retrieved, and how long its answer may be."""

    max_answer_tokens: int = Field(MAX_ANSWER_TOKENS, ge=1, description="longest answer, in tokens")


S = TypeVar("S", bound=RetrieveSettings)


def _settings_of(
    kind: type[S], call: str, mode: Mode, top_k: int, where: str | Sequence[str], settings: dict[str, Any]
) -> S:
    conditions = (where,) if isinstance(where, str) else tuple(where)
    return parse_settings(kind, plain({"mode": mode, "top_k": top_k, "where": conditions, **settings}), call)


def _raise_if_too_many_failed(folder: Path) -> None:
    """UserError if more passages failed than the index's settings allow; the others are in the index."""
    if lost := quarantine_warning(folder):
        raise UserError(lost, "", "")

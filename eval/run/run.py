"""A run of `modegraph eval run`: list the cells, fill the missing ones, and write the report.

To fill a cell: make or open its index, retrieve for every question, and answer with its model, if it has one. Each cell is written as soon as it is filled.
Within a task, cells with the same index are filled one after another, and among these, cells with the same model.
Legend: N texts, D dims."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from eval.metrics.grounding import grounding_by_encoder
from eval.metrics.registry import BY_ENCODER, SUPPORTED, Output, check_answer, find_metric, score_output
from eval.reading import greedy_completions
from eval.retrieval import ranked_sources, warm_up
from eval.run.cells import fill_time_metrics, list_cells, write_cell
from eval.run.config import Cell, CellContent, Failure, MatrixSettings, QuestionResult, TaskData
from eval.run.run_report import RunReport, count_layers, make_report, write_report
from eval.tasks.score_file import output_from_text
from graph.answer.context import build_context, token_budget
from graph.answer.support import SupportChecker, open_verifier
from graph.build.build import build_index
from graph.config import load_settings
from graph.documents.questions import Question, check_gold
from graph.documents.read import read_documents
from graph.errors import UserError
from graph.index.index import Index, open_index
from graph.models.encoder import open_encoder
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.console import duration, say
from graph.shared.home import revision
from graph.shared.progress import note_progress, read_progress, report_progress
from graph.store.manifest import MANIFEST
from graph.types import (
    Completion,
    Encoder,
    Evidence,
    Excerpt,
    Floats,
    LanguageModel,
    OpenEncoder,
    OpenModel,
)
from serve.pipeline import NOTHING_FOUND

QUERIES_AT_ONCE, PROMPTS_AT_ONCE = 32, 64
HELPER = "helper.sqlite"
"""The file of the ledger with the calls of the helper, the model that retrieval modes call."""


@dataclass(frozen=True)
class RunContext:
    """The context for filling cells: all cells of the run, its settings, and functions that open encoders and models."""

    out: Path
    cells: tuple[Cell, ...]
    settings: MatrixSettings
    revision: str
    open_encoder: OpenEncoder
    open_model: OpenModel


def run_matrix(
    config: Path, overrides: Sequence[str], out: Path, open_model: OpenModel, encoder: OpenEncoder = open_encoder
) -> RunReport:
    """Fill the cells of `config` in `out` and write the report; an override `data=` is relative to the working directory. UserError for invalid input."""
    relative_to_here = [
        f"data={Path(each.removeprefix('data=')).expanduser().absolute()}" if each.startswith("data=") else each
        for each in overrides
    ]
    settings = load_settings(MatrixSettings, config, relative_to_here)
    out.mkdir(parents=True, exist_ok=True)
    with report_progress(out, {"stage": "eval", "settings": settings.recorded()}):
        cells = list_cells(settings, config.parent, out, encoder)
        run = RunContext(out, cells, settings, revision(), encoder, open_model)
        found = sum(cell.file.is_file() for cell in cells)
        failures = fill_cells(run)
        report = make_report(cells, settings, run.revision, found, failures)
        write_report(report, out)
    return report


def fill_cells(run: RunContext) -> tuple[Failure, ...]:
    """Fill the missing cells; one that cannot be filled becomes a Failure, and the others are still filled."""
    missing = [cell for cell in run.cells if not cell.file.is_file()]
    say(f"{len(run.cells):,} cells: {len(run.cells) - len(missing):,} already filled, {len(missing):,} to fill")
    helper = run.open_model(run.settings.helper, run.out / HELPER) if run.settings.helper and missing else None
    failures: list[Failure] = []
    for task_cells in _groups(missing, lambda cell: cell.task.name):
        open_cached_encoder = cache(lambda spec: CachingEncoder(run.open_encoder(spec)))
        for index_cells in _groups(task_cells, lambda cell: cell.index):
            with _record_failures(failures, index_cells):
                index = _index_of(index_cells[0], run, open_cached_encoder)
                for model_cells in _groups(index_cells, lambda cell: cell.system.model):
                    with _record_failures(failures, model_cells):
                        _fill_by_one_model(index, model_cells, helper, run, failures)
    return tuple(failures)


def _groups(cells: Sequence[Cell], key: Callable[[Cell], object]) -> list[list[Cell]]:
    """The cells grouped by key, in the order in which the keys first occur."""
    groups: dict[object, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return list(groups.values())


@contextmanager
def _record_failures(failures: list[Failure], cells: Sequence[Cell]) -> Iterator[None]:
    """Record a UserError raised in the block as a failure of `cells`, and report it."""
    try:
        yield
    except UserError as problem:
        for cell in cells:
            say(f"{cell.task.name}: {cell.system.name} failed: {problem}")
            failures.append(Failure(cell.system.name, cell.task.name, str(problem)))


class CachingEncoder:
    """An encoder that encodes each text of a corpus once, however many indexes contain the text."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._vectors: dict[str, Floats] = {}
        self.fingerprint, self.prompts = encoder.fingerprint, encoder.prompts
        self.encode_queries, self.count_tokens = encoder.encode_queries, encoder.count_tokens

    def encode(self, texts: Sequence[str]) -> Floats:
        """N texts -> float32[N, D]; only texts that are not cached go to the encoder."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        vectors_ND = self._encoder.encode(new)
        self._vectors.update(zip(new, vectors_ND, strict=True))
        return np.stack([self._vectors[text] for text in texts]) if texts else vectors_ND


def _index_of(cell: Cell, run: RunContext, open_cached_encoder: OpenEncoder) -> Index:
    """The index of a cell, made if it is missing or unfinished."""
    if not (cell.index / MANIFEST).is_file():
        start = time.perf_counter()
        cell.index.parent.mkdir(parents=True, exist_ok=True)
        documents = read_documents(cell.task.documents, say)
        build_index(cell.index, documents, cell.system.index, open_cached_encoder, run.open_model)
        say(f"{cell.task.name}: indexed ({time.perf_counter() - start:.1f} s)")
    return open_index(cell.index, run.open_encoder)


def _fill_by_one_model(
    index: Index, cells: Sequence[Cell], helper: LanguageModel | None, run: RunContext, failures: list[Failure]
) -> None:
    """Fill the cells of one model, which is released before the next one is opened."""
    spec = cells[0].system.model
    model = run.open_model(spec) if spec else None
    for cell in cells:
        with _record_failures(failures, [cell]):
            start = time.perf_counter()
            results = tuple(results_of(index, cell, model, helper, run))
            seconds = time.perf_counter() - start
            write_cell(cell, CellContent(run.revision, results), seconds)
            say(f"{cell.task.name}: {cell.system.name} done ({seconds:.1f} s; {_note_filled(run)})")


def _note_filled(run: RunContext) -> str:
    """Record how many cells are filled, and return the count with the estimated time left."""
    filled = sum(cell.file.is_file() for cell in run.cells)
    note_progress(run.out, filled, len(run.cells))
    progress = read_progress(run.out)
    left = progress.seconds_left if progress else None
    return f"{filled:,} of {len(run.cells):,} cells" + (f", about {duration(left)} left" if left else "")


def results_of(
    index: Index, cell: Cell, model: LanguageModel | None, helper: LanguageModel | None, run: RunContext
) -> Iterator[QuestionResult]:
    """A system's results for every question of its task, in order."""
    task, settings = cell.task, cell.system.retrieve
    check_gold(task.questions, index.sources())
    if settings is not None:
        all_evidence = _retrieve_evidence(index, task.questions, settings, helper)
    else:
        all_evidence = [Evidence(question.text) for question in task.questions]
    for first in range(0, len(task.questions), PROMPTS_AT_ONCE):
        batch = slice(first, first + PROMPTS_AT_ONCE)
        questions, evidence = task.questions[batch], all_evidence[batch]
        contexts = [_context_of(one, settings, model) for one in evidence]
        completions: Sequence[Completion | None] = [None] * len(questions)
        seconds = 0.0
        if model is not None:
            start = time.perf_counter()
            tokens, closed_book = run.settings.max_answer_tokens, settings is None
            completions = greedy_completions(model, questions, contexts, model.form, tokens, closed_book)
            seconds = (time.perf_counter() - start) / len(questions)
        for question, one, context, completion in zip(questions, evidence, contexts, completions, strict=True):
            result = _result(index, cell, question, one, context, completion)
            if result.text is not None and run.settings.empty_answers == "refuse":
                check_answer(question, result.text)
            yield replace(result, answer_seconds=seconds)


def _retrieve_evidence(
    index: Index, questions: Sequence[Question], settings: RetrieveSettings, helper: LanguageModel | None
) -> list[Evidence]:
    """Evidence for every question."""
    warm_up(index, questions[0].text, settings)
    all_evidence: list[Evidence] = []
    for start in range(0, len(questions), QUERIES_AT_ONCE):
        texts = [question.text for question in questions[start : start + QUERIES_AT_ONCE]]
        all_evidence += retrieve_many(index, texts, settings, helper)
    for question, evidence in zip(questions, all_evidence, strict=True):
        if evidence.trace.stopped:
            found = f"question {question.id!r}: the retrieval stopped before it was done ({evidence.trace.stopped})"
            raise UserError(found, "a model that stays available", "run again")
    return all_evidence


def _context_of(
    evidence: Evidence, settings: RetrieveSettings | None, model: LanguageModel | None
) -> tuple[Excerpt, ...]:
    if settings is None:
        return ()
    budget = token_budget(settings.max_context_tokens, model.count_tokens) if model is not None else None
    return build_context(evidence, settings.top_k, budget)


def _result(
    index: Index,
    cell: Cell,
    question: Question,
    evidence: Evidence,
    context: Sequence[Excerpt],
    completion: Completion | None,
) -> QuestionResult:
    trace, shown = evidence.trace, question.id in cell.task.shown
    output = output_from_text(completion.text) if completion is not None else Output()
    if cell.system.retrieve is not None:
        output = replace(output, context=tuple(excerpt.text for excerpt in context))
    return QuestionResult(
        id=question.id,
        ranked=ranked_sources(evidence),
        answer=output.answer,
        text=output.text,
        values=_values(index, cell.task, question, output, context),
        seconds=trace.seconds,
        encoder_seconds=trace.encoder_seconds,
        answer_seconds=0.0,
        prompt_tokens=trace.prompt_tokens + (completion.prompt_tokens if completion is not None else 0),
        completion_tokens=trace.completion_tokens + (completion.completion_tokens if completion is not None else 0),
        calls=trace.model_calls + (completion not in (None, NOTHING_FOUND)),
        replayed=trace.replayed_calls,
        layers=count_layers(evidence),
        evidence=tuple((excerpt.title, excerpt.source, excerpt.text) for excerpt in context) if shown else (),
        steps=trace.steps if shown else (),
    )


def _values(
    index: Index, task: TaskData, question: Question, output: Output, context: Sequence[Excerpt]
) -> dict[str, float | None]:
    """The metrics that need the texts; grounding and support are computed only if the task's metrics include them and a model answered."""
    names = fill_time_metrics(task.metrics)
    if output.text is not None and any(name.endswith(BY_ENCODER) for name in names):
        passages, encode = output.context, index.encode_queries
        grounding = grounding_by_encoder(question.text, output.text, question.answers, passages or (), encode)
        without_passages = {"answer_relevance": grounding.answer_relevance}
        output = replace(output, grounding=without_passages if passages is None else vars(grounding))
    if output.text is not None and SUPPORTED in names:
        supported = SupportChecker(context, open_verifier(""), question.text).share_supported(output.text)
        output = replace(output, grounding={**output.grounding, SUPPORTED: supported})
    return {name: score_output(find_metric(name), question, output) for name in names}

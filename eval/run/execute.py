"""Fill cells: retrieve for every question, then answer with every model; each finished cell is written at once, several indexes at a time in separate processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from eval.metrics.grounding import grounding_by_encoder
from eval.metrics.registry import BY_ENCODER, SUPPORTED, Output, check_answer, find_metric, score_output
from eval.retrieval import ranked_sources
from eval.run.cells import cell_file, fill_time_metrics, groups_of, was_filled, write_cell
from eval.run.config import Cell, Failure, Group, Matrix, Outcome, QuestionResult, TaskData
from eval.run.indexes import group_index
from eval.run.scores import count_layers
from eval.run.workers import busy, join_workers, share_cores, start_worker, threads_each
from eval.tasks.score_file import output_from_text
from graph.answer.context import build_context, token_budget
from graph.answer.prompt import answer_messages
from graph.answer.support import SupportChecker
from graph.answer.verifier import open_verifier
from graph.documents.questions import Question
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.console import duration, say
from graph.shared.progress import note_progress, read_progress
from graph.types import Completion, CompletionRequest, Evidence, Excerpt, LanguageModel, OpenEncoder, OpenModel

QUERIES_AT_ONCE, PROMPTS_AT_ONCE = 32, 64


@dataclass(frozen=True)
class RunContext:
    """What filling a cell needs: how to open encoders and models, the settings shared by all cells, and the files of all cells."""

    out: Path
    open_encoder: OpenEncoder
    open_model: OpenModel
    helper: str
    max_answer_tokens: int
    empty_is_wrong: bool
    files: tuple[Path, ...]


def fill_group(group: Group, run: RunContext) -> list[Failure]:
    """Fill the group's missing cells; a cell that cannot be filled becomes a Failure, and the others continue."""
    try:
        index = group_index(group.cells[0], group.index_folder, run.open_encoder, run.open_model)
    except UserError as problem:
        return [Failure(cell.system.name, cell.task.name, str(problem)) for cell in group.cells]
    helper = run.open_model(run.helper, run.out / "helper.sqlite") if run.helper else None
    failures: list[Failure] = []
    for model in dict.fromkeys(cell.system.model for cell in group.cells):
        cells = [cell for cell in group.cells if cell.system.model == model]
        failures += _fill_cells(index, cells, helper, run)
    return failures


def _fill_cells(index: Index, cells: Sequence[Cell], helper: LanguageModel | None, run: RunContext) -> list[Failure]:
    """Fill the cells of one model, which is released before the next one is opened."""
    model = cells[0].system.model
    try:
        opened = run.open_model(model) if model else None
    except UserError as problem:
        return [Failure(cell.system.name, cell.task.name, str(problem)) for cell in cells]
    failures: list[Failure] = []
    for cell in cells:
        started = time.perf_counter()
        try:
            results = list(results_of(index, cell, opened, helper, run))
        except UserError as problem:
            failures.append(Failure(cell.system.name, cell.task.name, str(problem)))
            continue
        write_cell(run.out, cell, results, time.perf_counter() - started)
        say(f"{cell.task.name}: {cell.system.name} done ({time.perf_counter() - started:.1f} s{_note_filled(run)})")
    return failures


def _note_filled(run: RunContext) -> str:
    """Record how many cells are filled, by all workers, and return that with the estimated time left."""
    filled = sum(file.is_file() for file in run.files)
    note_progress(run.out, filled, len(run.files))
    under_way = read_progress(run.out)
    left = under_way.seconds_left if under_way else None
    return f"; {filled:,} of {len(run.files):,} cells" + (f", about {duration(left)} left" if left else "")


def results_of(
    index: Index, cell: Cell, model: LanguageModel | None, helper: LanguageModel | None, run: RunContext
) -> Iterator[QuestionResult]:
    """A system's results for every question of its task, in order."""
    task, settings = cell.task, cell.system.retrieve
    _check_gold_indexed(index, task)
    evidences = (
        _retrieved(index, task.questions, settings, helper) if settings is not None else _no_evidence(task.questions)
    )
    for start in range(0, len(task.questions), PROMPTS_AT_ONCE):
        batch = slice(start, start + PROMPTS_AT_ONCE)
        questions, evidence = task.questions[batch], evidences[batch]
        contexts = [_context_of(one, settings, model) for one in evidence]
        started = time.perf_counter()
        completions = _answers(model, questions, contexts, run.max_answer_tokens) if model is not None else None
        seconds = (time.perf_counter() - started) / len(questions) if completions is not None else 0.0
        for row, (question, one, context) in enumerate(zip(questions, evidence, contexts, strict=True)):
            result = _result(index, task, question, one, context, completions[row] if completions is not None else None)
            if result.text is not None and not run.empty_is_wrong:
                check_answer(question, result.text)
            yield replace(result, answer_seconds=seconds)


def _retrieved(
    index: Index, questions: Sequence[Question], settings: RetrieveSettings, helper: LanguageModel | None
) -> list[Evidence]:
    """Evidence for every question. A first question warms up the encoder before the clocks start, so that loading it is billed to no question."""
    retrieve_many(index, [questions[0].text], settings, helper)
    evidences: list[Evidence] = []
    for start in range(0, len(questions), QUERIES_AT_ONCE):
        texts = [question.text for question in questions[start : start + QUERIES_AT_ONCE]]
        evidences += retrieve_many(index, texts, settings, helper)
    stopped = [one.trace.stopped for one in evidences if one.trace.stopped]
    if stopped:
        raise UserError(f"a retrieval stopped before it was done ({stopped[0]})", "a model that answers", "run again")
    return evidences


def _no_evidence(questions: Sequence[Question]) -> list[Evidence]:
    return [Evidence(question.text) for question in questions]


def _context_of(
    evidence: Evidence, settings: RetrieveSettings | None, model: LanguageModel | None
) -> tuple[Excerpt, ...]:
    if settings is None:
        return ()
    budget = token_budget(settings.max_context_tokens, model.count_tokens) if model is not None else None
    return build_context(evidence, settings.top_k, budget)


def _answers(
    model: LanguageModel, questions: Sequence[Question], contexts: Sequence[tuple[Excerpt, ...]], max_tokens: int
) -> list[Completion]:
    """Greedy answers; UserError for a request that the server refuses."""
    pairs = zip(questions, contexts, strict=True)
    completions = model.complete(
        [CompletionRequest(answer_messages(q.text, context, model.form), max_tokens) for q, context in pairs]
    )
    for question, completion in zip(questions, completions, strict=True):
        if completion.finish_reason == "refused":
            found = f"question {question.id!r}: refused ({completion.text})"
            raise UserError(found, "a request that the server accepts", "lower top_k, or set max_context_tokens")
    return completions


def _result(
    index: Index,
    task: TaskData,
    question: Question,
    evidence: Evidence,
    context: Sequence[Excerpt],
    completion: Completion | None,
) -> QuestionResult:
    trace, texts = evidence.trace, tuple(excerpt.text for excerpt in context)
    output = output_from_text(completion.text) if completion is not None else Output()
    shown = question.id in task.shown
    return QuestionResult(
        id=question.id,
        ranked=ranked_sources(evidence),
        answer=output.answer,
        text=output.text,
        values=_values(index, task, question, replace(output, context=texts), context),
        seconds=trace.seconds,
        encoder_seconds=trace.encoder_seconds,
        answer_seconds=0.0,
        prompt_tokens=trace.prompt_tokens + (completion.prompt_tokens if completion is not None else 0),
        completion_tokens=trace.completion_tokens + (completion.completion_tokens if completion is not None else 0),
        calls=trace.model_calls + (completion is not None),
        replayed=trace.replayed_calls,
        untimed=trace.untimed_calls,
        layers=count_layers(evidence),
        evidence=tuple((excerpt.title, excerpt.source, excerpt.text) for excerpt in context) if shown else (),
        steps=trace.steps if shown else (),
    )


def _values(
    index: Index, task: TaskData, question: Question, output: Output, context: Sequence[Excerpt]
) -> dict[str, float | None]:
    """The metrics that need the texts; grounding is measured only if one of its figures is requested, and only of answers."""
    names = fill_time_metrics(task.metrics)
    if output.text is not None and any(name.endswith(BY_ENCODER) for name in names):
        grounding = grounding_by_encoder(
            question.text, output.text, question.answers, output.context, index.encode_queries
        )
        output = replace(output, grounding=vars(grounding))
    if output.text is not None and SUPPORTED in names:
        supported = SupportChecker(context, open_verifier(""), question.text).share_supported(output.text)
        output = replace(output, grounding={**output.grounding, SUPPORTED: supported})
    return {name: score_output(find_metric(name), question, output) for name in names}


def _check_gold_indexed(index: Index, task: TaskData) -> None:
    """UserError when a gold document is not in the index: the figures would blame the retriever for it."""
    gold = {source for question in task.questions for source in question.gold_sources}
    missing = sorted(gold - set(index.sources()))
    if missing:
        found = f"{len(missing):,} gold documents are not in the index, {missing[0]!r} first"
        raise UserError(found, "the documents that the questions ask about", f"fix tasks.{task.name}.documents")


def missing_cells(group: Group, out: Path) -> Group:
    """The group without the cells that are finished."""
    return replace(group, cells=tuple(cell for cell in group.cells if not cell_file(out, cell).is_file()))


def fill_cells(matrix: Matrix, run: RunContext, workers: int) -> Outcome:
    """Fill the missing cells. With several workers, each process fills one group of cells that share an index at a time."""
    groups = [
        unfinished for group in groups_of(matrix.cells, run.out) if (unfinished := missing_cells(group, run.out)).cells
    ]
    left = [cell for group in groups for cell in group.cells]
    again = {(cell.system.name, cell.task.name) for cell in left if was_filled(run.out, cell)}
    changed = f" ({len(again):,} of them again: the code has changed)" if again else ""
    say(
        f"{len(matrix.cells):,} cells: {len(matrix.cells) - len(left):,} are there already, {len(left):,} to fill{changed}"
    )
    failures: list[Failure] = []
    for group_failures in (
        _in_processes(groups, run, workers) if min(workers, len(groups)) > 1 else _in_this_process(groups, run)
    ):
        failures += group_failures
    again -= {(failure.system, failure.task) for failure in failures}
    return Outcome(len(matrix.cells) - len(left), len(left) - len(failures), len(again), tuple(failures))


def _in_this_process(groups: Sequence[Group], run: RunContext) -> Iterator[list[Failure]]:
    for group in groups:
        yield fill_group(group, run)


def _in_processes(groups: Sequence[Group], run: RunContext, workers: int) -> Iterator[list[Failure]]:
    count = min(workers, len(groups))
    context = multiprocessing.get_context("spawn")
    at_work = context.Value("i", 0)
    with threads_each(count), ProcessPoolExecutor(count, context, _start_worker, (at_work,)) as pool:
        for done in as_completed([pool.submit(_fill_as_worker, group, run) for group in groups]):
            yield done.result()


def _fill_as_worker(group: Group, run: RunContext) -> list[Failure]:
    with busy():
        share_cores()
        return fill_group(group, run)


def _start_worker(at_work: Synchronized[int]) -> None:
    """A worker shares the cores with the others."""
    join_workers(at_work)
    start_worker()

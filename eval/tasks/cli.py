"""The benchmark commands: `modegraph eval tasks`, `modegraph eval score` and `modegraph eval abstract`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.errors import UserError
from graph.shared.cli_app import INPUT, OUTPUT, Command, option
from graph.shared.cli_options import AsJson, IndexFolder, Model, Out, SomeOut, SomeSplit
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from eval.tasks.sets.base import LoadedTask
    from graph.types import OpenModel

SOURCE = option("PATH", INPUT, "The task's data: a file, a folder, or `hub` to download them.")
TaskName = Annotated[str | None, typer.Argument(metavar="[TASK]", help="A task; without one, all are listed.")]
Task = Annotated[str, typer.Argument(metavar="TASK", help="A task that `modegraph eval tasks` lists.")]
Predictions = Annotated[Path, option("FILE", INPUT, 'Lines of {"id", "answer"}, one for every question.')]
_METRICS = "Answer metric; by default, the task's. Repeatable."
Metrics = Annotated[list[str] | None, option("--metric NAME", OUTPUT, _METRICS)]
EmptyIsWrong = Annotated[bool, option("--empty-is-wrong", INPUT, "Score an empty prediction 0 instead of refusing it.")]
Users = Annotated[int, option("N", OUTPUT, "Users to invent.", min=1, max=20)]
TasksPerUser = Annotated[int, option("N", OUTPUT, "Tasks to invent for each user.", min=1, max=20)]
QuestionsPerTask = Annotated[int, option("N", OUTPUT, "Questions to write for each task.", min=1, max=20)]


def register(commands: typer.Typer, open_model: OpenModel) -> None:
    commands.command("tasks", cls=Command)(tasks)
    commands.command("score", cls=Command)(score)
    _add_abstract(commands, open_model)


def tasks(
    name: TaskName = None, source: Annotated[str | None, SOURCE] = None, out: SomeOut = None, as_json: AsJson = False
) -> None:
    """List the benchmarks: size, licence, metrics, and where their data come from.

    With a TASK and --source, reads the task's data; --out is the folder for questions.jsonl and, where the task comes with documents, corpus.jsonl.
    """
    from data_synth.relevance.relevance_form import CORPUS
    from eval.tasks.catalogue import TASKS, find_task, task_json, task_lines, write_task

    if name is None or source is None:
        if source is not None:
            raise UserError("--source without TASK", "the task that the data belong to", "name the task")
        if out is not None:
            raise UserError("--out without --source", "the data to write", "add --source")
        listed = list(TASKS.values()) if name is None else [find_task(name)]
        rows = [task_json(task) for task in listed]
        if as_json:
            print_json({"tasks": rows} if name is None else rows[0])
        else:
            print("\n".join(task_lines(listed)))
        return
    loaded = _load(name, source)
    if out is not None:
        write_task(loaded, out)
        say(f"wrote {out}" + (f"; next: modegraph index {out / CORPUS} --out INDEX" if loaded.documents else ""))
    counts = {"task": name, "questions": len(loaded.questions), "documents": len(loaded.documents)}
    print_json(counts) if as_json else print(
        f"{name}: {counts['questions']:,} questions, {counts['documents']:,} documents"
    )


def score(
    name: Task,
    predictions: Predictions,
    source: Annotated[str, SOURCE],
    split: SomeSplit = None,
    metric: Metrics = None,
    empty_is_wrong: EmptyIsWrong = False,
    as_json: AsJson = False,
) -> None:
    """Score a file of predictions with the metrics of a task, with 95 % intervals."""
    from eval.metrics.registry import find_metric
    from eval.tables import as_text
    from eval.tasks.catalogue import find_task
    from eval.tasks.score_file import read_predictions, score_json, score_predictions, score_table

    metrics = [find_metric(item) for item in metric or find_task(name).metrics]
    wrong = [item.name for item in metrics if item.needs != "answer"]
    if metric and wrong:
        found = f"--metric {wrong[0]}"
        raise UserError(found, "an answer metric, since predictions contain only answers", "choose another metric")
    if not metrics:
        raise UserError(f"eval score {name}: no metrics", "a task with reference answers", "compare with `eval judge`")
    loaded = _load(name, source)
    questions = [item for item in loaded.questions if split in (None, item.split)]
    if not questions:
        splits = ", ".join(sorted({item.split for item in loaded.questions}))
        raise UserError(f"--split {split}: no such questions", f"one of {splits}", "change the split")
    answers = read_predictions(predictions, questions, empty_is_wrong)
    scores = score_predictions(questions, answers, [item for item in metrics if item.needs == "answer"])
    print_json(score_json(scores)) if as_json else print(as_text(score_table(scores)))


def _add_abstract(commands: typer.Typer, open_model: OpenModel) -> None:
    @commands.command(cls=Command)
    def abstract(
        index: IndexFolder,
        model: Model,
        out: Out,
        users: Users = 5,
        tasks_per_user: TasksPerUser = 5,
        questions_per_task: QuestionsPerTask = 5,
        as_json: AsJson = False,
    ) -> None:
        """Have a model write abstract questions about a whole collection (LightRAG's recipe).

        --out is the questions file. Exits with 1 when the model wrote fewer questions than requested.
        """
        from eval.tasks.catalogue import describe_collection, write_questions
        from eval.tasks.sets.abstract import generate_questions
        from graph.index.index import open_index

        generated, lacking = generate_questions(
            describe_collection(open_index(index)), open_model(model), users, tasks_per_user, questions_per_task
        )
        write_questions(generated, out)
        result = {"questions": len(generated), "lacking": lacking, "file": str(out)}
        print_json(result) if as_json else print(
            f"{out}: {len(generated):,} questions, {lacking:,} fewer than requested"
        )
        if lacking:
            raise typer.Exit(1)


def _load(name: str, source: str) -> LoadedTask:
    from eval.tasks.catalogue import HUB, find_task, load_from_hub, load_task

    task = find_task(name)
    return load_from_hub(task) if source == HUB else load_task(task, Path(source))

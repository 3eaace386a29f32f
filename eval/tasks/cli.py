"""The commands on benchmarks: `modegraph eval tasks`, `modegraph eval score` and `modegraph eval abstract`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import print_json, say
from graph.shared.errors import UserError

if TYPE_CHECKING:
    from eval.tasks.sets.types import Loaded
    from graph.shared.types import OpenModel

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
SourceOption = Annotated[
    str | None, typer.Option(help="The task's data: a file, a folder, or hub (fetched by datasets).")
]
TaskName = Annotated[str | None, typer.Argument(help="A task; without one, all are listed.")]


def register(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add the three commands to the commands of `eval`."""
    commands.command("tasks")(tasks)
    commands.command("score")(score)
    _add_abstract(commands, open_model)


def tasks(
    name: TaskName = None,
    source: SourceOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for questions.jsonl and corpus.jsonl in our own layout.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The benchmarks: size, licence, metrics and where the data come from; with a name and --source, read one into our layout."""
    from eval.tasks.files import task_json, task_lines, write_task

    if name is None:
        from eval.tasks import TASKS

        listed = list(TASKS.values())
        print_json({"tasks": [task_json(task) for task in listed]}) if as_json else print("\n".join(task_lines(listed)))
        return
    from eval.tasks import find_task

    task = find_task(name)
    if source is None:
        print_json(task_json(task)) if as_json else print("\n".join(task_lines([task])))
        return
    loaded = _load(name, source)
    if out is not None:
        write_task(loaded, out)
        say(f"wrote {out}; next: modegraph index {out / 'corpus.jsonl'} --out INDEX")
    counts = {"task": name, "questions": len(loaded.questions), "documents": len(loaded.documents)}
    print_json(counts) if as_json else print(
        f"{name}: {counts['questions']:,} questions, {counts['documents']:,} documents"
    )


def score(
    name: Annotated[str, typer.Argument(metavar="TASK", help="A task of `modegraph eval tasks`.")],
    predictions: Annotated[Path, typer.Option(help='Lines of {"id", "answer"}, one for every question.')],
    source: Annotated[str, typer.Option(help="The task's data: a file, a folder, or hub.")],
    split: Annotated[str | None, typer.Option(help="Only questions of train, dev or test.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="A metric; repeatable. Default: the task's own.")] = None,
    empty_is_wrong: Annotated[
        bool, typer.Option("--empty-is-wrong", help="Score an empty prediction 0 instead of refusing it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score a file of predictions by a task's metrics, with 95 % intervals."""
    from eval.metrics.registry import find_metric
    from eval.shared.tables import as_text
    from eval.tasks import find_task
    from eval.tasks.score_file import read_predictions, score_json, score_predictions, score_table

    metrics = [find_metric(one) for one in metric or find_task(name).metrics]
    wrong = [one.name for one in metrics if one.needs != "answer"]
    if metric and wrong:
        raise UserError(f"--metric {wrong[0]}", "a metric of answers: predictions hold nothing else", "choose another")
    loaded = _load(name, source)
    questions = [one for one in loaded.questions if split in (None, one.split)]
    if not questions:
        raise UserError(f"--split {split}: no such questions", "train, dev or test", "change the split")
    answers = read_predictions(predictions, questions, empty_is_wrong)
    scores = score_predictions(questions, answers, [one for one in metrics if one.needs == "answer"])
    print_json(score_json(scores)) if as_json else print(as_text(score_table(scores)))


def _add_abstract(commands: typer.Typer, open_model: OpenModel) -> None:
    @commands.command()
    def abstract(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        model: Annotated[
            str, typer.Option(help="The model that invents users and questions: hf:PATH or openai:NAME@URL.")
        ],
        out: Annotated[Path, typer.Option(help="The questions file to write.")],
        users: Annotated[int, typer.Option(min=1, max=20, help="How many users.")] = 5,
        user_tasks: Annotated[int, typer.Option("--tasks", min=1, max=20, help="How many tasks of each.")] = 5,
        questions: Annotated[int, typer.Option(min=1, max=20, help="How many questions for each task.")] = 5,
        as_json: AsJson = False,
    ) -> None:
        """Abstract questions over a whole collection, by LightRAG's recipe. Exit status 1 when the model gave fewer than asked for."""
        from eval.tasks.files import describe_collection, write_questions
        from eval.tasks.sets.abstract import generate_questions
        from graph.index.index import open_index

        found, lacking = generate_questions(
            describe_collection(open_index(index)), open_model(model), users, user_tasks, questions
        )
        write_questions(found, out)
        result = {"questions": len(found), "lacking": lacking, "file": str(out)}
        print_json(result) if as_json else print(f"{out}: {len(found):,} questions, {lacking:,} fewer than asked for")
        if lacking:
            raise typer.Exit(1)


def _load(name: str, source: str) -> Loaded:
    from eval.tasks import find_task
    from eval.tasks.load import HUB, load_from_hub, load_task

    task = find_task(name)
    return load_from_hub(task) if source == HUB else load_task(task, Path(source))

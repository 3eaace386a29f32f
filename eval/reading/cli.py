"""The command `modegraph eval reading`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graph.shared.cli_app import INPUT, command
from graph.shared.cli_options import AsJson, Limit, Models, ModeName, Seed, SomeOut, SomeSplit, TopK
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A reading set: corpus.jsonl and questions.jsonl (answers empty: unanswerable)."
    ),
]
OverIndex = Annotated[
    Path | None,
    typer.Option(
        "--index",
        metavar="INDEX",
        rich_help_panel=INPUT,
        help="Read what is retrieved from this index in place of gold passages.",
    ),
]
Others = Annotated[
    int,
    typer.Option(
        "--distractors", metavar="N", min=0, rich_help_panel=INPUT, help="Passages among which the gold ones stand."
    ),
]
Unread = Annotated[
    bool,
    typer.Option(
        "--no-passages", metavar="", rich_help_panel=INPUT, help="Ask without passages: what a model knows by heart."
    ),
]
FormOption = Annotated[
    Literal["cited", "quoted", "reasoned"],
    typer.Option(
        "--form", metavar="NAME", rich_help_panel=INPUT, help="Form of the answers: cited, quoted or reasoned."
    ),
]


def register(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `reading` to the commands of `eval`."""

    @commands.command(cls=command())
    def reading(
        folder: Folder,
        models: Models,
        split: SomeSplit = None,
        distractors: Others = 3,
        index: OverIndex = None,
        mode: ModeName = "auto",
        top_k: TopK = 5,
        no_passages: Unread = False,
        form: FormOption = "cited",
        limit: Limit = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Measure how well models read: greedy answers by exact match, F1, refusals and citations.

        Questions are drawn by the hash of their ids; a constant answer stands beside the models. --out keeps every answer.
        """
        from data_synth.reading.sets import read_set
        from eval.reading.measure import (
            CONSTANT,
            ReadingTask,
            answer_all,
            answers_json,
            constant_answers,
            figures_of,
            over_gold,
            over_index,
            pick,
            table_of,
        )
        from eval.reading.measure import as_json as figures_json
        from eval.shared.tables import as_text
        from graph.shared.jsonl import write_jsonl

        source = read_set(folder)
        questions = pick(source, split, limit, seed)
        if no_passages:
            tasks = [ReadingTask(question, ()) for question in questions]
        elif index is not None:
            from graph.index.index import open_index
            from graph.retrieve import RetrieveSettings
            from graph.shared.config import parse_settings

            settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": top_k}, "eval reading")
            tasks = over_index(open_index(index), questions, settings)
        else:
            tasks = over_gold(source, questions, distractors, seed)
        answers = {CONSTANT: constant_answers(tasks)}
        for spec in models:
            say(f"{spec}: {len(tasks):,} questions of {source.name}")
            model = open_model(spec, None)
            answers[spec] = answer_all(model, tasks, form)
        figures = {name: figures_of(each, seed) for name, each in answers.items()}
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            rows = [row for name, each in answers.items() for row in answers_json(name, each)]
            write_jsonl(out / "answers.jsonl", rows)
        print_json(figures_json(figures)) if as_json else print(as_text(table_of(source.name, figures)))

"""`modegraph tune`: from documents to a tuned model, and a recommendation for or against it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from graph.shared.cli_app import LIMITS, MODEL, OUTPUT, TRAINING, command, option
from graph.shared.cli_options import AsJson, Config, Documents, Out, Set, SomeModel, SomeQuestions
from graph.shared.console import print_json
from train.cli import settings_of

Hours = Annotated[float | None, option("--hours H", LIMITS, "Time for all steps together; 2 hours by default.")]
Teacher = Annotated[
    str | None,
    option(
        "--teacher SPEC",
        MODEL,
        "A larger model, such as openai:NAME@URL, to write questions besides those made by rules.",
    ),
]
Serve = Annotated[bool, option("--serve", OUTPUT, "Serve the recommended model at the end.")]
DryRun = Annotated[bool, option("--dry-run", OUTPUT, "Print the plan, and write nothing.")]


def register(app: typer.Typer) -> None:
    """Add `tune`."""

    @app.command(cls=command(settings="modegraph.tuning.settings:TuneSettings"), rich_help_panel=TRAINING)
    def tune(
        documents: Documents,
        out: Out,
        model: SomeModel = None,
        questions: SomeQuestions = None,
        hours: Hours = None,
        teacher: Teacher = None,
        dry_run: DryRun = False,
        serve: Serve = False,
        config: Config = None,
        settings: Set = None,
        as_json: AsJson = False,
    ) -> None:
        """Tune a model to answer from your documents, and test it on questions that it was not trained on.

        The command makes an index, questions and training rows, trains, and answers the held-out questions with the tuned and the untuned
        model. The tuned model is recommended only if it is better by more than chance and meets further conditions, such as hardly any more
        refusals of answerable questions; otherwise the untuned one is. The model `reader` is tuned unless --model names another. An interrupted run resumes
        when the command is repeated. At the end, --out contains report.html, the models' answers and recommended.json.
        """
        from modegraph.tuning.settings import TuneSettings
        from modegraph.tuning.tune import plan_run, run_tune
        from modegraph.tuning.tune_report import serve_arguments

        chosen = settings_of(
            TuneSettings, config, settings, model=model, questions=questions, hours=hours, teacher=teacher
        )
        if dry_run:
            plan = plan_run(documents, chosen)
            print_json(asdict(plan)) if as_json else print(plan)
            return
        result = run_tune(documents, out, chosen)
        print_json(result.record) if as_json else print(result)
        if serve:
            sys.stdout.flush()  # execv discards what is buffered
            command_line = serve_arguments(result.folder, result.model)
            os.execv(sys.executable, [sys.executable, "-P", "-m", *command_line])

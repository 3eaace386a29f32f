"""`modegraph tune`: from documents to a tuned model, with a verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from graph.shared.cli_app import LIMITS, OUTPUT, TRAINING, command
from graph.shared.cli_options import AsJson, Config, Documents, Out, Set, SomeModel, SomeQuestions
from train.cli import settings_of

Hours = Annotated[
    float | None,
    typer.Option(
        "--hours", metavar="H", rich_help_panel=LIMITS, help="Time for all steps together; 2 hours by default."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", metavar="", rich_help_panel=OUTPUT, help="Print the plan, and write nothing.")
]


def register(app: typer.Typer) -> None:
    """Add `tune`."""

    @app.command(cls=command(settings="modegraph.tuning.settings:TuneSettings"), rich_help_panel=TRAINING)
    def tune(
        documents: Documents,
        out: Out,
        model: SomeModel = None,
        questions: SomeQuestions = None,
        hours: Hours = None,
        dry_run: DryRun = False,
        config: Config = None,
        settings: Set = None,
        as_json: AsJson = False,
    ) -> None:
        """Tune a model to answer from your documents, and test it on questions that it did not learn from.

        Makes an index, questions and training rows, trains, and answers the held-out questions before and after. The tuned model
        is recommended only if it is better by more than chance and does not refuse more; otherwise the untuned one is. The model is
        reader, or another one that can be trained. An interrupted run resumes when the command is repeated; --out then holds
        report.html, the models' answers and recommended.json.
        """
        from dataclasses import asdict

        from graph.shared.console import print_json
        from modegraph.tuning.settings import TuneSettings
        from modegraph.tuning.tune import plan_run, run_tune

        chosen = settings_of(TuneSettings, config, settings, model=model, questions=questions, hours=hours)
        if dry_run:
            plan = plan_run(documents, chosen)
            print_json(asdict(plan)) if as_json else print(plan)
            return
        result = run_tune(documents, out, chosen)
        print_json(result.record) if as_json else print(result)

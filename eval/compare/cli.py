"""The command `modegraph compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import EVALUATION, INPUT, LIMITS, command
from graph.shared.cli_options import (
    AsJson,
    ContextSizes,
    Data,
    Limit,
    MaxAnswerTokens,
    Out,
    Runs,
    Samples,
    Seed,
    Split,
)
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

Base = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=INPUT,
        help="Untuned model, as a folder or hub name; without it, the one that the first run started from.",
    ),
]
Responses = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=INPUT,
        help="Scored responses: adds expected reward, KL and entropy of the preference runs.",
    ),
]
AnswersOnly = Annotated[
    bool,
    typer.Option(
        "--answers-only", metavar="", rich_help_panel=LIMITS, help="Score no pairs: no log-probabilities and margins."
    ),
]


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `compare` to the command line."""

    @app.command(cls=command(several=("--runs",)), rich_help_panel=EVALUATION)
    def compare(
        runs: Runs,
        data: Data,
        responses: Responses = None,
        base: Base = None,
        split: Split = "test",
        context_size: ContextSizes = None,
        samples: Samples = 16,
        seed: Seed = 0,
        out: Out = Path("comparison"),
        as_json: AsJson = False,
        limit: Limit = None,
        max_answer_tokens: MaxAnswerTokens = 256,
        answers_only: AnswersOnly = False,
    ) -> None:
        """Compare fine-tuned runs with one another and with their untuned model.

        Answers, margins and log-probabilities on the held-out rows of `synth preferences`; --limit draws the questions by the
        seed, --samples counts with --responses only. The report in --out is replaced.
        """
        from eval.compare.report import to_json, write_report
        from eval.compare_runs import compare_runs
        from eval.shared.tables import as_text, choice_table, measure_table

        comparison, appendix = compare_runs(
            runs,
            data,
            open_model,
            split=split,
            base=base,
            context_sizes=context_size or (),
            max_answer_tokens=max_answer_tokens,
            limit=limit,
            responses=responses,
            samples=samples,
            seed=seed,
            answers_only=answers_only,
        )
        write_report(comparison, out, appendix)
        say(f"report: {out / 'report.html'}")
        if as_json:
            print_json(to_json(comparison) | (appendix.data if appendix else {}))
            return
        shown = [measure_table(comparison), *([choice_table(comparison)] if comparison.choices else [])]
        print("\n\n".join(as_text(table) for table in (*shown, *(appendix.tables if appendix else ()))))

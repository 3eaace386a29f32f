"""The evaluation commands: `modegraph compare`, `runs`, `serve check`, `eval run` and `eval diff`, and the group `eval`, whose other commands
are in eval/cli_measure.py and eval/tasks/cli.py.

`serve check` is here and not with `modegraph serve`, because it uses functions of train/, which serve/ may not import."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import (
    ASKING,
    EVALUATION,
    INPUT,
    LIMITS,
    MODEL,
    TRAINING,
    Command,
    Group,
    command,
    option,
)
from graph.shared.cli_options import (
    AsJson,
    ContextSizes,
    Conversations,
    Data,
    Limit,
    MaxAnswerTokens,
    Out,
    RunFolder,
    Runs,
    Seed,
    Set,
    SomeOut,
    Split,
)
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.types import OpenModel

Matrix = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML file of tasks, retrievers, indexes, models and metrics.")
]
EvalRunA = Annotated[Path, typer.Argument(metavar="A", help="Folder of a run of `modegraph eval run`.")]
EvalRunB = Annotated[Path, typer.Argument(metavar="B", help="Folder of another run, on the same questions.")]


def add_run(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `run` and `diff` to the commands of `eval`."""

    @commands.command(cls=command(settings="eval.run.config:MatrixSettings"))
    def run(config: Matrix, settings: Set = None, out: SomeOut = None, as_json: AsJson = False) -> None:
        """Measure every retriever, index and model on every task, and write a report.

        --out is runs/eval-NAME by default for a CONFIG named NAME.yaml. Finished cells in this folder are reused, even after a change
        to the code; to measure the change, give a new folder. A cell contains the results of one system on one task. A `data` path in
        --set is relative to the working directory, one in CONFIG to the folder of that file. Exits with 1 when a cell could not be filled.
        """
        from eval.run.run import run_matrix
        from eval.run.run_report import report_json, report_text

        folder = out or Path("runs") / f"eval-{config.stem}"
        report = run_matrix(config, settings or [], folder, open_model)
        print_json(report_json(report)) if as_json else print(report_text(report))
        say(f"report: {folder / 'report.html'}")
        if report.failures:
            raise typer.Exit(1)

    commands.command("diff", cls=Command)(diff)


def diff(run_a: EvalRunA, run_b: EvalRunB, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Show what changed from run A to run B, question by question.

    Covers every system and task that both runs have; p-values are corrected for multiple comparisons.
    """
    from eval.run.diff import diff_json, diff_runs, diff_text

    differences = diff_runs(run_a, run_b, seed)
    print_json(diff_json(differences)) if as_json else print(diff_text(differences))


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add the commands to the command line."""
    add_compare(app, open_model)
    add_eval(app, open_model)
    app.command(cls=Command, rich_help_panel=TRAINING)(runs)
    # To serve an index in a folder called `check`, write ./check.
    app.command("serve check", cls=Command, rich_help_panel=ASKING)(check)


def add_eval(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `modegraph eval` and its commands."""
    from eval.cli_measure import add_alignment, add_judge, add_reading, add_retrieval, add_support
    from eval.tasks.cli import register as add_tasks

    commands = typer.Typer(
        help="Measure retrieval, answers and training, each on its own.", no_args_is_help=True, cls=Group
    )
    app.add_typer(commands, name="eval", rich_help_panel=EVALUATION)

    add_retrieval(commands, open_model)
    add_reading(commands, open_model)
    add_support(commands)
    add_alignment(commands)
    add_tasks(commands, open_model)
    add_judge(commands, open_model)
    add_run(commands, open_model)


Base = Annotated[
    str | None,
    option("NAME", INPUT, "Untuned model, as a folder or hub name; default: the one that the first run started from."),
]
AnswersOnly = Annotated[bool, option("--answers-only", LIMITS, "Do not score pairs: no log-probabilities or margins.")]


def add_compare(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `compare` to the command line."""

    @app.command(cls=command(several=("--runs",)), rich_help_panel=EVALUATION)
    def compare(
        runs: Runs,
        data: Data,
        base: Base = None,
        split: Split = "test",
        context_size: ContextSizes = None,
        seed: Seed = 0,
        out: Out = Path("comparison"),
        as_json: AsJson = False,
        limit: Limit = None,
        max_answer_tokens: MaxAnswerTokens = 256,
        answers_only: AnswersOnly = False,
    ) -> None:
        """Compare fine-tuned runs with one another and with their untuned model.

        Measures answers, margins and log-probabilities on the held-out rows of `synth preferences`; --seed decides which
        questions --limit selects. The report in --out is replaced.
        """
        from eval.compare.compare import compare_runs
        from eval.report import comparison_json, write_comparison
        from eval.tables import as_text, choice_table, measure_table

        comparison = compare_runs(
            runs,
            data,
            open_model,
            split=split,
            base=base,
            context_sizes=context_size or (),
            max_answer_tokens=max_answer_tokens,
            limit=limit,
            seed=seed,
            answers_only=answers_only,
        )
        write_comparison(comparison, out)
        say(f"report: {out / 'report.html'}")
        if as_json:
            print_json(comparison_json(comparison))
            return
        tables = [measure_table(comparison), *([choice_table(comparison)] if comparison.choices else [])]
        print("\n\n".join(as_text(table) for table in tables))


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to search, including its subfolders.")]


def runs(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """List training and evaluation runs, finished or not, with their state, figures and settings.

    Only reads files. A run is `running` while its process lives, and `stopped` if the process ended without finishing.
    A stopped run with `save_steps`, or a stopped `eval run`, resumes when its command is repeated.
    """
    from eval.tables import as_text, runs_table
    from graph.shared.runs import find_runs

    all_runs = find_runs(folder)
    print_json({"runs": [asdict(run) for run in all_runs]}) if as_json else print(as_text(runs_table(all_runs)))


TOLERANCE, TOKEN_TOLERANCE = 0.05, 0.01
"""In nats, for a conversation and for a token on average; they suit a server that computes in float32."""
ServerSpec = Annotated[
    str,
    typer.Argument(
        metavar="SERVER",
        help="Served model: openai:NAME@URL, or the URL alone if the server has a model with the name of RUN, or a single model besides base models; "
        "or gguf:FILE or gguf:NAME, a file, an exported folder or a catalogue model, which llama.cpp serves during the check.",
    ),
]


def check(
    server: ServerSpec,
    run: RunFolder,
    base_name: Annotated[
        str,
        option(
            "NAME",
            MODEL,
            "Name of the base model on the server, if the server does not say which one the adapter belongs to.",
        ),
    ] = "",
    conversations: Conversations = None,
    tolerance: Annotated[
        float,
        option(
            "--logps-tolerance NATS", LIMITS, "Largest allowed difference in a conversation's log-probability.", min=0
        ),
    ] = TOLERANCE,
    token_tolerance: Annotated[
        float, option("NATS", LIMITS, "Largest allowed mean difference in a token's log-probability.", min=0)
    ] = TOKEN_TOLERANCE,
    as_json: AsJson = False,
) -> None:
    """Check that a server reproduces the prompts, log-probabilities and greedy tokens of training.

    Requests greedy replies, one at a time and 16 at once, from the adapter and from its base. Prints each fault on one line with its likely cause,
    such as a different chat template, or an adapter that is not loaded, is applied twice or has no effect. Exits with 1 if there is a fault
    or if nothing could be compared. The tolerances suit a server in float32; docs/serving.md has figures for bfloat16.
    """
    from eval.server_parity.check import BATCHES, check_server, open_target, parity_text
    from eval.server_parity.faults import Tolerance

    with open_target(server) as (name, running):
        report = check_server(
            running, name, run, base_name, conversations or max(BATCHES), Tolerance(tolerance, token_tolerance)
        )
    print_json(asdict(report)) if as_json else print(parity_text(report))
    if report.faults or not report.measured:
        raise typer.Exit(1)

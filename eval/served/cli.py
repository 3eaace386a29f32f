"""`modegraph serve check`: a running server against the run that it should serve.

It stands here and not beside `modegraph serve`, because it computes with training's own functions, which serve/ may not import.
"""

from typing import Annotated

import typer

from graph.shared.cli_app import ASKING, INPUT, LIMITS, MODEL, Command
from graph.shared.cli_options import AsJson, RunFolder
from graph.shared.console import print_json

TOLERANCE, TOKEN_TOLERANCE = 0.05, 0.01
"""Nats, in a conversation and in the mean of a token, for a server that computes in float32."""
Served = Annotated[
    str,
    typer.Argument(
        metavar="SERVER",
        help="Served model, as openai:NAME@URL; a URL, if the name is clear; or gguf:FILE, an exported file or folder, opened for the check.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add `serve check`; an index in a folder of that name is served as ./check."""
    app.command("serve check", cls=Command, rich_help_panel=ASKING)(check)


def check(
    server: Served,
    run: RunFolder,
    base_name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=MODEL,
            help="Name of the base model on the server, when it does not say which one the adapter belongs to.",
        ),
    ] = "",
    conversations: Annotated[
        int,
        typer.Option(metavar="N", min=1, rich_help_panel=INPUT, help="Conversations of the run's dev rows to compare."),
    ] = 16,
    tolerance: Annotated[
        float,
        typer.Option(
            "--logps-tolerance",
            metavar="NATS",
            min=0,
            rich_help_panel=LIMITS,
            help="Largest difference of a conversation's log-probability.",
        ),
    ] = TOLERANCE,
    token_tolerance: Annotated[
        float,
        typer.Option(
            metavar="NATS", min=0, rich_help_panel=LIMITS, help="Largest mean difference of a token's log-probability."
        ),
    ] = TOKEN_TOLERANCE,
    as_json: AsJson = False,
) -> None:
    """Check that a server gives the prompts, log-probabilities and greedy tokens that training saw.

    Asks for greedy replies one at a time and 16 at once, of the adapter and of its base. Each fault is one line with its likely cause:
    another chat template, an adapter that is not loaded, counts twice or has no effect. Exits with 1 when there is one. The
    tolerances suit a server in float32; for bfloat16 docs/serving.md has figures.
    """
    from dataclasses import asdict

    from eval.served.check import check_server
    from eval.served.report import show
    from eval.served.target import opened
    from eval.served.types import Tolerance

    with opened(server) as (name, running):
        report = check_server(running, name, run, base_name, conversations, Tolerance(tolerance, token_tolerance))
    print_json(asdict(report)) if as_json else print(show(report))
    if report.faults:
        raise typer.Exit(1)

"""The commands of evaluation: `modegraph compare`, `eval …`, `lab …`, `runs` and `demo`; each stands in a cli_*.py of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import EVALUATION, OUTPUT, Command, Group
from graph.shared.cli_options import AsJson, Out
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

Fresh = Annotated[
    bool, typer.Option("--fresh", metavar="", rich_help_panel=OUTPUT, help="Keep nothing of an earlier demo.")
]


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add the commands to the command line."""
    from eval.compare.cli import register as add_compare
    from eval.lab.cli import register as add_lab
    from eval.runs.cli import register as add_runs
    from eval.served.cli import register as add_check

    add_compare(app, open_model)
    add_eval(app, open_model)
    add_demo(app)
    add_lab(app, open_model)
    add_runs(app)
    add_check(app)


def add_eval(app: typer.Typer, open_model: OpenModel) -> None:
    """`modegraph eval …`."""
    from eval.alignment.cli import register as add_alignment
    from eval.judge.cli import register as add_judge
    from eval.matrix.cli import register as add_run
    from eval.reading.cli import register as add_reading
    from eval.retrieval.cli import register as add_retrieval
    from eval.router.cli import register as add_router
    from eval.selector.cli import register as add_selector
    from eval.support.cli import register as add_support
    from eval.tasks.cli import register as add_tasks

    commands = typer.Typer(
        help="Measure retrieval, answers and training, each on its own.", no_args_is_help=True, cls=Group
    )
    app.add_typer(commands, name="eval", rich_help_panel=EVALUATION)

    add_retrieval(commands, open_model)
    add_reading(commands, open_model)
    add_support(commands)
    add_alignment(commands)
    add_selector(commands, open_model)
    add_router(commands)
    add_tasks(commands, open_model)
    add_judge(commands, open_model)
    add_run(commands, open_model, partial(run_command, app))


def run_command(app: typer.Typer, command: Sequence[str]) -> int:
    """Run one command line (without the program's name) in this process; its exit status."""
    return app(list(command), prog_name="modegraph", standalone_mode=False) or 0


def add_demo(app: typer.Typer) -> None:
    """`modegraph demo`, which runs the other commands of `app`."""

    @app.command(cls=Command, rich_help_panel=EVALUATION)
    def demo(
        out: Out = Path("demo-run"),
        fresh: Fresh = False,
        as_json: AsJson = False,
    ) -> None:
        """Run everything on the example documents with a fetched model; no network, key or GPU.

        Steps of an earlier demo in --out are kept where command, inputs and code have not changed; questions are asked anew.
        """
        from eval.demo.run import demo_json, run_demo
        from eval.demo.show import counted

        result = run_demo(out, partial(run_command, app), say if as_json else print, fresh)
        if as_json:
            print_json(demo_json(result))
            return
        print(counted(json.loads((result.report.parent / "report.json").read_text(encoding="utf-8"))), end="\n\n")
        print("\n\n".join(each.as_text() for each in result.shown))
        print(f"\nReport: {result.report}")

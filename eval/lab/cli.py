"""The command `modegraph lab modes`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import EVALUATION, MODEL, Command, Group
from graph.shared.cli_options import AsJson, Out
from graph.shared.console import print_json

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

BetaReward = Annotated[
    float,
    typer.Option(metavar="BETA", rich_help_panel=MODEL, help="β_r: the smaller, the further apart the modes are."),
]
Seeds = Annotated[
    int,
    typer.Option(metavar="N", min=1, rich_help_panel=MODEL, help="Seeds to run, from 0; each draws its own responses."),
]
Steps = Annotated[int, typer.Option(metavar="N", min=1, rich_help_panel=MODEL, help="Gradient steps from each start.")]


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add the group `lab`; its experiments need no language model, so `open_model` is not used."""
    del open_model
    lab = typer.Typer(help="Try the training objectives on small problems, on a CPU.", no_args_is_help=True, cls=Group)
    app.add_typer(lab, name="lab", rich_help_panel=EVALUATION)

    @lab.command(cls=Command)
    def modes(
        beta_reward: BetaReward = 0.12,
        seeds: Seeds = 5,
        steps: Steps = 300,
        out: Out = Path("lab-modes"),
        as_json: AsJson = False,
    ) -> None:
        """Show where MS and DPO lead a policy of one mode when the target has two, for K = 2 to 256."""
        from eval.lab.line import two_modes
        from eval.lab.modes import run_modes
        from eval.lab.report import headline, make_folder, modes_json, modes_table, write_modes
        from eval.shared.tables import as_text

        line = two_modes(beta_reward)
        make_folder(out)
        experiment = run_modes(line, seeds, steps)
        write_modes(experiment, out)
        if as_json:
            print_json(modes_json(experiment))
            return
        table = modes_table(experiment)
        print(f"{as_text(table)}\n\n{table.note}\n{headline(experiment)}")

"""The command `modegraph lab modes`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import print_json

if TYPE_CHECKING:
    from graph.shared.types import OpenModel


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add the group `lab`; its experiments need no language model, so `open_model` is not used."""
    del open_model
    lab = typer.Typer(help="Small experiments about the objectives, on a CPU.", no_args_is_help=True)
    app.add_typer(lab, name="lab")

    @lab.callback()
    def group() -> None:
        """Small experiments about the objectives, on a CPU."""

    @lab.command()
    def modes(
        out: Annotated[Path, typer.Option(help="Folder for modes.json and modes.png.")] = Path("lab-modes"),
        seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, … each draws its own responses.")] = 5,
        steps: Annotated[int, typer.Option(min=1, help="Gradient steps from each start.")] = 300,
        beta_reward: Annotated[float, typer.Option(help="β_r: the smaller, the further apart are the modes.")] = 0.12,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Where MS and DPO lead a policy with one mode when the target has two, for K = 2 to 256."""
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

"""`modegraph synth claims`."""

from typing import Annotated

import typer

from graph.shared.cli_app import OUTPUT, command
from graph.shared.cli_options import AsJson, IndexFolder, Preview, Seed, SomeOut

Rounds = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=OUTPUT,
        help="Claims to make of a passage, and as many broken ones, at most.",
    ),
]


def register(synth: typer.Typer) -> None:
    """Add `claims` to the commands of `synth`."""

    @synth.command(cls=command())
    def claims(
        index: IndexFolder,
        rounds: Rounds = 4,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make sentences that passages support, and broken ones: data for `train verifier`.

        Rules say a sentence otherwise, then change a name, a number, a negation, who did what, or a word for its opposite.
        """
        from data_synth.claims.rows import claim_rows, passages_of
        from data_synth.claims.types import FORM
        from data_synth.dataset.deliver import deliver, ledger_of
        from graph.index.index import open_index

        ledger_of(out, preview)
        opened = open_index(index)
        origin = {"Index": index.name, "Rounds": str(rounds), "Seed": str(seed)}
        if not deliver(claim_rows(passages_of(opened), rounds, seed), FORM, origin, out, preview, as_json):
            raise typer.Exit(1)

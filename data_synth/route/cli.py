"""`modegraph synth route`."""

from typing import TYPE_CHECKING

import typer

from graph.shared.cli_app import command
from graph.shared.cli_options import (
    AsJson,
    IndexFolder,
    Modes,
    Preview,
    Questions,
    Seed,
    SomeModel,
    SomeOut,
    Tolerance,
)
from graph.shared.console import track

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

ROUTED = ["dense", "hierarchy", "lexical", "hybrid", "hops", "paths", "local"]
"""The modes that are run when no others are named."""


def register(synth: typer.Typer, open_model: "OpenModel") -> None:
    """Add `route` to the commands of `synth`."""

    @synth.command(cls=command(several=("--modes",)))
    def route(
        index: IndexFolder,
        questions: Questions,
        modes: Modes = ROUTED,
        tolerance: Tolerance = 0.01,
        model: SomeModel = None,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Label questions with the cheapest mode that is good enough: data for `train router`.

        Runs every mode on every question and keeps what each finds and costs. --model serves the modes that can ask one; the
        seed splits the rows into train, dev and test.
        """
        from data_synth.contexts import check_gold
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.relevance.gold import read_gold_questions
        from data_synth.route.rows import route_rows
        from data_synth.route.runs import parse_modes
        from data_synth.route.types import FORM
        from graph.index.index import open_index

        chosen = parse_modes(modes)
        asked = read_gold_questions(questions)[:preview]
        opened = open_index(index)
        check_gold((each.question for each in asked), frozenset(opened.sources()))
        ledger = ledger_of(out, preview)
        opened_model = open_model(model, ledger) if model else None
        origin = {
            "Index": index.name,
            "Encoder": opened.encoder_source.fingerprint,
            "Questions": questions.name,
            "Modes": ", ".join(chosen),
            "Tolerance": f"{tolerance:g}",
            "Model": opened_model.name if opened_model else "none",
            "Seed": str(seed),
        }
        rows = route_rows(opened, asked, chosen, tolerance, seed, opened_model, track)
        if not deliver(rows, FORM, origin, out, preview, as_json):
            raise typer.Exit(1)

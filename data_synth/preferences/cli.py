"""`modegraph synth preferences`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import OUTPUT, command
from graph.shared.cli_options import (
    AsJson,
    ContextSizes,
    IndexFolder,
    Judge,
    Limit,
    MaxContextTokens,
    ModeName,
    Preview,
    Questions,
    Seed,
    SomeOut,
    Splits,
    Strict,
    TopK,
    Writers,
)
from graph.shared.modes import DEFAULT_MODE

if TYPE_CHECKING:
    from data_synth.dataset.summary import Summary
    from graph.shared.types import OpenModel


class Shape(StrEnum):
    """Whether the texts of a row are lists of messages or strings."""

    chat = "chat"
    plain = "plain"


HardNegatives = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0,
        max=1,
        rich_help_panel=OUTPUT,
        help="Share of pairs whose rejected side reasons, too, and is wrong or unsupported; the others reject the bare answer.",
    ),
]
Format = Annotated[
    Shape,
    typer.Option("--format", metavar="FORM", rich_help_panel=OUTPUT, help="Rows of messages (chat) or text (plain)."),
]


def separation_warnings(summary: "Summary") -> list[str]:
    """What tells the sides of the pairs apart though it has nothing to do with their answers, and what to do about it."""
    from data_synth.preferences.separation import told_apart

    found = told_apart(summary.measures)
    remedy = "a model would learn that in place of the answers; use --hard-negatives 1"
    return [f"the sides are told apart without reading them ({'; '.join(found)}): {remedy}"] if found else []


def register(synth: typer.Typer, open_model: "OpenModel") -> None:
    """Add `preferences` to the commands of `synth`."""

    @synth.command(
        cls=command(
            {
                "--max-context": "--top-k",
                "--reasoner": "--writer",
                "--checker": "--judge",
                "--controls": "--hard-negatives",
            }
        )
    )
    def preferences(
        index: IndexFolder,
        questions: Questions,
        split: Splits = None,
        context_size: ContextSizes = None,
        mode: ModeName = DEFAULT_MODE,
        top_k: TopK = 5,
        writer: Writers = None,
        judge: Judge = None,
        hard_negatives: HardNegatives = 1.0,
        shape: Format = Shape.chat,
        strict: Strict = False,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
        limit: Limit = None,
        max_context_tokens: MaxContextTokens = None,
    ) -> None:
        """Make preference pairs: reasoning with the answer is chosen, wrong or unsupported reasoning rejected.

        Each question gets a pair over every context of 1 to --top-k passages, or of --context-size. Gold sentences make the
        reasoning unless --writer names a model; a --judge then drops what the passages do not support. Where they do not hold
        the answer, "not in the documents" is chosen. --limit draws the questions by the seed.
        """
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.preferences.preference_form import PLAIN_PREFERENCES, PREFERENCES
        from data_synth.preferences.run import Asked, Models, preference_run
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings
        from graph.shared.config import parse_settings

        values = {"mode": mode, "top_k": top_k, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth preferences")
        models = Models(writer or [], judge, ledger_of(out, preview))
        asked = Asked(questions, split or [], limit, seed, context_size or [])
        run = preference_run(
            open_index(index),
            asked,
            settings,
            models,
            open_model,
            hard_negatives=hard_negatives,
            first=preview,
        )
        form = PREFERENCES if shape is Shape.chat else PLAIN_PREFERENCES
        if not deliver(run.rows, form, run.origin, out, preview, as_json, separation_warnings, strict):
            raise typer.Exit(1)

"""The command `modegraph eval selector`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import RETRIEVAL, command
from graph.shared.cli_options import (
    AsJson,
    IndexFolder,
    Limit,
    ModeName,
    Questions,
    Seed,
    SomeModel,
    SomeOut,
    SomeSplit,
    TopK,
)
from graph.shared.console import print_json
from graph.shared.errors import UserError

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

Selectors = Annotated[
    list[str],
    typer.Option(
        "--selectors",
        metavar="NAME",
        rich_help_panel=RETRIEVAL,
        help="Selectors to compare (--selectors threshold FOLDER); the first is the baseline. Repeatable.",
    ),
]


def register(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `selector` to the commands of `eval`."""

    @commands.command(cls=command(several=("--selectors",)))
    def selector(
        index: IndexFolder,
        questions: Questions,
        selectors: Selectors,
        split: SomeSplit = None,
        mode: ModeName = "local",
        top_k: TopK = 10,
        model: SomeModel = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
        limit: Limit = None,
    ) -> None:
        """Compare selectors in mode local or global.

        Prints quality, model calls, tokens and seconds, with intervals of the differences. --model is for the selector llm.
        """
        check_selectors(selectors, model, mode)
        from functools import partial

        from eval.retrieval.measure import LEDGER, Retrieve, select_questions
        from eval.selector.compare import compare_selectors
        from eval.selector.questions import read_with_sentences
        from eval.selector.report import selector_json, selector_table, write_selectors
        from eval.shared.tables import as_text
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings, retrieve
        from graph.shared.config import parse_settings

        settings = {
            name: parse_settings(RetrieveSettings, {"mode": mode, "top_k": top_k, "selector": name}, "eval selector")
            for name in selectors
        }
        opened = open_index(index)
        asked = select_questions(read_with_sentences(questions), split, opened.sources())[:limit]
        helper = open_model(model, out / LEDGER if out is not None else None) if model is not None else None

        def retrieve_with(name: str) -> Retrieve:
            return partial(retrieve, opened, settings=settings[name], model=helper if name == "llm" else None)

        report = compare_selectors(opened, asked, selectors, retrieve_with, helper, top_k, seed)
        if out is not None:
            write_selectors(report, mode, out)
        if as_json:
            print_json(selector_json(report, mode))
            return
        table = selector_table(report, mode)
        print(f"{as_text(table)}\n\n{table.note}")


def check_selectors(selectors: list[str], model: str | None, mode: str) -> None:
    """UserError for a mode that selects nothing, for a selector named twice, and for llm without a model or a model without llm."""
    if mode not in ("local", "global"):
        raise UserError(f"--mode {mode}", "local or global, which select propositions", "change the mode")
    if len(set(selectors)) < len(selectors):
        raise UserError(f"--selectors {' '.join(selectors)}", "each selector once", "drop the repetition")
    if ("llm" in selectors) != (model is not None):
        found = "llm without --model" if model is None else f"--model {model} without the selector llm"
        raise UserError(found, "both or neither: only llm asks a model", "give both, or drop it")

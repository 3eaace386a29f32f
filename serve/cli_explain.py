"""`modegraph explain`."""

from typing import Annotated

import typer

from graph.shared.cli_app import ASKING, INPUT, Command
from graph.shared.cli_options import AsJson, IndexFolder, ModeName, Question, Router, TopK, Where
from graph.shared.console import print_json
from graph.shared.modes import DEFAULT_MODE

PassageId = Annotated[
    str,
    typer.Option(
        "--passage",
        metavar="ID",
        rich_help_panel=INPUT,
        help="Passage to explain: its id or the first digits of it, as `modegraph ask` shows them, or a document of one passage.",
    ),
]


def register_explain(app: typer.Typer) -> None:
    """Add `explain` to the command line."""

    @app.command(cls=Command, rich_help_panel=ASKING)
    def explain(
        index: IndexFolder,
        question: Question,
        passage: PassageId,
        mode: ModeName = DEFAULT_MODE,
        top_k: TopK = 5,
        where: Where = None,
        router: Router = "",
        as_json: AsJson = False,
    ) -> None:
        """Tell why a question finds a passage, or does not.

        Shows its rank and score in every mode, without a language model, what it has of the question, the links that
        lead to it, and what stands before it in --mode.
        """
        from dataclasses import asdict

        from graph.explain.explain import explain_passage
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings
        from graph.shared.config import parse_settings
        from serve.show_explanation import show_explanation

        values = {"mode": mode, "top_k": top_k, "where": where or (), "router": router}
        settings = parse_settings(RetrieveSettings, values, "explain")
        told = explain_passage(open_index(index), question, passage, settings)
        print_json(asdict(told)) if as_json else print(show_explanation(told))

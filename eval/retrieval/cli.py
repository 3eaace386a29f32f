"""The command `modegraph eval retrieval`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from graph.shared.cli_app import command
from graph.shared.cli_options import (
    AsJson,
    IndexFolder,
    Limit,
    Modes,
    Questions,
    Reranker,
    Router,
    Seed,
    Selector,
    SomeModel,
    SomeOut,
    SomeSplit,
    TopK,
    Unit,
    Where,
)
from graph.shared.console import print_json

if TYPE_CHECKING:
    import typer

    from graph.shared.types import OpenModel


def register(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `retrieval` to the commands of `eval`."""

    @commands.command(cls=command(several=("--modes", "--where")))
    def retrieval(
        index: IndexFolder,
        questions: Questions,
        modes: Modes,
        split: SomeSplit = None,
        top_k: TopK = 10,
        unit: Unit = "passages",
        where: Where = None,
        selector: Selector = "threshold",
        router: Router = "",
        reranker: Reranker = "",
        model: SomeModel = None,
        seed: Seed = 0,
        out: SomeOut = None,
        as_json: AsJson = False,
        limit: Limit = None,
    ) -> None:
        """Compare retrieval modes on questions with gold documents.

        Prints Recall, all-gold, MRR, nDCG and seconds a query, with intervals; --out keeps figures, plot and rankings.
        """
        from eval.retrieval.measure import (
            LEDGER,
            evaluate_retrieval,
            reachable_questions,
            retrieval_json,
            retrieval_table,
            select_questions,
            write_retrieval,
        )
        from eval.shared.tables import as_text
        from graph.documents.questions import read_questions
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings, retrieve
        from graph.shared.config import parse_settings

        common = {"top_k": top_k, "unit": unit, "where": where or (), "selector": selector, "router": router}
        common |= {"reranker": reranker}
        settings = {
            mode: parse_settings(RetrieveSettings, {"mode": mode, **common}, "eval retrieval") for mode in modes
        }
        opened = open_index(index)
        asked = select_questions(read_questions(questions), split, opened.sources())
        allowed = opened.where(settings[modes[0]].conditions)
        asked = (reachable_questions(asked, allowed.sources()) if where else asked)[:limit]
        helper = open_model(model, out / LEDGER if out is not None else None) if model is not None else None
        retrievers = {mode: partial(retrieve, opened, settings=each, model=helper) for mode, each in settings.items()}
        report = evaluate_retrieval(asked, retrievers, top_k, seed)
        if out is not None:
            write_retrieval(report, out)
        print_json(retrieval_json(report)) if as_json else print(as_text(retrieval_table(report)))

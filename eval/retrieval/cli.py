"""The command `modegraph eval retrieval`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import print_json

if TYPE_CHECKING:
    from graph.shared.types import OpenModel


def register(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `retrieval` to the commands of `eval`."""
    from eval.shared.spread import SpreadingCommand

    @commands.command(cls=SpreadingCommand)
    def retrieval(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        questions: Annotated[Path, typer.Option(help="Questions with gold_ids, .jsonl.")],
        modes: Annotated[
            list[str],
            typer.Option("--modes", help="Modes, one or several (--modes dense naive); the first is the baseline."),
        ],
        split: Annotated[str | None, typer.Option(help="Only questions of train, dev or test.")] = None,
        top_k: Annotated[int, typer.Option(min=1, help="How many passages to retrieve.")] = 10,
        unit: Annotated[
            str, typer.Option("--as", help="What statements and topics return: passages or propositions.")
        ] = "passages",
        where: Annotated[
            list[str] | None, typer.Option(help="Only documents with KEY=VALUE, one or several conditions.")
        ] = None,
        model: Annotated[
            str | None, typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL, asked by the modes that can use one.")
        ] = None,
        selector: Annotated[
            str, typer.Option(help="threshold, llm or a trained one's folder, in modes that choose propositions.")
        ] = "threshold",
        router: Annotated[str, typer.Option(help="What chooses the mode of auto: a trained router's folder.")] = "",
        reranker: Annotated[str, typer.Option(help="Cross-encoder for every mode: a folder or a hub name.")] = "",
        out: Annotated[
            Path | None, typer.Option(help="Folder for figures, plot, rankings and the call ledger.")
        ] = None,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Compare retrieval modes on questions with gold documents: Recall, all-gold, MRR, nDCG, seconds a query."""
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
        asked = reachable_questions(asked, allowed.sources()) if where else asked
        helper = open_model(model, out / LEDGER if out is not None else None) if model is not None else None
        retrievers = {mode: partial(retrieve, opened, settings=each, model=helper) for mode, each in settings.items()}
        report = evaluate_retrieval(asked, retrievers, top_k, seed)
        if out is not None:
            write_retrieval(report, out)
        print_json(retrieval_json(report)) if as_json else print(as_text(retrieval_table(report)))

"""`modegraph ask`."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from graph.shared.console import print_json, say
from graph.shared.errors import UserError
from graph.shared.types import DEFAULT_MODE, Mode, OpenModel

Where = Annotated[
    list[str] | None,
    typer.Option(help="Only documents with KEY=VALUE (also != < <= > >=, and * in values); repeatable."),
]
Unit = Annotated[str, typer.Option("--as", help="What statements and topics return: passages or propositions.")]
Selector = Annotated[
    str,
    typer.Option(help="What chooses among propositions, where a mode does: threshold, llm, or a trained one's folder."),
]
Reranker = Annotated[str, typer.Option(help="Cross-encoder that orders what was found: a folder or a hub name.")]
Router = Annotated[
    str,
    typer.Option(help="What chooses the mode of --mode auto: a trained router's folder; by default a rule of thumb."),
]
ContextTokens = Annotated[
    int | None, typer.Option(help="The longest context, in the model's tokens; passages that do not fit are left out.")
]
TraceFile = Annotated[Path | None, typer.Option(help="Write settings, evidence and trace to this file, as JSON.")]


def register_ask(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `ask` to the command line."""

    @app.command()
    def ask(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        question: Annotated[str, typer.Argument(help="The question, in quotes.")],
        mode: Annotated[str, typer.Option(help=f"How to retrieve: {', '.join(get_args(Mode))}.")] = DEFAULT_MODE,
        top_k: Annotated[int, typer.Option(help="How many passages to read.")] = 5,
        unit: Unit = "passages",
        where: Where = None,
        model: Annotated[
            str | None, typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL; without one the evidence is shown.")
        ] = None,
        selector: Selector = "threshold",
        router: Router = "",
        reranker: Reranker = "",
        max_context_tokens: ContextTokens = None,
        retrieve_only: Annotated[
            bool, typer.Option("--retrieve-only", help="Show the evidence, write no answer.")
        ] = False,
        max_answer_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 256,
        explain: Annotated[
            bool, typer.Option("--explain", help="Tell the path from the question to each passage.")
        ] = False,
        trace: TraceFile = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Answer a question from an index, with citations; without a model, show what was found."""
        from dataclasses import asdict

        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings, retrieve
        from graph.shared.config import parse_settings
        from graph.shared.jsonl import write_json
        from serve.answering import answer_from
        from serve.show import show_answer, show_evidence, show_paths

        values = {
            "mode": mode,
            "top_k": top_k,
            "unit": unit,
            "where": where or (),
            "selector": selector,
            "router": router,
            "reranker": reranker,
            "max_context_tokens": max_context_tokens,
        }
        settings = parse_settings(RetrieveSettings, values, "ask")
        check_trace(trace)
        opened = open_index(index)
        if model is not None:
            say(f"opening {model}")
        asked = open_model(model) if model is not None else None
        evidence = retrieve(opened, question, settings, asked)
        if trace is not None:
            write_json(trace, {"settings": settings.model_dump(), "evidence": asdict(evidence)})
        stopped = evidence.trace.stopped
        if asked is None or retrieve_only or stopped:
            result, shown = asdict(evidence), show_evidence(evidence)
        else:
            answer = answer_from(evidence, top_k, max_context_tokens, asked, max_answer_tokens)
            result, shown = asdict(answer), show_answer(answer)
        print_json(result) if as_json else print(shown)
        if explain and not as_json:
            print(f"\n{show_paths(evidence)}")
        if stopped:
            say(f"modegraph: the retrieval stopped before it was done: {stopped}; above is what it had found")
            raise typer.Exit(1)


def check_trace(file: Path | None) -> None:
    """UserError, before anything is asked, when the trace could not be written."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise UserError(f"--trace {file}", "a file in a folder that exists", "make the folder, or name another file")

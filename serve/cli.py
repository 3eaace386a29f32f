"""The commands `modegraph ask` and `modegraph explain`; `serve` and `mcp` are in cli_serve.py, `keys` in cli_keys.py."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from graph.errors import UserError
from graph.shared.cli_app import ASKING, INPUT, OUTPUT, Command, command, option
from graph.shared.cli_options import (
    Abstain,
    AsJson,
    IndexFolder,
    MaxAnswerTokens,
    MaxContextTokens,
    ModeName,
    Question,
    Reranker,
    Selector,
    SomeModel,
    TopK,
    Unit,
    UnsupportedAs,
    Verifier,
    Where,
)
from graph.shared.console import print_json, say
from graph.shared.modes import ABSTAIN_AT, DEFAULT_MODE
from serve.cli_keys import register_keys
from serve.cli_serve import SERVER_SETTINGS, register_mcp, serve_command

if TYPE_CHECKING:
    from graph.types import LanguageModel, OpenModel


RetrieveOnly = Annotated[bool, option("--retrieve-only", OUTPUT, "Show the evidence and write no answer.")]
Explain = Annotated[bool, option("--explain", OUTPUT, "Show the path from the question to each passage.")]
TraceFile = Annotated[Path | None, option("FILE", OUTPUT, "Write settings, evidence and trace to this file, as JSON.")]


def register_ask(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `ask` to the command line."""

    @app.command(cls=Command, rich_help_panel=ASKING)
    def ask(
        index: IndexFolder,
        question: Question,
        mode: ModeName = DEFAULT_MODE,
        top_k: TopK = 5,
        unit: Unit = "passages",
        where: Where = None,
        selector: Selector = "threshold",
        reranker: Reranker = "",
        abstain: Abstain = ABSTAIN_AT,
        model: SomeModel = None,
        verifier: Verifier = "",
        unsupported: UnsupportedAs = "mark",
        retrieve_only: RetrieveOnly = False,
        explain: Explain = False,
        trace: TraceFile = None,
        as_json: AsJson = False,
        max_context_tokens: MaxContextTokens = None,
        max_answer_tokens: MaxAnswerTokens = 256,
    ) -> None:
        """Answer a question from an index, with citations. Without --model, show the evidence."""
        from graph.config import parse_settings
        from graph.retrieve.parts.query import RetrieveSettings

        values = {
            "mode": mode,
            "top_k": top_k,
            "unit": unit,
            "where": where or (),
            "selector": selector,
            "reranker": reranker,
            "abstain": abstain,
            "max_context_tokens": max_context_tokens,
        }
        settings = parse_settings(RetrieveSettings, values, "ask")
        check_trace_file(trace)
        opening = BackgroundModel(open_model, model) if model is not None else None
        # The model is being opened while these modules are imported.
        from graph.answer.support import verifier_for
        from graph.index.index import open_index
        from graph.retrieve.retrieve import retrieve
        from graph.shared.jsonl import write_json
        from serve.pipeline import answer_from
        from serve.show import show_answer, show_evidence, show_paths

        support_verifier = verifier_for(unsupported, verifier)
        language_model = cast("LanguageModel | None", opening)
        evidence = retrieve(open_index(index), question, settings, language_model)
        if trace is not None:
            write_json(trace, {"settings": settings.model_dump(), "evidence": asdict(evidence)})
        stopped = evidence.trace.stopped
        if language_model is None or retrieve_only or stopped:
            result, text = asdict(evidence), show_evidence(evidence)
        else:
            arguments = (top_k, max_context_tokens, language_model, max_answer_tokens)
            answer = answer_from(evidence, *arguments, support_verifier, drop_unsupported=unsupported == "drop")
            result, text = asdict(answer), show_answer(answer)
        print_json(result) if as_json else print(text)
        if explain and not as_json:
            print(f"\n{show_paths(evidence)}")
        end_ask(opening, stopped)


def end_ask(opening: BackgroundModel | None, stopped: str) -> None:
    """Wait for a model that is still being opened: a wrong name is an error even if no call was made. Exit with status 1 if the retrieval stopped early."""
    sys.stdout.flush()
    if opening is not None:
        opening.wait()
    if stopped:
        say(f"modegraph: the retrieval stopped before it was done: {stopped}; the evidence found so far is above")
        raise typer.Exit(1)


class BackgroundModel:
    """The model that `spec` names, opened in a thread while the index is opened and searched. The first use waits until the model is open, and
    raises the error if opening it failed.

    Until it is open, its name is `spec`, so that an answer that needs no model call does not wait.
    """

    def __init__(self, open_model: OpenModel, spec: str) -> None:
        from concurrent.futures import ThreadPoolExecutor

        say(f"opening {spec}")
        executor = ThreadPoolExecutor(1)
        self._spec, self._opening = spec, executor.submit(open_model, spec)
        executor.shutdown(wait=False)

    @property
    def name(self) -> str:
        """The model's name once it is open, `spec` until then."""
        return self._opening.result().name if self._opening.done() else self._spec

    def wait(self) -> None:
        """Wait until the model is open; raises the error if opening it failed."""
        self._opening.result()

    def count_tokens(self, text: str) -> int:
        """The number of tokens of `text`. Passing this method on does not wait for the model; calling it does."""
        return self._opening.result().count_tokens(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opening.result(), name)


def check_trace_file(file: Path | None) -> None:
    """UserError, before any work, if the file for the trace is a folder, or if its folder does not exist."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise UserError(f"--trace {file}", "a file in a folder that exists", "make the folder, or name another file")


PassageId = Annotated[
    str,
    option(
        "--passage ID",
        INPUT,
        "Passage to explain: its id or the id's first digits, as `modegraph ask` shows them, or the source of a document with one passage.",
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
        as_json: AsJson = False,
    ) -> None:
        """Explain why a question does or does not find a passage.

        No language model is called. Shows the passage's rank and score in every mode (`plan`, the same as `hops`, only with --mode plan),
        what it shares with the question, the links that lead to it, and the passages ranked above it in --mode.
        """
        from graph.config import parse_settings
        from graph.explain import explain_passage
        from graph.index.index import open_index
        from graph.retrieve.parts.query import RetrieveSettings
        from serve.show import show_explanation

        values = {"mode": mode, "top_k": top_k, "where": where or ()}
        settings = parse_settings(RetrieveSettings, values, "explain")
        explanation = explain_passage(open_index(index), question, passage, settings)
        print_json(asdict(explanation)) if as_json else print(show_explanation(explanation))


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `ask`, `explain`, `serve`, `mcp` and `keys` to the command line."""
    app.command("serve", cls=command(settings=SERVER_SETTINGS), rich_help_panel=ASKING)(serve_command)
    register_mcp(app)
    register_keys(app)
    register_ask(app, open_model)
    register_explain(app)

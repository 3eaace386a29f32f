"""The commands `modegraph ask`, `explain` and `keys`; `serve` and `mcp` are in cli_serve.py."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from graph.errors import UserError
from graph.shared.cli_app import ASKING, INPUT, LIMITS, OUTPUT, Command, Group, command, option
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
from serve.cli_serve import SERVER_SETTINGS, register_mcp, serve_command

KeyFile = Annotated[
    Path, typer.Argument(metavar="KEYS", help="File of keys, for the option --keys of `modegraph serve`.")
]
KeyName = Annotated[str, option("--name NAME", INPUT, "Name of the key's holder, for metrics and logs.")]
Scopes = Annotated[
    list[str] | None,
    option("--scope SCOPE", LIMITS, "What the key allows: read (the default), write or metrics. Repeatable."),
]
OnlyCollections = Annotated[
    list[str] | None,
    option(
        "--collection NAME",
        LIMITS,
        "Collection that the key can read, by the name of its folder; all by default. Repeatable.",
    ),
]
Rate = Annotated[
    int | None, option("N", LIMITS, "Requests a minute; further ones are answered with status 429.", min=1)
]
Expires = Annotated[
    str | None, option("DATE", LIMITS, "When the key expires: 2027-01-31, or with a time, 2027-01-31T18:00:00Z.")
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="Id of the key; `modegraph keys list` shows the ids.")]


def register_keys(app: typer.Typer) -> None:
    """Add `keys` to the command line."""
    about = "Make, list and revoke the keys of a server."
    commands = typer.Typer(cls=Group, help=about, no_args_is_help=True)
    commands.command("add", cls=Command)(add_command)
    commands.command("list", cls=Command)(list_command)
    commands.command("revoke", cls=Command)(revoke_command)
    app.add_typer(commands, name="keys", rich_help_panel=ASKING)


def add_command(
    file: KeyFile,
    name: KeyName,
    scope: Scopes = None,
    collection: OnlyCollections = None,
    where: Where = None,
    rate: Rate = None,
    expires: Expires = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown only once: the file stores its hash.

    With --where, the key can read only the documents that match. A running server accepts the key immediately; to replace a key,
    add another of the same name, and revoke the old key once its holder has the new one.
    """
    from serve.http.keys import change_keys, make_key

    key, text = make_key(
        name,
        scopes=tuple(scope or ("read",)),
        collections=tuple(collection) if collection else None,
        where=tuple(where or ()),
        rate=rate,
        expires=None if expires is None else _future_time(expires),
    )
    change_keys(file, lambda keys: [*keys, key])
    say(f"modegraph: key {key.id} of {key.name} is in {file}")
    print_json({"id": key.id, "key": text}) if as_json else print(text)


def list_command(file: KeyFile, as_json: AsJson = False) -> None:
    """List the keys, without their secrets."""
    from serve.http.keys import read_keys

    keys = read_keys(file)
    if as_json:
        print_json([{"id": key.id, **key.model_dump(mode="json", exclude={"sha256"})} for key in keys])
        return
    for key in keys:
        details = [
            "+".join(key.scopes),
            f"collections {', '.join(key.collections)}" if key.collections is not None else "all collections",
            *(f"where {condition}" for condition in key.where),
            *([f"{key.rate} requests a minute"] if key.rate else []),
            f"since {key.created:%Y-%m-%d}",
            *([f"until {key.expires:%Y-%m-%d %H:%M %Z}"] if key.expires else []),
            *(["expired"] if key.is_expired(datetime.now(UTC)) else []),
        ]
        print(f"{key.id}  {key.name}  {'; '.join(details)}")


def revoke_command(file: KeyFile, key_id: KeyId) -> None:
    """Revoke a key: every later request with it is refused."""
    from serve.http.keys import Key, change_keys

    def without(keys: list[Key]) -> list[Key]:
        found = f"key {key_id!r}: not in {file}"
        if not keys:
            raise UserError(found, "the id of a key; this file has no keys", "make one with `modegraph keys add`")
        remaining = [key for key in keys if key.id != key_id]
        if len(remaining) == len(keys):
            known = f"one of {', '.join(key.id for key in keys)}"
            raise UserError(found, known, "`modegraph keys list` shows the ids")
        return remaining

    change_keys(file, without)
    say(f"modegraph: key {key_id} is revoked")


def _future_time(text: str) -> datetime:
    """A date as midnight UTC of that day, or a time with its time zone; UserError for any other form, or if it is past."""
    with suppress(ValueError, TypeError):  # TypeError: a time without a zone
        time = datetime.fromisoformat(text if "T" in text else f"{text}T00:00:00Z")
        if time > datetime.now(UTC):
            return time
    expected = "a date in the future, such as 2027-01-31, or a time and its zone, such as 2027-01-31T18:00:00Z"
    raise UserError(f"--expires {text!r}", expected, "correct the date")


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
        """Wait until the model is open; raise the error if opening it failed."""
        self._opening.result()

    def count_tokens(self, text: str) -> int:
        """The number of tokens of `text`. Passing this method on does not wait for the model; calling it does."""
        return self._opening.result().count_tokens(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opening.result(), name)


def check_trace_file(file: Path | None) -> None:
    """UserError, before any work, if the file for the trace is a folder, or if its folder does not exist or is not writable."""
    if file is not None and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK | os.X_OK)):
        raise UserError(f"--trace {file}", "a file in a writable folder", "make the folder, or name another file")


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

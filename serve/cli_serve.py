"""`modegraph serve`, the RAG server, and `modegraph mcp`, the tools of an index for clients of the Model Context Protocol."""

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graph.shared.cli_app import ASKING, LIMITS, MODEL, Command, option
from graph.shared.cli_options import (
    Abstain,
    Config,
    IndexFolders,
    MaxAnswerTokens,
    Set,
    SomeMode,
    SomeModel,
    SomeReranker,
    SomeSelector,
    SomeTopK,
    SomeUnsupportedAs,
    SomeVerifier,
)
from graph.shared.console import say

if TYPE_CHECKING:
    from serve.engines.chat_backend import ChatBackend
    from serve.http.settings import ServerSettings
    from serve.server.services import Services

KEY_VARIABLE = "MODEGRAPH_API_KEY"
THREADS_VARIABLE = "OMP_NUM_THREADS"
SERVER_SETTINGS = "serve.http.settings:ServerSettings"
SERVER = "Server"
Adapters = Annotated[
    list[str] | None,
    option(
        "--adapter NAME=FOLDER",
        MODEL,
        "Serve a LoRA adapter as a separate model; NAME alone for an adapter of the openai: server. Repeatable.",
    ),
]
VllmPython = Annotated[
    str,
    option("FILE", MODEL, "Python of the environment that has vLLM; by default MODEGRAPH_VLLM_PYTHON, else this one."),
]
VllmArguments = Annotated[
    list[str] | None,
    option("--vllm-arg ARG", MODEL, "Argument to pass to vLLM: --vllm-arg=--max-model-len=4096. Repeatable."),
]
Host = Annotated[
    str | None, option("ADDRESS", SERVER, "Address to listen on; one that other machines can reach needs a key.")
]
Port = Annotated[int | None, option("N", SERVER, "Port to listen on.")]
ApiKey = Annotated[
    str | None,
    option(
        "KEY",
        SERVER,
        f"Key that clients must send; better set in {KEY_VARIABLE}, which is hidden from other users of this machine.",
        show_default=False,
    ),
]
Keys = Annotated[
    Path | None, option("FILE", SERVER, "File of keys, made by `modegraph keys`, each with its own rights.")
]
AuditLog = Annotated[
    Path | None,
    option("--audit-log FILE", SERVER, "Write a line to this file for each addition and deletion of documents."),
]
Writable = Annotated[bool, option("--writable", SERVER, "Let clients add documents, and delete them over HTTP.")]
Feedback = Annotated[
    bool,
    option(
        "--feedback",
        SERVER,
        "Store readers' votes and corrections with the index, for `modegraph data import feedback`.",
    ),
]
Runs = Annotated[
    Path | None,
    option(
        "--show-runs FOLDER",
        SERVER,
        "Show the training runs below this folder on the page, to the operator's key only.",
    ),
]
OtlpEndpoint = Annotated[
    str | None, option("URL", SERVER, "Send traces to this OpenTelemetry collector, such as http://localhost:4318.")
]
Capacity = Annotated[int | None, option("N", LIMITS, "Requests to process concurrently.")]
Queue = Annotated[int | None, option("N", LIMITS, "Requests that may wait; further ones are answered with status 429.")]


def serve_command(
    indexes: IndexFolders,
    config: Config = None,
    settings: Set = None,
    mode: SomeMode = None,
    top_k: SomeTopK = None,
    selector: SomeSelector = None,
    reranker: SomeReranker = None,
    abstain: Abstain = None,
    verifier: SomeVerifier = None,
    unsupported: SomeUnsupportedAs = None,
    model: SomeModel = None,
    adapter: Adapters = None,
    vllm_python: VllmPython = "",
    vllm_arg: VllmArguments = None,
    host: Host = None,
    port: Port = None,
    api_key: ApiKey = None,
    keys: Keys = None,
    audit_log: AuditLog = None,
    writable: Writable = False,
    feedback: Feedback = False,
    show_runs: Runs = None,
    otlp_endpoint: OtlpEndpoint = None,
    capacity: Capacity = None,
    queue: Queue = None,
) -> None:
    """Serve one index, or several, over HTTP: a web page and an OpenAI-compatible API.

    --model also takes vllm:PATH, which starts vLLM; without --model the server searches but does not answer. With
    --writable, a folder that does not exist becomes an empty index, to be filled on the page. Most options are also
    settings. The retrieval options set the defaults for requests, but --selector and --reranker only name the models
    that requests with `selector: trained` and `reranker: true` use. docs/serving.md describes the routes.
    """
    load_single_threaded("numpy")
    flags = {
        "host": host,
        "port": port,
        "api_key": api_key,
        "keys": keys,
        "audit_log": audit_log,
        "writable": writable or None,
        "feedback": feedback or None,
        "show_runs": show_runs,
        "mode": mode,
        "top_k": top_k,
        "capacity": capacity,
        "queue": queue,
        "selector": selector,
        "reranker": reranker,
        "abstain": abstain,
        "verifier": verifier,
        "unsupported": unsupported,
        "otlp_endpoint": otlp_endpoint,
    }
    server_settings = settings_of("serve", flags, config, settings or [])
    if not computes_here(model, server_settings.verifier):
        load_single_threaded("faiss", "torch")
    from serve.app import build_app, check_names, log_to_stderr, server_of
    from serve.engines.open_backend import VllmOptions, open_backend

    log_to_stderr()
    check_names(indexes)
    for index in indexes:  # Fail early: opening a model takes much longer.
        check_index(index, server_settings.writable)
    backend = open_backend(model, adapter or [], VllmOptions(vllm_python, tuple(vllm_arg or [])))
    services = open_services(indexes, backend, server_settings)
    models = f"models: {', '.join(backend.models)}" if backend.models else "no model: search and evidence only"
    folders, end = ", ".join(map(str, indexes)), f"(stop with Ctrl-C); {models}"
    server_of(build_app(services), services, lambda url: say(f"modegraph serves {folders} at {url} {end}")).run()


def settings_of(
    command: str, flags: Mapping[str, Any], config: Path | None = None, overrides: Sequence[str] = ()
) -> "ServerSettings":
    """The settings of a configuration file, changed by --set and then by `flags` that are not None; without --api-key, KEY_VARIABLE is used if set."""
    from graph.config import parse_settings, read_values
    from serve.http.settings import ServerSettings

    values = read_values(config, overrides)
    given = {"api_key": os.environ.get(KEY_VARIABLE)} | {name: flag for name, flag in flags.items() if flag is not None}
    values |= {name: value for name, value in given.items() if value is not None}
    return parse_settings(ServerSettings, values, str(config or command))


def open_services(
    indexes: Sequence[Path], backend: "ChatBackend", settings: "ServerSettings", warm: bool = True
) -> "Services":
    """The services for the indexes, after preparing their encoders for questions."""
    from graph.index.index import open_index
    from graph.models.encoder import prepare_for_questions
    from serve.app import make_services

    for encoder in {open_index(index).settings.encoder for index in indexes}:
        prepare_for_questions(encoder)
    return make_services(indexes, backend, settings, warm=warm)


def check_index(index: Path, writable: bool) -> None:
    """UserError if there is no index; but if nothing is there yet and clients may add documents, an empty index is created."""
    from graph.build.build import build_index
    from graph.config import parse_settings
    from graph.models.encoder import open_encoder
    from graph.store.index_settings import IndexSettings
    from graph.store.manifest import read_manifest

    if writable and (not index.exists() or (index.is_dir() and not any(index.iterdir()))):
        build_index(index, [], parse_settings(IndexSettings, {}, "serve"), open_encoder)
        say(f"{index}: a new, empty index; add documents on the page")
    read_manifest(index)


def computes_here(model: str | None, verifier: str) -> bool:
    """Whether the model or the verifier runs on torch in this process: its SPEC names hf:, or torch is the fastest library installed. Torch is not imported."""
    from graph.answer import model_verifier
    from serve import engines

    is_torch_verifier = model_verifier.is_model(verifier) and model_verifier.kind_of(verifier)[0] == "hf"
    return is_torch_verifier or (model is not None and engines.kind_of(model)[0] == "hf")


def load_single_threaded(*libraries: str) -> None:
    """Load numeric libraries with one thread each, unless OMP_NUM_THREADS is set; child processes do not inherit this.

    One question is too small to parallelise, and threads that wait for one another would slow an engine on the same machine.
    """
    if THREADS_VARIABLE in os.environ:
        return
    os.environ[THREADS_VARIABLE] = "1"
    try:
        for name in libraries:
            importlib.import_module(name)
    finally:
        del os.environ[THREADS_VARIABLE]


OverHttp = Annotated[bool, option("--http", "Server", "Serve over HTTP instead, at /mcp on --host and --port.")]


def register_mcp(app: typer.Typer) -> None:
    """Add `mcp` to the command line."""

    @app.command(cls=Command, rich_help_panel=ASKING)
    def mcp(
        indexes: IndexFolders,
        model: SomeModel = None,
        max_answer_tokens: MaxAnswerTokens = 512,
        writable: Writable = False,
        http: OverHttp = False,
        host: Host = None,
        port: Port = None,
        api_key: ApiKey = None,
        keys: Keys = None,
        audit_log: AuditLog = None,
    ) -> None:
        """Serve one index, or several, to MCP clients, over standard input and output.

        The tools are search, fetch and explain; --model adds ask, --writable adds add_document. Documents are resources.
        `modegraph serve` offers the same at /mcp, with its other routes; --http offers /mcp, /health, /ready and /metrics.
        """
        import sys
        from contextlib import redirect_stdout

        from serve.app import build_app, check_names, log_to_stderr, server_of
        from serve.engines.open_backend import VllmOptions, open_backend
        from serve.mcp.server import serve_stdio

        flags = {
            "writable": writable,
            "host": host,
            "port": port,
            "api_key": api_key,
            "keys": keys,
            "audit_log": audit_log,
            "max_answer_tokens": max_answer_tokens,
        }
        server_settings = settings_of("mcp", flags)
        check_names(indexes)
        log_to_stderr()
        with redirect_stdout(sys.stderr):  # The protocol, which starts later, needs standard output to itself.
            services = open_services(indexes, open_backend(model, [], VllmOptions()), server_settings, warm=http)
        folders = ", ".join(map(str, indexes))
        if http:
            server_of(
                build_app(services, only_mcp=True),
                services,
                lambda url: say(f"modegraph serves {folders} to MCP clients at {url}/mcp (stop with Ctrl-C)"),
            ).run()
        else:
            say(f"modegraph: ready to serve {folders} to one MCP client, on standard input and output")
            serve_stdio(services)

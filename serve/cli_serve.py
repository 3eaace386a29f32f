"""`modegraph serve`: the RAG server."""

import importlib
import os
from pathlib import Path
from typing import Annotated

import typer

from graph.shared.console import say
from graph.shared.types import DEFAULT_MODE

KEY_VARIABLE = "MODEGRAPH_API_KEY"
IN_PROCESS = "hf:"
THREADS = "OMP_NUM_THREADS"
Config = Annotated[Path | None, typer.Option("--config", help="YAML file of server settings.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="One server setting, as key=value; repeatable.")]
Adapters = Annotated[
    list[str] | None,
    typer.Option(
        "--adapter",
        metavar="NAME=DIR",
        help="A LoRA adapter as a model of its own; repeatable. With openai: the NAME of a model of that server.",
    ),
]
VllmArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--vllm-arg", metavar="ARG", help="Passed to vLLM as it stands (--vllm-arg=--max-model-len=4096); repeatable."
    ),
]


def serve_command(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The index folder that `modegraph index` made.")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC", help="vllm:PATH, openai:NAME@URL or hf:PATH; without one, search and evidence only."
        ),
    ] = None,
    adapter: Adapters = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; any but this machine's own wants a key.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (default 8080).")] = None,
    api_key: Annotated[
        str | None,
        typer.Option(help=f"Key that clients must send; better given in {KEY_VARIABLE}.", show_default=False),
    ] = None,
    writable: Annotated[bool, typer.Option("--writable", help="Let documents be added and deleted over HTTP.")] = False,
    mode: Annotated[
        str | None, typer.Option(help=f"How to retrieve when a request does not say (default {DEFAULT_MODE}).")
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", help="Passages to read when a request does not say (default 5).")
    ] = None,
    capacity: Annotated[int | None, typer.Option(help="Requests worked on at once (default 8).")] = None,
    queue: Annotated[int | None, typer.Option(help="Requests that may wait (default 4); more get 429.")] = None,
    selector: Annotated[str | None, typer.Option(help="A trained selector's folder, for `selector: trained`.")] = None,
    router: Annotated[str | None, typer.Option(help="A trained router's folder, for mode auto.")] = None,
    reranker: Annotated[str | None, typer.Option(help="A cross-encoder, for `reranker: true`.")] = None,
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="OpenTelemetry collector that gets spans, e.g. http://localhost:4318."),
    ] = None,
    vllm_python: Annotated[str, typer.Option(help="The Python of vLLM's environment, if it is not this one.")] = "",
    vllm_arg: VllmArguments = None,
    config: Config = None,
    settings: Set = None,
) -> None:
    """Serve answers from an index over HTTP, as an OpenAI-compatible server with citations (docs/serving.md)."""
    if model is None or not model.startswith(IN_PROCESS):
        load_for_one_core()
    from graph.encode.encoder import prepare_for_questions
    from graph.index.index import open_index
    from graph.shared.config import parse_settings, read_yaml, set_value
    from graph.store.arrays import read_manifest
    from serve.http.app import build_app, make_services
    from serve.http.backends.engines import VllmOptions, open_backend
    from serve.http.run import log_to_stderr, server_of
    from serve.http.shared.settings import ServerSettings

    flags = {
        "host": host,
        "port": port,
        "api_key": api_key if api_key is not None else os.environ.get(KEY_VARIABLE),
        "writable": writable or None,
        "mode": mode,
        "k": k,
        "capacity": capacity,
        "queue": queue,
        "selector": selector,
        "router": router,
        "reranker": reranker,
        "otlp_endpoint": otlp_endpoint,
    }
    values = read_yaml(config) if config is not None else {}
    for override in settings or []:
        set_value(values, override)
    given = {name: value for name, value in flags.items() if value is not None}
    chosen = parse_settings(ServerSettings, {**values, **given}, str(config or "serve"))
    log_to_stderr()
    read_manifest(index)  # Opening a model takes longer than seeing that there is no index.
    backend = open_backend(model, adapter or [], VllmOptions(vllm_python, tuple(vllm_arg or [])))
    prepare_for_questions(open_index(index).settings.encoder)
    app = build_app(make_services(index, backend, chosen))
    models = f"models: {', '.join(backend.models)}" if backend.models else "no model: search and evidence only"
    say(f"modegraph serves {index} at http://{chosen.host}:{chosen.port} (stop with Ctrl-C); {models}")
    server_of(app, chosen).run()


def load_for_one_core() -> None:
    """Load what computes with one thread each, unless the environment says how many; what this process starts is told nothing of it.

    A question is too short to share, and threads that wait for one another would stand in the way of an engine on the same machine.
    """
    if THREADS in os.environ:
        return
    os.environ[THREADS] = "1"
    try:
        for name in ("faiss", "torch"):
            importlib.import_module(name)
    finally:
        del os.environ[THREADS]

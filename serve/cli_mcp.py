"""`modegraph mcp`: the tools of an index for clients of the Model Context Protocol."""

from typing import Annotated

import typer

from graph.shared.cli_app import ASKING, Command
from graph.shared.cli_options import IndexFolders, MaxAnswerTokens, SomeModel
from graph.shared.console import say
from serve.cli_serve import KEY_VARIABLE, ApiKey, AuditLog, Host, Keys, Port, Writable

OverHttp = Annotated[
    bool,
    typer.Option(
        "--http", metavar="", rich_help_panel="Server", help="Serve over HTTP instead, at /mcp of --host and --port."
    ),
]


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

        The tools are search, fetch and explain, with --model ask, and with --writable add_document; documents are
        resources. `modegraph serve` has the same at /mcp, beside all else; --http is for a server of nothing else.
        """
        import os
        import sys
        from contextlib import redirect_stdout

        from graph.encode.encoder import prepare_for_questions
        from graph.index.index import open_index
        from graph.shared.config import parse_settings
        from serve.http.app import build_app, check_names, make_services
        from serve.http.backends.engines import VllmOptions, open_backend
        from serve.http.mcp.stdio import serve_stdio
        from serve.http.run import log_to_stderr, server_of
        from serve.http.shared.settings import ServerSettings

        flags = {
            "writable": writable,
            "host": host,
            "port": port,
            "api_key": api_key if api_key is not None else os.environ.get(KEY_VARIABLE),
            "keys": keys,
            "audit_log": audit_log,
            "max_answer_tokens": max_answer_tokens,
        }
        given = {name: value for name, value in flags.items() if value is not None}
        chosen = parse_settings(ServerSettings, given, "mcp")
        check_names(indexes)
        log_to_stderr()
        with redirect_stdout(sys.stderr):  # Until the protocol begins, which owns standard output.
            for encoder in {open_index(index).settings.encoder for index in indexes}:
                prepare_for_questions(encoder)
            services = make_services(indexes, open_backend(model, [], VllmOptions()), chosen, warm=http)
        named = ", ".join(map(str, indexes))
        if http:
            say(f"modegraph serves {named} to MCP clients at http://{chosen.host}:{chosen.port}/mcp (stop with Ctrl-C)")
            server_of(build_app(services, only_mcp=True), services).run()
        else:
            say(f"modegraph: {named} is ready for one MCP client, on standard input and output")
            serve_stdio(services)

"""The commands of serving: `modegraph ask`, `modegraph serve` and `modegraph mcp`."""

import typer

from graph.shared.types import OpenModel
from serve.cli_ask import register_ask
from serve.cli_mcp import register_mcp
from serve.cli_serve import serve_command


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `ask`, `serve` and `mcp` to the command line."""
    app.command("serve")(serve_command)
    register_mcp(app, open_model)
    register_ask(app, open_model)

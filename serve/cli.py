"""The commands of serving: `modegraph ask`, `modegraph explain`, `modegraph serve`, `modegraph mcp` and `modegraph keys`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from graph.shared.cli_app import ASKING, command
from serve.cli_ask import register_ask
from serve.cli_explain import register_explain
from serve.cli_keys import register_keys
from serve.cli_mcp import register_mcp
from serve.cli_serve import SERVER_SETTINGS, serve_command

if TYPE_CHECKING:
    from graph.shared.types import OpenModel


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `ask`, `explain`, `serve`, `mcp` and `keys` to the command line."""
    app.command("serve", cls=command({"-k": "--top-k"}, settings=SERVER_SETTINGS), rich_help_panel=ASKING)(
        serve_command
    )
    register_mcp(app)
    register_keys(app)
    register_ask(app, open_model)
    register_explain(app)

"""`modegraph mcp`: the tools of an index for clients of the Model Context Protocol."""

from typing import TYPE_CHECKING

import typer

from graph.shared.cli_app import ASKING, Command
from graph.shared.cli_options import IndexFolder, MaxAnswerTokens, SomeModel
from graph.shared.console import say

if TYPE_CHECKING:
    from graph.shared.types import OpenModel


def register_mcp(app: typer.Typer, open_model: "OpenModel") -> None:
    """Add `mcp` to the command line."""

    @app.command(cls=Command, rich_help_panel=ASKING)
    def mcp(
        index: IndexFolder,
        model: SomeModel = None,
        max_answer_tokens: MaxAnswerTokens = 512,
    ) -> None:
        """Serve an index to an MCP client, over standard input and output.

        The tools are retrieve, explain and, with --model, ask.
        """
        import sys
        from contextlib import redirect_stdout

        from graph.encode.encoder import prepare_for_questions
        from graph.index.index import open_index
        from serve.mcp import build_mcp

        with redirect_stdout(sys.stderr):  # Until the protocol begins, which owns standard output.
            prepare_for_questions(open_index(index).settings.encoder)
            server = build_mcp(index, open_model(model) if model is not None else None, max_answer_tokens)
        say(f"modegraph: {index} is ready for one MCP client, on standard input and output")
        server.run("stdio")

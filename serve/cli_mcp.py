"""`modegraph mcp`: the tools of an index for clients of the Model Context Protocol."""

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.console import say
from graph.shared.types import OpenModel


def register_mcp(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `mcp` to the command line."""

    @app.command()
    def mcp(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        model: Annotated[
            str | None,
            typer.Option(metavar="SPEC", help="hf:PATH_OR_NAME or openai:NAME@URL; without one, no tool `ask`."),
        ] = None,
        max_answer_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 512,
    ) -> None:
        """Serve retrieve, explain and (with a model) ask to an MCP client over standard input and output."""
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

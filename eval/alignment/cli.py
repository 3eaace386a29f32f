"""The command `modegraph eval alignment`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.console import print_json


def register(commands: typer.Typer) -> None:
    """Add `alignment` to the commands of `eval`."""
    from eval.shared.spread import SpreadingCommand

    @commands.command(cls=SpreadingCommand)
    def alignment(
        runs: Annotated[
            list[Path],
            typer.Option("--runs", help="Run folders (--runs A B C …); differences are from the first one's system."),
        ],
        data: Annotated[Path, typer.Option(help="Folder of scored responses: their prompts are asked.")],
        split: Annotated[str, typer.Option(help="Which rows to ask: dev or test (train would flatter).")] = "test",
        samples: Annotated[int, typer.Option(min=2, help="Samples of each prompt.")] = 16,
        max_tokens: Annotated[int, typer.Option(min=1, help="The longest sample; longer ones are cut.")] = 128,
        limit: Annotated[int | None, typer.Option(min=1, help="Only the first prompts.")] = None,
        seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
        out: Annotated[Path, typer.Option(help="Folder for the report; its files are replaced.")] = Path("alignment"),
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Expected reward against KL to the reference: runs of several methods, K, strengths and seeds, at equal KL."""
        from eval.alignment.report import align_runs, tables_as_text, to_json, write_alignment
        from eval.alignment.sample import Drawing
        from train.model.models import load_policy

        found = align_runs(runs, data, split, limit, Drawing(samples, max_tokens, seed), load_policy)
        write_alignment(found, out)
        if as_json:
            print_json(to_json(found))
            return
        print(tables_as_text(found))

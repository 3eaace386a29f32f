"""The command `modegraph eval alignment`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graph.shared.cli_app import command
from graph.shared.cli_options import AsJson, Data, Limit, MaxAnswerTokens, Out, Runs, Samples, Seed, Split
from graph.shared.console import print_json

if TYPE_CHECKING:
    import typer


def register(commands: typer.Typer) -> None:
    """Add `alignment` to the commands of `eval`."""

    @commands.command(cls=command({"--max-tokens": "--max-answer-tokens"}, several=("--runs",)))
    def alignment(
        runs: Runs,
        data: Data,
        split: Split = "test",
        samples: Samples = 16,
        seed: Seed = 0,
        out: Out = Path("alignment"),
        as_json: AsJson = False,
        limit: Limit = None,
        max_answer_tokens: MaxAnswerTokens = 128,
    ) -> None:
        """Compare preference runs by expected reward at equal KL to the reference.

        Samples the prompts of --data, scored responses, and replaces the report in --out. Longer samples are cut; `train` as
        the split would flatter.
        """
        from eval.alignment.report import align_runs, tables_as_text, to_json, write_alignment
        from eval.alignment.sample import SamplingSettings
        from train.model.models import load_policy

        found = align_runs(runs, data, split, limit, SamplingSettings(samples, max_answer_tokens, seed), load_policy)
        write_alignment(found, out)
        if as_json:
            print_json(to_json(found))
            return
        print(tables_as_text(found))

"""The command `modegraph eval alignment`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from graph.shared.cli_app import MODEL, OUTPUT, command
from graph.shared.cli_options import AsJson, Data, Limit, MaxAnswerTokens, Out, Runs, Samples, Seed, Split
from graph.shared.console import print_json


class Sampler(StrEnum):
    """What draws samples: transformers in this process, or a vLLM of our own."""

    hf = "hf"
    vllm = "vllm"


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
        sampler: Annotated[
            Sampler, typer.Option(metavar="ENGINE", rich_help_panel=MODEL, help="What draws the samples: hf or vllm.")
        ] = Sampler.hf,
        measured: Annotated[
            Path | None,
            typer.Option(
                metavar="FOLDER",
                rich_help_panel=OUTPUT,
                help="Keep measured figures here, for this and other commands; without it in --out.",
            ),
        ] = None,
        limit: Limit = None,
        max_answer_tokens: MaxAnswerTokens = 128,
    ) -> None:
        """Compare preference runs by expected reward at equal KL to the reference.

        Samples the prompts of --data, scored responses, and replaces the report in --out; what was measured before is not measured again.
        Longer samples are cut; `train` as the split would flatter. --sampler vllm is faster by far.
        """
        from functools import partial

        from eval.alignment.report import align_runs, tables_as_text, to_json, write_alignment
        from eval.alignment.sample import SamplingSettings
        from train.model.models import Precision, load_policy
        from train.shared.types import read_run

        records = [read_run(folder) for folder in runs]
        half = all(one.settings.get("precision") == "bfloat16" for one in records)
        precision: Precision = "bfloat16" if half else "float32"
        drawing = SamplingSettings(samples, max_answer_tokens, seed)
        load = partial(load_policy, precision=precision)
        if sampler is Sampler.vllm:
            from eval.alignment.sample_by_vllm import draw_by_vllm as draw
        else:
            from eval.alignment.sample import draw_here as draw
        found = align_runs(runs, data, split, limit, drawing, load, draw, measured or out / "measured")
        write_alignment(found, out)
        if as_json:
            print_json(to_json(found))
            return
        print(tables_as_text(found))

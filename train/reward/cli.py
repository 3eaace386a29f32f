"""`modegraph train score`: the rewards of a reward model, as one more component of scored responses."""

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.console import print_json


def register(commands: typer.Typer) -> None:
    """Add `score` to the commands of `train`."""
    commands.command("score")(score)


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of `train reward`.")],
    data: Annotated[Path, typer.Option(help="A folder of scored responses, as `synth responses` writes it.")],
    out: Annotated[Path, typer.Option(help="The folder to write; must not exist yet.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Responses with one more reward, `reward_model`: 0 to 1, from a trained reward model."""
    from train.reward.reward import score_responses

    scored = score_responses(run, data, out)
    if as_json:
        from dataclasses import asdict

        print_json({"output": str(out), **asdict(scored)})
        return
    print(f"{out}: {scored.prompts:,} prompts, {scored.responses:,} responses, mean reward {scored.mean_reward:.3f}")
    print("weight the new component in `rewards` of `train ms` or `train dpo`: reward_model: 1.0")

"""`modegraph train score`: the rewards of a reward model, as one more component of scored responses."""

import typer

from graph.shared.cli_app import Command
from graph.shared.cli_options import AsJson, Data, Out, RunFolder
from graph.shared.console import print_json


def register(commands: typer.Typer) -> None:
    """Add `score` to the commands of `train`."""
    commands.command("score", cls=Command)(score)


def score(
    run: RunFolder,
    data: Data,
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Score responses with a reward model: one more component, `reward_model`, of 0 to 1.

    RUN is a run of `train reward`, --data the folder of `synth responses`.
    """
    from train.reward.reward import score_responses

    scored = score_responses(run, data, out)
    if as_json:
        from dataclasses import asdict

        print_json({"output": str(out), **asdict(scored)})
        return
    print(f"{out}: {scored.prompts:,} prompts, {scored.responses:,} responses, mean reward {scored.mean_reward:.3f}")
    print("weight the new component in `rewards` of `train ms` or `train dpo`: reward_model: 1.0")

"""`modegraph plan train` and `plan study`: the cost of a training run, or the cost and the power of a study, before it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graph.errors import UserError
from graph.shared.cli_app import INPUT, LIMITS, TRAINING, command, option
from graph.shared.cli_options import AsJson, Set
from graph.shared.console import SECONDS_PER_HOUR, print_json

if TYPE_CHECKING:
    from eval.study import ArmSettings, StudyPlan, StudySettings
    from train.plan.plan import TrainingPlan

File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of settings.")]
Stage = Annotated[
    str | None,
    option(
        "NAME",
        INPUT,
        "Stage that the file is for: sft, ms, dpo or reward; by default, the one that `modegraph config check` finds.",
    ),
]
Accelerate = Annotated[
    Path | None,
    option(
        "FILE", INPUT, "Configuration of `accelerate launch`: the number of processes, and what is sharded among them."
    ),
]
Steps = Annotated[
    int,
    option(
        "--trial-steps N",
        LIMITS,
        "Training steps to time on this machine; 0: none, so `plan train` reports neither activations nor hours.",
        min=0,
    ),
]


def register(app: typer.Typer, known: Callable[[], dict[str, str]]) -> None:
    """Add `plan train` and `plan study`; `known` returns the commands with settings: `module:Class` by full name."""

    @app.command("plan train", cls=command(settings="train.run.settings:TrainSettings"), rich_help_panel=TRAINING)
    def plan_train(
        file: File,
        settings: Set = None,
        stage: Stage = None,
        accelerate: Accelerate = None,
        trial_steps: Steps = 3,
        as_json: AsJson = False,
    ) -> None:
        """Estimate the cost of a training run: steps, tokens, FLOPs, memory of each process, and hours.

        The data is counted with the model's tokenizer, packed as in training, and a few real steps are taken on the device that the run
        would use; nothing is saved. To plan the indexing of a folder called train, write `modegraph plan ./train`.
        """
        from graph.config import load_settings
        from train.plan.jobs import SETTINGS
        from train.plan.memory import Launch, read_launch
        from train.plan.plan import plan_training

        chosen = stage_of(file, stage, known())
        launch = Launch() if accelerate is None else read_launch(accelerate)
        plan = plan_training(load_settings(SETTINGS[chosen], file, settings or []), launch, trial_steps)
        if as_json:
            print_json({"file": str(file), "stage": chosen, **asdict(plan)})
        else:
            print_plan(file, chosen, plan)

    @app.command("plan study", cls=command(settings="eval.study:StudySettings"), rich_help_panel=TRAINING)
    def plan_study(file: File, settings: Set = None, trial_steps: Steps = 3, as_json: AsJson = False) -> None:
        """Plan a study of training: runs, hours, and the smallest difference that it detects with a power of 80 %.

        A study with a fault is rejected: a test prompt in the training data, an arm that sets a seed, arms with different rewards, a
        reward component that cannot be measured. Arms without `seconds_per_update` are timed for --trial-steps steps. To plan the indexing of a
        folder called study, write `modegraph plan ./study`.
        """
        from eval import study as studies
        from graph.config import load_settings

        study = load_settings(studies.StudySettings, file, settings or [])
        studies.check_study(study)
        plan = studies.plan_study(study, lambda arm: seconds_per_update(arm, trial_steps))
        print_json({"file": str(file), **asdict(plan)}) if as_json else print_study(file, study, plan)


def seconds_per_update(arm: ArmSettings, trial_steps: int) -> float:
    """Seconds per update of an arm's run, measured over a few steps; UserError if --trial-steps is 0."""
    from eval.study import train_settings
    from graph.config import parse_settings
    from train.plan.jobs import SETTINGS
    from train.plan.memory import Launch
    from train.plan.plan import plan_training

    where = arm.config or f"an arm of stage {arm.stage}"
    if not trial_steps:
        found = f"{where}: no seconds_per_update, and --trial-steps 0"
        expected = "seconds per update, either given or measured"
        raise UserError(found, expected, "set seconds_per_update, or raise --trial-steps")
    plan = plan_training(parse_settings(SETTINGS[arm.stage], train_settings(arm), where), Launch(), trial_steps)
    assert plan.hours is not None
    return plan.hours * SECONDS_PER_HOUR / plan.counts.steps


def print_study(file: Path, study: StudySettings, plan: StudyPlan) -> None:
    """Print the plan of a study in a few lines."""
    print(
        f"{file}: {len(study.arms)} arms, contrast {study.contrast[0]} − {study.contrast[1]}, {study.updates} updates per run"
    )
    samples = f"{study.train_samples} responses to each training prompt, {study.test_samples} to a test prompt"
    print(f"prompts: {study.train_prompts:,} train, {study.dev_prompts:,} dev, {study.test_prompts:,} test; {samples}")
    print(
        "seconds per update: " + ", ".join(f"{name} {seconds:.3g}" for name, seconds in plan.seconds_per_update.items())
    )
    print(
        f"before the first look: {plan.sampling_hours:.3g} hours for sampling, {plan.trial_hours:.3g} hours for {plan.trial_runs} trial runs"
    )
    for look in plan.looks:
        print(
            f"{look.seeds} seeds: {look.runs} runs, {look.hours:.3g} hours in all; detects a difference of {look.smallest_difference:.3g} "
            f"(80 % power, p ≤ {look.level:g}); if there is none, shows equality within ±{study.equal_within:g} with a power of {look.equality_power:.0%}"
        )
    print(
        f"assumed standard deviations: {plan.difference_sd:.3g} for the difference at one seed, {study.seed_sd:g} over seeds, {study.prompt_sd:g} over prompts"
    )


def stage_of(file: Path, stage: str | None, known: dict[str, str]) -> Any:
    """`stage`; if it is None, the stage whose settings `file` contains.

    UserError for an unknown stage, for another command's settings, and if several stages fit and the file name does not decide.
    """
    from graph.config import read_yaml
    from modegraph.config_files import check_settings
    from train.plan.jobs import SETTINGS

    names = ", ".join(SETTINGS)
    if stage is not None:
        if stage not in SETTINGS:
            raise UserError(f"--stage {stage}", f"one of {names}", "fix the option")
        return stage
    train_commands = {name: path for name, path in known.items() if name.startswith("train ")}
    fitting = check_settings(str(file), read_yaml(file), train_commands).commands
    stages = [name.removeprefix("train ") for name in fitting]
    if stages[0] not in SETTINGS:
        found = f"{file}: settings of `train {stages[0]}`"
        raise UserError(found, f"settings of one of the stages {names}", "name another file")
    if len(stages) > 1 and file.stem.partition("-")[0] != stages[0]:
        found = f"{file}: settings of `train {'` or `train '.join(stages)}`"
        raise UserError(found, "settings of one stage", "add --stage NAME")
    return stages[0]


def print_plan(file: Path, stage: str, plan: TrainingPlan) -> None:
    """Print the plan of a training run in a few lines."""
    counts, flops, memory, launch, measured = plan.counts, plan.flops, plan.memory, plan.launch, plan.calibration
    packing = "each prompt once for all its responses" if counts.packed else "one sequence per response"
    print(f"{file}: {stage}, {counts.rows:,} rows with {counts.responses:,} responses in all")
    print(f"steps: {counts.steps:,} ({counts.passes:.3g} passes)")
    print(
        f"tokens: {counts.pass_tokens:,} per pass ({packing}), {counts.tokens:,} in all; padding {counts.padding_share:.0%}"
    )
    print(
        f"tokens without gradients: {counts.reference_tokens:,} for the reference, {counts.dev_tokens:,} for dev rows"
    )
    print(
        f"FLOPs: {flops.total:.3g} (training {flops.training:.3g}, reference {flops.reference:.3g}, dev {flops.dev:.3g})"
    )
    sizes = ", ".join(f"{name} {_size(getattr(memory, name))}" for name in ("weights", "gradients", "optimiser"))
    activations = "not measured" if memory.activations is None else _size(memory.activations)
    total = "" if memory.total is None else f", in all {_size(memory.total)}"
    processes = "the process" if launch.processes == 1 else f"each of {launch.processes} processes"
    print(f"memory of {processes}: {sizes}, activations {activations}{total}")
    if measured is None or plan.hours is None:
        print("time: not measured (--trial-steps 0)")
        return
    pace = f"{1e3 * measured.seconds_per_token:.3g} ms per token, {flops.training / counts.tokens / measured.seconds_per_token:.3g} FLOP/s"
    answers = ""
    if counts.answer_sets:
        answers = f"; {counts.answer_sets:,} sets of answers to dev prompts, {measured.answer_seconds:.3g} s each"
    print(f"time: {plan.hours:,.3g} hours ({pace}, {measured.steps} steps on {measured.device}{answers})")


def _size(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"

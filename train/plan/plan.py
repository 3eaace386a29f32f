"""A plan of one training run: its counts from the data, its FLOPs and memory by formula, its hours from a few steps. Nothing is written."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graph.shared.console import say
from train.model.layout import plain_layout
from train.model.packing import TokenizedGroup
from train.plan.batches import positions, shuffled_batches, updates
from train.plan.calibrate import Calibration, calibrate, chosen_rows
from train.plan.flops import Work, forward_flops, total, training_flops
from train.plan.jobs import Job, job_of
from train.plan.launch import Launch
from train.plan.memory import Memory, memory_of
from train.plan.shape import Shape, shape_of
from train.run.loop import check_tracker, quiet_libraries
from train.run.settings import PreferenceSettings, SftSettings, TrainSettings

SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True)
class Counts:
    """Rows and tokens. `pass_tokens` are read in one pass over the data, a prompt once for all its responses where the layout is `packed`;

    `tokens` are those of all passes; `reference_tokens` and `dev_tokens` are read without gradients. Padding comes on top of all of them.
    """

    rows: int
    responses: int
    packed: bool
    prompt_tokens: int
    response_tokens: int
    pass_tokens: int
    padding_share: float
    steps: int
    passes: float
    tokens: int
    reference_tokens: int
    dev_tokens: int


@dataclass(frozen=True)
class Flops:
    """Floating-point operations: of training, of the reference, of dev rows."""

    training: float
    reference: float
    dev: float
    total: float


@dataclass(frozen=True)
class TrainingPlan:
    """What a run takes. Memory is that of each process; hours are None where no step was taken."""

    counts: Counts
    flops: Flops
    memory: Memory
    launch: Launch
    calibration: Calibration | None
    hours: float | None


def plan_training(settings: TrainSettings, launch: Launch, steps: int) -> TrainingPlan:
    """What the run of `settings` takes, from `steps` steps of it (0: by formulas alone); UserError for what the run itself would refuse."""
    quiet_libraries()
    check_tracker(settings.report_to)
    job = job_of(settings)
    shape = shape_of(settings, job.head, job.copies)
    calibration, packed = measure(job, settings, steps) if steps else (None, job.packs)
    counts = count(job, settings, launch, packed)
    flops = flops_of(job, settings, shape, counts)
    return TrainingPlan(
        counts,
        flops,
        memory_of(shape, launch, None if calibration is None else calibration.activations_bytes),
        launch,
        calibration,
        None if calibration is None else hours_of(counts, flops, launch, calibration),
    )


def measure(job: Job, settings: TrainSettings, steps: int) -> tuple[Calibration, bool]:
    """A calibration by the run's own trainer, one batch a step, in a folder that goes; and whether it packs what it can."""
    draw = random.Random(settings.seed)
    rows = chosen_rows([group.tokens for group in job.train], settings.batch_size, steps, draw)
    distinct = list(dict.fromkeys(rows))
    changes: dict[str, object] = {
        "max_steps": steps + 1,
        "gradient_accumulation": 1,
        "save_steps": None,
        "report_to": "none",
        "logging_steps": steps + 2,
    }
    if isinstance(settings, PreferenceSettings):
        changes |= {"reference_cache": None, "sample_steps": None}
    if isinstance(settings, SftSettings):
        changes |= {"eval_steps": None, "patience": None}
    say(f"calibration: {steps} steps and one to measure memory, {settings.batch_size} rows each")
    with tempfile.TemporaryDirectory() as folder:
        trainer = job.trainer_of(distinct, settings.model_copy(update=changes), Path(folder))
        packed = job.packs and trainer.logps_of is not plain_layout
        trainer.train_dataset = [trainer.train_dataset[distinct.index(row)] for row in rows]
        tokens = [job.work(job.train[row], packed).tokens for row in rows]
        return calibrate(trainer, tokens, settings.batch_size), packed


def count(job: Job, settings: TrainSettings, launch: Launch, packed: bool) -> Counts:
    """The counts of the run."""
    work = total(job.work(group, packed) for group in job.train)
    steps, passes = updates(
        len(job.train),
        settings.batch_size,
        launch.processes,
        settings.gradient_accumulation,
        settings.epochs,
        settings.max_steps,
    )
    padded = sum(
        positions([job.train[row] for row in batch], packed, job.row_tokens)
        for batch in shuffled_batches(len(job.train), settings.batch_size, settings.seed)
    )
    tokens = round(work.tokens * passes)
    dev_tokens = _work_of(job, job.dev, packed).tokens
    return Counts(
        rows=len(job.train),
        responses=sum(len(group.responses) for group in job.train),
        packed=packed,
        prompt_tokens=sum(len(group.prompt) for group in job.train),
        response_tokens=sum(len(response) for group in job.train for response in group.responses),
        pass_tokens=work.tokens,
        padding_share=1 - work.tokens / padded,
        steps=steps,
        passes=passes,
        tokens=tokens,
        reference_tokens=_work_of(job, job.before, packed).tokens + job.along * (tokens + dev_tokens),
        dev_tokens=dev_tokens,
    )


def flops_of(job: Job, settings: TrainSettings, shape: Shape, counts: Counts) -> Flops:
    """The operations of the run, padding left out."""
    packed = counts.packed
    batches = [
        _work_of(job, [job.train[row] for row in batch], packed)
        for batch in shuffled_batches(len(job.train), settings.batch_size, settings.seed)
    ]
    training = counts.passes * training_flops(shape, batches, settings.gradient_checkpointing, job.kept_logits)
    dev = forward_flops(shape, _work_of(job, job.dev, packed))
    along = job.along * (counts.passes * forward_flops(shape, total(batches)) + dev)
    reference = forward_flops(shape, _work_of(job, job.before, packed)) + along
    return Flops(training, reference, dev, training + reference + dev)


def hours_of(counts: Counts, flops: Flops, launch: Launch, calibration: Calibration) -> float:
    """Seconds a token times the tokens; passes without gradients by their share of operations, at the same pace.

    Processes take a share of the rows each, but the reference reads all of them in every process. What they tell each other takes
    time that is not known here, and not counted.
    """
    training = calibration.seconds_a_token * counts.tokens
    a_flop = training / flops.training
    return (training / launch.processes + a_flop * (flops.reference + flops.dev / launch.processes)) / SECONDS_AN_HOUR


def _work_of(job: Job, groups: Sequence[TokenizedGroup], packed: bool) -> Work:
    return total(job.work(group, packed) for group in groups)

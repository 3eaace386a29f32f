"""A plan of one training run: counts from the data, FLOPs by formula, memory by formula and from one step, hours from a few steps. It leaves no files.

The trainer shuffles the rows differently, so padding is an estimate; the measured steps are real steps of the trainer, on rows of its data."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from graph.shared.console import SECONDS_PER_HOUR, say
from train.model.load import device
from train.model.packing import TokenizedGroup, first_fit, plain_logps, row_budget
from train.plan.flops import Shape, Work, forward_flops, shape_of, total, training_flops
from train.plan.jobs import Job, job_of
from train.plan.memory import Launch, Memory, memory_of, peak_bytes
from train.run.loop import check_tracker, completion_logits_only, quiet_libraries
from train.run.settings import PreferenceSettings, SftSettings, TrainSettings


def shuffled_batches(rows: int, batch: int, seed: int) -> list[list[int]]:
    """The row numbers of one pass, batch by batch.

    >>> [len(batch) for batch in shuffled_batches(5, 2, seed=0)]
    [2, 2, 1]
    """
    order = random.Random(seed).sample(range(rows), rows)
    return [order[start : start + batch] for start in range(0, rows, batch)]


def padded_tokens(groups: Sequence[TokenizedGroup], packed: bool, row_tokens: int | None, one_row: bool) -> int:
    """Tokens of a batch with padding: packed groups in rows of at most `row_budget` tokens, or one sequence per response, padded to the longest."""
    if not packed:
        lengths = [len(group.prompt) + len(response) for group in groups for response in group.responses]
        return len(lengths) * max(lengths)
    rows = first_fit(groups, row_budget(groups, row_tokens, one_row))
    return len(rows) * max(sum(groups[number].tokens for number in row) for row in rows)


def updates(
    rows: int, batch: int, processes: int, accumulation: int, epochs: float, max_steps: int | None
) -> tuple[int, float]:
    """(optimiser steps, passes over the data), as transformers' Trainer counts them.

    >>> updates(12, 4, processes=1, accumulation=2, epochs=2, max_steps=None)
    (4, 2.0)
    """
    batches_per_process = math.ceil(math.ceil(rows / batch) / processes)
    steps_per_pass = math.ceil(batches_per_process / accumulation)
    steps = max_steps or math.ceil(epochs * steps_per_pass)
    full, rest = divmod(steps, steps_per_pass)
    return steps, full + min(1.0, rest * accumulation / batches_per_process)


def evaluations(settings: TrainSettings, steps: int) -> tuple[int, int]:
    """(passes over the dev rows, sets of answers to dev prompts) of a run of `steps` steps, the evaluation at its end included."""
    if isinstance(settings, SftSettings) and settings.eval_steps is not None:
        passes = math.ceil(steps / settings.eval_steps) + 1  # the Trainer also evaluates after the last step
        return passes, passes
    if isinstance(settings, PreferenceSettings) and settings.sample_steps is not None:
        return 1, steps // settings.sample_steps
    return 1, 0


@dataclass(frozen=True)
class Calibration:
    """A measurement on `device`: seconds for `tokens` in `steps` steps, bytes that a forward pass of the longest batch adds, and seconds for a set of
    answers to dev prompts (0 if the run generates none).
    """

    device: str
    steps: int
    tokens: int
    seconds: float
    activations_bytes: int
    answer_seconds: float = 0.0

    @property
    def seconds_per_token(self) -> float:
        """Seconds per token, for forward, backward and optimiser; padding is included in the time, not in the tokens."""
        return self.seconds / self.tokens


def chosen_rows(tokens: Sequence[int], batch: int, steps: int, rng: Any) -> list[int]:
    """The longest rows for a step that measures memory, then random rows for `steps` timed steps."""
    longest = sorted(range(len(tokens)), key=lambda row: -tokens[row])[:batch]
    random_rows: list[int] = []
    while len(random_rows) < steps * batch:
        random_rows += rng.sample(range(len(tokens)), len(tokens))
    return (longest * batch)[:batch] + random_rows[: steps * batch]


def calibrate(trainer: Any, tokens: Sequence[int], batch: int) -> Calibration:
    """Train on the rows of `trainer` in order (`tokens`: the tokens of each): the first batch measures memory, the others are timed."""
    trainer.args.train_sampling_strategy = "sequential"
    trainer.remove_callback(PrinterCallback)
    clock = _Clock(trainer.model)
    trainer.add_callback(clock)
    with completion_logits_only():
        trainer.train()
    timed_tokens = sum(tokens[batch:])
    return Calibration(device(), len(clock.seconds) - 1, timed_tokens, sum(clock.seconds[1:]), clock.activations_bytes)


class _Clock(TrainerCallback):  # type: ignore[misc]
    """Times each step; in the first one, measures the bytes that a forward pass adds, up to the first gradient."""

    def __init__(self, model: Any) -> None:
        self.seconds: list[float] = []
        self.activations_bytes = 0
        self._started = 0.0
        self._measuring = ExitStack()
        self._model = model

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.seconds:
            self._measure()
        self._started = _now()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds.append(_now() - self._started)
        self._measuring.close()

    def _measure(self) -> None:
        """Record the peak bytes of the forward pass and the loss, up to the first gradient."""
        peak = self._measuring.enter_context(peak_bytes(device()))

        def first_gradient(weight: Any) -> None:
            self.activations_bytes = self.activations_bytes or peak()

        for weight in self._model.parameters():
            if weight.requires_grad:
                handle = weight.register_post_accumulate_grad_hook(first_gradient)
                self._measuring.callback(handle.remove)


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Counts:
    """Rows and tokens. `pass_tokens` are those of one pass over the data, counting a prompt once for all its responses if `packed`.

    `tokens` are those of all passes; `reference_tokens` and `dev_tokens` need no gradients. None of them includes padding, or answers to dev
    prompts; `answer_sets` counts how often these are generated. Early stopping (`patience`) is ignored.
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
    answer_sets: int


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of training, of the reference (`reference_in_steps`: those within the steps) and of dev rows, without answers to them."""

    training: float
    reference: float
    reference_in_steps: float
    dev: float
    total: float


@dataclass(frozen=True)
class TrainingPlan:
    """The cost of a run. Memory is that of each process; hours are None without measured steps."""

    counts: Counts
    flops: Flops
    memory: Memory
    launch: Launch
    calibration: Calibration | None
    hours: float | None


def plan_training(settings: TrainSettings, launch: Launch, steps: int) -> TrainingPlan:
    """The cost of the run of `settings`, from `steps` of its steps (0: by formulas alone); UserError for input that the run itself would reject."""
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
    """A calibration by the run's own trainer, one batch per step, in a temporary folder; and whether the trainer packs rows."""
    rng = random.Random(settings.seed)
    rows = chosen_rows([group.tokens for group in job.train], settings.batch_size, steps, rng)
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
    answering = "" if job.answer_dev is None else ", then answers to dev prompts"
    say(f"calibration: {steps} steps and one to measure memory, rows per step: {settings.batch_size}{answering}")
    with tempfile.TemporaryDirectory() as folder:
        trainer = job.trainer_of(distinct, settings.model_copy(update=changes), Path(folder))
        packed = job.packs and trainer.logps_of is not plain_logps
        trainer.train_dataset = [trainer.train_dataset[distinct.index(row)] for row in rows]
        tokens = [job.work(job.train[row], packed).tokens for row in rows]
        calibration = calibrate(trainer, tokens, settings.batch_size)
        if job.answer_dev is not None:
            started = _now()
            job.answer_dev(trainer.model)
            calibration = replace(calibration, answer_seconds=_now() - started)
        return calibration, packed


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
        padded_tokens([job.train[row] for row in batch], packed, job.row_tokens, one_row=device() == "cpu")
        for batch in shuffled_batches(len(job.train), settings.batch_size, settings.seed)
    )
    tokens = round(work.tokens * passes)
    dev_passes, answer_sets = evaluations(settings, steps)
    dev_tokens = dev_passes * _work_of(job, job.dev, packed).tokens
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
        reference_tokens=_work_of(job, job.reference_groups, packed).tokens
        + job.reference_forwards * (tokens + job.reference_in_dev * dev_tokens),
        dev_tokens=dev_tokens,
        answer_sets=answer_sets,
    )


def flops_of(job: Job, settings: TrainSettings, shape: Shape, counts: Counts) -> Flops:
    """The operations of the run, without padding and without attention across groups; a reference that is another model counts like the trained one."""
    packed = counts.packed
    batches = [
        _work_of(job, [job.train[row] for row in batch], packed)
        for batch in shuffled_batches(len(job.train), settings.batch_size, settings.seed)
    ]
    training = counts.passes * training_flops(shape, batches, settings.gradient_checkpointing, job.max_stored_logits)
    dev = evaluations(settings, counts.steps)[0] * forward_flops(shape, _work_of(job, job.dev, packed))
    in_steps = job.reference_forwards * counts.passes * forward_flops(shape, total(batches))
    in_dev = job.reference_forwards * job.reference_in_dev * dev
    reference = forward_flops(shape, _work_of(job, job.reference_groups, packed)) + in_steps + in_dev
    return Flops(training, reference, in_steps, dev, training + reference + dev)


def hours_of(counts: Counts, flops: Flops, launch: Launch, calibration: Calibration) -> float:
    """Seconds per token times the tokens, in hours, plus the answers to dev prompts; passes without gradients outside the steps are added in proportion to
    their operations.

    The processes share the training and dev rows, but each computes all passes of the reference outside the steps, and all answers. Communication
    between processes is not counted.
    """
    training = calibration.seconds_per_token * counts.tokens
    seconds_per_flop = training / (flops.training + flops.reference_in_steps)
    others = flops.reference - flops.reference_in_steps + flops.dev / launch.processes
    answers = counts.answer_sets * calibration.answer_seconds
    return (training / launch.processes + seconds_per_flop * others + answers) / SECONDS_PER_HOUR


def _work_of(job: Job, groups: Sequence[TokenizedGroup], packed: bool) -> Work:
    return total(job.work(group, packed) for group in groups)

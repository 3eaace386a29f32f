"""Trains a reward model on preference pairs with TRL's RewardTrainer, and adds its rewards, from 0 to 1, to scored responses as a component.

Training starts from a full language model whose head is replaced by a new head with a single output. This output is read at a text's last token
other than the pad token: the end token, or, if a tokenizer pads with its end token, the token before it.
Legend: B texts of a batch, T tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch
from transformers import set_seed
from trl import RewardConfig, RewardTrainer

from data_synth.rows import ResponseRow, response_to_json, split_files
from graph.errors import UserError
from graph.models.checkpoint import is_adapter
from graph.shared.console import track
from graph.shared.jsonl import write_jsonl
from graph.types import Message
from train.model.load import device, load_model, load_tokenizer, without_dropout
from train.model.logps import check_rotation, pad_rows, tokenize_rows
from train.run.data import read_responses, reward_dataset
from train.run.loop import TrainingInputs, lora_config, on_one_gpu, prepare, run_and_save, run_folder, trl_arguments
from train.run.record import RunRecord, read_run
from train.run.save import check_output, fresh_folder
from train.run.settings import RewardSettings

COMPONENT = "reward_model"
SCORING_BATCH_SIZE = 8
DIGITS = 6


@dataclass(frozen=True)
class ScoredData:
    """The numbers of prompts and responses that were scored, and their mean reward."""

    prompts: int
    responses: int
    mean_reward: float


def train_reward(settings: RewardSettings) -> RunRecord:
    """Train a reward model with `settings` and save the run at `settings.output`; UserError before the first step for invalid input."""
    if is_adapter(settings.model):
        found = f"model {settings.model!r} is an adapter of a language model"
        raise UserError(found, "a full model", "start from its base, or merge it first (`train export --merge`)")
    set_seed(settings.seed)
    start = prepare(settings, head="score")
    with run_folder(settings, "reward") as folder:
        return run_and_save(reward_trainer(settings, start, folder), "reward", settings, folder)


def reward_trainer(settings: RewardSettings, start: TrainingInputs, folder: Path) -> RewardTrainer:
    """TRL's trainer, which minimises −log σ(r_chosen − r_rejected) + `center` · (r_chosen + r_rejected)²; `prepare` checks the lengths, so no row is dropped.

    Trained weights are float32: in the base model's bfloat16, a head would lose small updates to rounding.
    """
    without_dropout(start.model)
    arguments = RewardConfig(
        **trl_arguments(settings, start.splits, folder),
        max_length=None,
        disable_dropout=True,
        center_rewards_coefficient=settings.center or None,
    )
    trainer = RewardTrainer(
        model=start.model,
        args=on_one_gpu(arguments),
        train_dataset=reward_dataset(start.splits.train, start.tokenizer),
        eval_dataset=reward_dataset(start.splits.dev, start.tokenizer) if start.splits.dev else None,
        processing_class=start.tokenizer,
        peft_config=lora_config(settings.lora, head="score"),
    )
    for weight in trainer.model.parameters():
        weight.data = weight.data.float() if weight.requires_grad else weight.data
    return trainer


def score_responses(folder: Path, data: Path, output: Path) -> ScoredData:
    """Copy the scored responses of `data`, file by file, to `output`, with the component `reward_model` added, or replaced.

    UserError if `output` exists and is not an empty folder, if `data` is not a folder of responses, or as in `score_texts`; then nothing is written.
    """
    check_output(output)
    files = split_files(data)
    if data.is_file():
        raise UserError(f"{data}: a file", "a folder of scored responses", "give the folder that it is in")
    if not files:
        found = f"{data}: no train.jsonl, dev.jsonl or test.jsonl"
        raise UserError(found, "a folder of scored responses", "make it with `synth responses`")
    by_file = {file.name: read_responses(file) for file in files}
    pairs = [(row.prompt, text) for rows in by_file.values() for row in rows for text in row.responses]
    rewards = score_texts(folder, [prompt for prompt, _ in pairs], [text for _, text in pairs])
    rounded = iter(round(reward, DIGITS) for reward in rewards)
    with fresh_folder(output) as partial:
        for name, rows in by_file.items():
            write_jsonl(partial / name, (response_to_json(with_reward(row, rounded)) for row in rows))
    return ScoredData(sum(map(len, by_file.values())), len(rewards), fmean(rewards))


def with_reward(row: ResponseRow, rewards: Iterator[float]) -> ResponseRow:
    """The row with the next values of `rewards`, one per response, as its component `reward_model`."""
    return replace(row, rewards={**row.rewards, COMPONENT: tuple(islice(rewards, len(row.responses)))})


def score_texts(folder: Path, prompts: Sequence[Sequence[Message]], responses: Sequence[str]) -> list[float]:
    """σ(r) of each response to its prompt, 0 to 1, in order. Padding is on the right, where no token of the text attends to it.

    UserError if `folder` is not a run of `train reward`, or for a text beyond the model's context.
    """
    record = read_run(folder)
    if record.stage != "reward":
        raise UserError(f"{folder}: a run of `train {record.stage}`", "a run of `train reward`", "name another folder")
    tokenizer = load_tokenizer(str(folder))
    rows = tokenize_rows(tokenizer, list(zip(prompts, responses, strict=True)))
    model = load_model(str(folder), record.settings["precision"], head="score").to(device()).eval()
    config = model.config.get_text_config()
    config.pad_token_id = tokenizer.pad_token_id
    longest = max((len(row.ids) for row in rows), default=0)
    window = getattr(config, "max_position_embeddings", sys.maxsize)
    if longest > window:
        number = [len(row.ids) for row in rows].index(longest)
        found = f"a prompt and response of {longest:,} tokens together; the response is {responses[number]!r:.60}"
        expected = f"at most the model's context of {window:,} tokens"
        raise UserError(found, expected, "leave the row out")
    check_rotation(config, [len(row.ids) for row in rows])
    batches = [rows[first : first + SCORING_BATCH_SIZE] for first in range(0, len(rows), SCORING_BATCH_SIZE)]
    rewards: list[float] = []
    with torch.no_grad():
        for batch in track(batches, "responses scored", len(rows), len):
            input_ids_BT, _ = pad_rows(batch, config.pad_token_id)
            rewards_B = model(input_ids=input_ids_BT.to(model.device), use_cache=False).logits[:, 0]
            rewards += torch.sigmoid(rewards_B.float()).tolist()
    return rewards

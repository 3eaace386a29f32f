"""A stand-in for a pretrained model: a tokenizer and a tiny Llama trained on local texts.

Fast tests and `make examples` use it as "the untuned model". It has the chat format of small pretrained models
(<|im_start|>role … <|im_end|>), so all later steps run as with those models.
Legend: B rows of a batch, T tokens of a row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    get_linear_schedule_with_warmup,
    set_seed,
)

from graph.answer.prompt import ANSWER, REASON, answer_messages
from graph.documents.read import read_documents
from graph.errors import UserError
from graph.shared.console import say, track
from graph.shared.progress import note_progress
from graph.text.prompting import escape_special_tokens
from train.run.data import read_preferences
from train.run.loop import quiet_libraries
from train.run.record import RunRecord
from train.run.save import Outcome, about_run, fresh_folder, run_record, save_run
from train.run.settings import TinySettings

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
STEPS_PER_LOG_ROW = 10


def train_tiny(settings: TinySettings) -> RunRecord:
    """Train a tokenizer and a Llama on the texts, and save the run at `settings.output`; UserError for missing or too few texts, or an invalid hidden_size."""
    quiet_libraries()
    with fresh_folder(Path(settings.output), about=about_run("tiny", settings)) as folder:
        texts = read_texts(Path(settings.texts))
        tokenizer = train_tokenizer(texts, settings.vocabulary, settings.context_tokens)
        model = new_llama(settings, tokenizer)
        outcome = pretrain(model, token_stream(texts, tokenizer), settings, folder)
        record = run_record("tiny", "none (trained from random weights)", settings.texts, settings, outcome)
        save_run(folder, model, tokenizer, record, outcome.log)
    return record


def read_texts(source: Path) -> list[str]:
    """The texts of documents (a folder or a .jsonl file, as `index` takes them) or the last turns of the prompts of a preference-data folder."""
    if (source / "train.jsonl").exists():
        prompts = [row.prompt for row in read_preferences(source / "train.jsonl")]
        return list(dict.fromkeys(prompt[-1].content for prompt in prompts))
    return [document.text for document in read_documents(source, note=say)]


def train_tokenizer(texts: Sequence[str], vocabulary: int, context_tokens: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer (any text round-trips) with pad, start and end tokens and the chat template.

    The words that every prompt and answer contains are added once per text, so that they take few tokens.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    form = "\n".join([*(message.content for message in answer_messages("?", ())), f"Passages: {REASON} {ANSWER}"])
    core.train_from_iterator([*texts, *[form] * len(texts)], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, eos_token=END, model_max_length=context_tokens, padding_side="right"
    )
    tokenizer.chat_template = files("train").joinpath("prompts/tiny_chat_template.txt").read_text(encoding="utf-8")
    return tokenizer


def new_llama(settings: TinySettings, tokenizer: PreTrainedTokenizerFast) -> Any:
    """A Llama with random weights, which the seed determines; input and output embeddings are one matrix."""
    if settings.hidden_size % (2 * settings.heads):
        found = f"hidden_size = {settings.hidden_size} with heads = {settings.heads}"
        raise UserError(found, "heads of an even integer width", "set hidden_size to a multiple of 2 x heads")
    set_seed(settings.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=3 * settings.hidden_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=settings.context_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def token_stream(texts: Sequence[str], tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """All texts end to end, each followed by a blank line: int64[tokens]. They contain no end token, which only fine-tuning teaches."""
    plain = (escape_special_tokens(f"{text}\n\n", tokenizer) for text in texts)
    return torch.tensor([token for text in plain for token in tokenizer(text)["input_ids"]])


def random_blocks(stream: Tensor, batch_size: int, block_tokens: int, steps: int, seed: int) -> Iterator[Tensor]:
    """`steps` batches int64[B, T] of random windows of the stream, the same for the same seed."""
    if len(stream) <= block_tokens:
        found = f"the texts have {len(stream)} tokens"
        raise UserError(found, f"more than block_tokens = {block_tokens}", "give more text, or set block_tokens lower")
    generator = torch.Generator().manual_seed(seed)
    offsets_T = torch.arange(block_tokens)
    for _ in range(steps):
        starts_B = torch.randint(len(stream) - block_tokens, (batch_size,), generator=generator)
        yield stream[starts_B[:, None] + offsets_T]


def pretrain(model: Any, stream: Tensor, settings: TinySettings, folder: Path) -> Outcome:
    """Train in place with AdamW, at a learning rate that rises for a tenth of the steps, then falls to 0; progress is recorded in `folder`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.1)
    schedule = get_linear_schedule_with_warmup(optimizer, settings.steps // 10, settings.steps)
    batches = random_blocks(stream, settings.batch_size, settings.block_tokens, settings.steps, settings.seed)
    log: list[dict[str, float]] = []
    start = time.perf_counter()
    for step, ids_BT in enumerate(track(batches, "tiny: steps", settings.steps), start=1):
        loss = model(input_ids=ids_BT, labels=ids_BT).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % STEPS_PER_LOG_ROW == 0 or step == settings.steps:
            figures = {"loss": loss.item(), "learning_rate": schedule.get_last_lr()[0]}
            log.append({"step": step, **figures})
            note_progress(folder, step, settings.steps, figures)
    metrics = {
        "train_loss": log[-1]["loss"],
        "train_steps": float(settings.steps),
        "parameters": float(model.num_parameters()),
    }
    return Outcome(log, metrics, time.perf_counter() - start)

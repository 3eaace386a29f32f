"""Preference data before the first step: read it, and reject rows that a trainer would silently truncate, drop or fail on.

A data folder has `train.jsonl` and optionally `dev.jsonl`: one PreferenceRow per line, or one ResponseRow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from data_synth.rows import (
    PreferenceRow,
    ResponseRow,
    Sampling,
    preference_from_json,
    response_from_json,
    tuple_from_json,
    turns_from_json,
)
from graph.answer.citations import short_answer
from graph.answer.prompt import NOT_FOUND, form_of, is_no_answer
from graph.errors import UserError
from graph.shared.ids import checksum
from graph.shared.jsonl import read_jsonl
from graph.types import AnswerForm, Message

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    from train.model.logps import TokenizedRow

R = TypeVar("R")

NO_LABEL = -100
"""The label of a token that no loss counts (PyTorch's `ignore_index`)."""


@dataclass(frozen=True)
class Splits:
    """The training rows of a run, and its dev rows (empty without a dev.jsonl)."""

    train: tuple[PreferenceRow, ...]
    dev: tuple[PreferenceRow, ...]


def read_splits(folder: Path) -> Splits:
    """`train.jsonl` and, if there is one, `dev.jsonl` of a data folder; UserError as in `read_preferences`."""
    dev = folder / "dev.jsonl"
    train_rows = read_preferences(folder / "train.jsonl")
    return Splits(tuple(train_rows), tuple(read_preferences(dev)) if dev.exists() else ())


def read_preferences(file: Path) -> list[PreferenceRow]:
    """All rows of a preference file, checked; UserError with the line number of the first bad row, or if there are no rows."""
    return _read_rows(file, preference_from_json, check_row, "preferences", "prompt, chosen or rejected")


def read_responses(file: Path) -> list[ResponseRow]:
    """All rows of a file of scored responses, checked; UserError as in `read_preferences`."""
    return _read_rows(file, response_from_json, check_responses, "responses", "prompt, responses or rewards")


@dataclass(frozen=True)
class Prompt:
    """A prompt to sample responses to: a row without responses, and the numbers of its gold passages (None: its data do not name them)."""

    row: ResponseRow
    gold: frozenset[int] | None


def read_prompts(file: Path) -> list[Prompt]:
    """The distinct prompts of a file of reading rows, preferences or scored responses, in order; UserError as in `read_preferences`."""

    def check(prompt: Prompt, where: str) -> None:
        check_prompt(prompt.row.prompt, where)

    rows = _read_rows(file, prompt_from_json, check, "reading", "prompt, answers or context_ids")
    return list({prompt.row.prompt: prompt for prompt in rows}.values())


def prompt_from_json(row: Mapping[str, Any]) -> Prompt:
    """The prompt of a row; without accepted answers, "not in the documents" is the accepted one. Raises as in `preference_from_json`."""
    passages = tuple_from_json(row["context_ids"])
    gold = set(tuple_from_json(row["gold_ids"])) if "gold_ids" in row else None
    return Prompt(
        ResponseRow(
            id=row["id"],
            prompt=turns_from_json(row["prompt"]),
            responses=(),
            rewards={},
            question_id=row["question_id"],
            question=row["question"],
            answers=tuple_from_json(row["answers"]) or (NOT_FOUND,),
            kind=row["kind"],
            split="train",
            context_size=len(passages),
            context_ids=passages,
            sampling=Sampling(0, 0.0, 0, 0),
            policy="",
        ),
        None if gold is None else frozenset(n for n, passage in enumerate(passages, start=1) if passage in gold),
    )


def refuses(response: str) -> bool:
    """Whether a response of any answer form refuses.

    >>> refuses("not in the documents [1]"), refuses("###Reason: No passage says so. ###Answer: Not in the documents."), refuses("Tarn [1]")
    (True, True, False)
    """
    return is_no_answer(short_answer(response))


def rows_fingerprint(source: Path) -> str:
    """Hash of the bytes of `train.jsonl` in a data folder, or of a file itself; "" for anything else (a folder of documents)."""
    file = source / "train.jsonl" if source.is_dir() else source
    return checksum(file) if file.is_file() else ""


def form_of_rows(source: Path) -> AnswerForm | None:
    """The answer form that the first prompt of `train.jsonl` in a data folder requests; None if there is no prompt, or the form is not one of ours."""
    file = source / "train.jsonl"
    _, first = next(read_jsonl(file), (0, {})) if file.is_file() else (0, {})
    try:
        prompt = first.get("prompt") or first["messages"]
        instructions = prompt if isinstance(prompt, str) else prompt[0]["content"]
    except (KeyError, IndexError, TypeError):
        return None
    return form_of(str(instructions))


def contains_responses(file: Path) -> bool:
    """Whether the first row of a file has scored responses, not a pair; UserError for a file without rows."""
    for _, values in read_jsonl(file):
        return "responses" in values
    raise UserError(f"{file}: no rows", "one row per line", "write it with `synth preferences` or `synth responses`")


def _read_rows(
    file: Path, parse: Callable[[Mapping[str, Any]], R], check: Callable[[R, str], None], kind: str, columns: str
) -> list[R]:
    rows: list[R] = []
    remedy = f"write it with `synth {kind}`"
    for line, values in read_jsonl(file):
        where = f"{file} line {line}"
        try:
            row = parse(values)
        except KeyError as missing:
            raise UserError(f"{where}: no {missing}", f"a row of `synth {kind}`", remedy) from None
        except ValueError as problem:
            raise UserError(f"{where}: {problem}", f"a row of `synth {kind}`", remedy) from None
        except (TypeError, IndexError, AttributeError) as problem:
            found = f"{where}: {columns} is malformed ({problem})"
            raise UserError(found, f"a row of `synth {kind}`", remedy) from None
        check(row, where)
        rows.append(row)
    if not rows:
        raise UserError(f"{file}: no rows", f"one row of `synth {kind}` per line", remedy)
    return rows


def check_row(row: PreferenceRow, where: str) -> None:
    """UserError if a row has no usable preference: an empty side, two equal sides, a prompt that does not end with a user turn."""
    for side, text in (("chosen", row.chosen), ("rejected", row.rejected)):
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{where}: the {side} completion is {text!r}", "a non-empty string", "remove the row")
    if row.chosen == row.rejected:
        raise UserError(f"{where}: chosen and rejected are the same text", "two different answers", "remove the row")
    check_prompt(row.prompt, where)


def check_prompt(prompt: Sequence[Message], where: str) -> None:
    """UserError if a prompt does not end with a user turn, or the content of a turn is not text."""
    if not prompt or prompt[-1].role != "user":
        raise UserError(f"{where}: the prompt does not end with a user turn", "a question to answer", "fix the row")
    for turn in prompt:
        if not isinstance(turn.content, str):
            found = f"{where}: the content of the {turn.role} turn is {turn.content!r:.60}"
            raise UserError(found, "a string", "fix the row")


def check_responses(row: ResponseRow, where: str) -> None:
    """UserError if a row has no usable preference: fewer than two responses, an empty one, a repeated one
    (unless `sampling.as_drawn`), rewards that do not match the responses, or a prompt that does not end with a user turn.
    """
    for number, text in enumerate(row.responses, start=1):
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{where}: response {number} is {text!r}", "a non-empty string", "remove the row")
    distinct = len(row.responses) if row.sampling.as_drawn else len(set(row.responses))
    if distinct < max(2, len(row.responses)):
        found = f"{where}: {len(row.responses)} responses, {len(set(row.responses))} of them distinct"
        raise UserError(found, "at least two, all distinct", "remove the row")
    for component, values in row.rewards.items():
        finite = all(isinstance(value, int | float) and math.isfinite(value) for value in values)
        if len(values) != len(row.responses) or not finite:
            found = f"{where}: reward {component!r} is {list(values)!r:.80}"
            raise UserError(found, f"{len(row.responses)} finite numbers", "recompute the rewards")
    check_prompt(row.prompt, where)


def check_lengths(
    splits: Splits, tokenizer: PreTrainedTokenizerBase, max_length_tokens: int, folder: Path
) -> list[int]:
    """The lengths, in tokens, of both completions of every row, each with its prompt; UserError as in `check_fit`."""
    lengths: list[int] = []
    for name, rows in vars(splits).items():
        pairs = [[len(side.ids) for side in pair] for pair in tokenized_pairs(rows, tokenizer)]
        check_fit([max(pair) for pair in pairs], max_length_tokens, folder / f"{name}.jsonl")
        lengths += chain(*pairs)
    return lengths


def check_fit(lengths: Sequence[int], max_length_tokens: int, file: Path) -> None:
    """UserError with the number of rows longer than `max_length_tokens`; truncation would remove the answer and its end token."""
    too_long = [number for number, length in enumerate(lengths, start=1) if length > max_length_tokens]
    if too_long:
        longest = max(lengths)
        raise UserError(
            f"{file}: {len(too_long)} of {len(lengths)} rows are longer than max_length_tokens = {max_length_tokens} "
            f"(the first is row {too_long[0]} with {lengths[too_long[0] - 1]} tokens, the longest has {longest})",
            "rows within this limit",
            f"set max_length_tokens to {longest}, or shorten the contexts",
        )


def pair_dataset(rows: Sequence[PreferenceRow], tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """The token columns of TRL's DPOTrainer: prompt_ids, and the completions chosen_ids and rejected_ids."""
    return _dataset(
        {"prompt_ids": chosen.prompt, "chosen_ids": chosen.completion, "rejected_ids": rejected.completion}
        for chosen, rejected in tokenized_pairs(rows, tokenizer)
    )


def labelled_pair_dataset(rows: Sequence[PreferenceRow], tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """The token columns of TRL's CPOTrainer and ORPOTrainer: the prompt, and each completion with its prompt; the labels mask the prompt."""

    def columns(side: str, row: TokenizedRow) -> dict[str, Sequence[int]]:
        labels = (*[NO_LABEL] * row.prompt_tokens, *row.completion)
        return {f"{side}_input_ids": row.ids, f"{side}_attention_mask": [1] * len(row.ids), f"{side}_labels": labels}

    return _dataset(
        {
            "prompt_input_ids": chosen.prompt,
            "prompt_attention_mask": [1] * chosen.prompt_tokens,
            **columns("chosen", chosen),
            **columns("rejected", rejected),
        }
        for chosen, rejected in tokenized_pairs(rows, tokenizer)
    )


def reward_dataset(rows: Sequence[PreferenceRow], tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """The token columns of TRL's RewardTrainer: chosen_ids and rejected_ids, each with its prompt."""
    pairs = tokenized_pairs(rows, tokenizer)
    return _dataset({"chosen_ids": chosen.ids, "rejected_ids": rejected.ids} for chosen, rejected in pairs)


def tokenized_pairs(rows: Sequence[PreferenceRow], tokenizer: PreTrainedTokenizerBase) -> Iterator[list[TokenizedRow]]:
    """The chosen and the rejected completion of each row, with its prompt."""
    from train.model.logps import tokenize_rows

    for row in rows:
        yield tokenize_rows(tokenizer, [(row.prompt, text) for text in (row.chosen, row.rejected)])


def _dataset(columns: Iterable[Mapping[str, Sequence[int]]]) -> Dataset:
    from datasets import Dataset

    return Dataset.from_list([{name: list(ids) for name, ids in row.items()} for row in columns])

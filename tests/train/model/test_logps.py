"""Summed log-probabilities compared with a slow reference, and tokens compared with those of TRL's trainers."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from data_synth.rows import PreferenceRow, preference_to_json
from graph.answer.template import prompt_ids
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from graph.types import Message
from tests.places import ROOT
from tests.train.world import preference
from train.model.load import load_policy, load_tokenizer
from train.model.logps import TokenizedRow, completion_logps, pad_rows, tokenize_row, tokenize_rows
from train.run.conversations import read_conversations
from train.run.data import pair_dataset

ROWS = (
    TokenizedRow((5, 6, 7, 300, 301, 2), 3),
    TokenizedRow((5, 6, 7, 8, 9, 10, 40, 2), 6),
    TokenizedRow((11, 12, 2), 2),
)


def slow_logps(model: torch.nn.Module, row: TokenizedRow) -> float:
    """The log-probability of one completion: its sequence alone, one token at a time, with the softmax in float64."""
    total = 0.0
    for position in range(row.prompt_tokens, len(row.ids)):
        logits = model(input_ids=torch.tensor([row.ids[:position]])).logits[0, -1].double()
        total += (logits[row.ids[position]] - logits.logsumexp(dim=0)).item()
    return total


@torch.no_grad()
def test_logps_are_sums_that_include_the_end_token_and_equal_the_slow_reference(base: Path) -> None:
    model, tokenizer = load_policy(str(base))
    expected = [slow_logps(model, row) for row in ROWS]
    logps = completion_logps(model, *pad_rows(ROWS, tokenizer.pad_token_id))
    assert logps.dtype == torch.float32
    assert logps.tolist() == pytest.approx(expected, abs=1e-4)
    assert expected[0] < 3 * expected[2] / 2, (
        "the values should be sums, not means: the value for three tokens should be below 1.5 times the value for one token"
    )


@torch.no_grad()
def test_padding_and_batching_change_nothing(base: Path) -> None:
    model, _ = load_policy(str(base))
    alone = [completion_logps(model, *pad_rows([row], 0)).item() for row in ROWS]
    for pad_id in (0, 2, 77):
        assert completion_logps(model, *pad_rows(ROWS, pad_id)).tolist() == pytest.approx(alone, abs=1e-4)


def test_logits_are_computed_only_where_a_completion_is_predicted(base: Path) -> None:
    model, _ = load_policy(str(base))
    widths: list[int] = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: widths.append(output.shape[1]))
    completion_logps(model, *pad_rows(ROWS[:1], 0))
    assert widths == [3]


def test_the_prompt_itself_contributes_nothing(base: Path) -> None:
    """With an empty mask the sum is 0; with a mask of the last token alone it is the log-probability of that token."""
    model, _ = load_policy(str(base))
    ids, mask = pad_rows(ROWS[:1], 0)
    assert completion_logps(model, ids, torch.zeros_like(mask)).tolist() == [0.0]
    last = TokenizedRow(ROWS[0].ids, len(ROWS[0].ids) - 1)
    assert completion_logps(model, *pad_rows([last], 0)).item() == pytest.approx(slow_logps(model, last), abs=1e-4)


def test_pad_rows_marks_completions() -> None:
    ids, mask = pad_rows(ROWS, 0)
    assert ids[2].tolist() == [11, 12, 2, 0, 0, 0, 0, 0]
    assert mask.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 1, 0, 0, 0, 0, 0]]


def test_tokens_equal_those_of_trl_for_a_template_without_thinking(base: Path, tmp_path: Path) -> None:
    """The references are two TRL trainers, which tokenise the turns themselves."""
    model, tokenizer = load_policy(str(base))
    rows = [preference(number) for number in range(12)]

    def turns(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    def columns(row: PreferenceRow, **sides: str) -> dict[str, list[dict[str, str]]]:
        prompt = [{"role": turn.role, "content": turn.content} for turn in row.prompt]
        return {"prompt": prompt, **{name: turns("assistant", text) for name, text in sides.items()}}

    pairs = Dataset.from_list([columns(row, chosen=row.chosen, rejected=row.rejected) for row in rows])
    common = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "max_length": None}
    by_pairs = DPOTrainer(model, args=DPOConfig(**common), train_dataset=pairs, processing_class=tokenizer)
    singles = Dataset.from_list([columns(row, completion=row.chosen) for row in rows])
    by_sft = SFTTrainer(model, args=SFTConfig(**common), train_dataset=singles, processing_class=tokenizer)
    for row, pair, single in zip(rows, by_pairs.train_dataset, by_sft.train_dataset, strict=True):
        for completion, side in ((row.chosen, "chosen_ids"), (row.rejected, "rejected_ids")):
            ours = tokenize_row(tokenizer, row.prompt, completion)
            assert list(ours.ids) == pair["prompt_ids"] + pair[side]
            assert ours.prompt_tokens == len(pair["prompt_ids"])
            assert ours.ids[-1] == tokenizer.eos_token_id
        ours = tokenize_row(tokenizer, row.prompt, row.chosen)
        assert list(ours.ids) == single["input_ids"]
        assert [label != -100 for label in single["labels"]] == [t >= ours.prompt_tokens for t in range(len(ours.ids))]


def test_rows_are_tokenised_the_same_together_and_alone(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Covers batches with a remainder, several answers to a prompt, and an empty list; the prompts equal those of the function that the server uses."""
    tokenizer = load_tokenizer(str(base))
    chats = [(row.prompt, text) for row in map(preference, range(3)) for text in (row.chosen, row.rejected)]
    monkeypatch.setattr("train.model.logps.ROWS_PER_BATCH", 4)
    together = tokenize_rows(tokenizer, chats)
    assert together == [tokenize_row(tokenizer, *chat) for chat in chats]
    for row, (messages, _) in zip(together, chats, strict=True):
        assert list(row.ids[: row.prompt_tokens]) == prompt_ids(tokenizer, messages)
    assert len(set(together)) == len(chats) and tokenize_rows(tokenizer, []) == []


COUNT_NEW_THREADS = """
import os, sys
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from graph.types import Message
from train.model.load import load_tokenizer
from train.model.logps import tokenize_rows
tokenizer, texts = load_tokenizer(sys.argv[1]), [f"How old is {n}?" for n in range(200)]
threads = lambda: len(os.listdir("/proc/self/task"))
tokenizer(texts)
before = threads()
tokenize_rows(tokenizer, [((Message("user", text),), "yes") for text in texts])
print(threads() - before, os.environ["TOKENIZERS_PARALLELISM"])
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_rows_are_tokenised_on_every_core(base: Path) -> None:
    """All cores are used even if the environment limits tokenizers to one core, as modegraph does; the limit is restored afterwards."""
    child = subprocess.run(
        [sys.executable, "-P", "-c", COUNT_NEW_THREADS, str(base)], cwd=ROOT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    more, setting = child.stdout.split()
    assert (int(more), setting) == (os.cpu_count(), "false")


def test_a_template_without_the_end_token_is_refused(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    with pytest.raises(UserError, match=r"without '<\|im_end\|>'"):
        tokenize_row(tokenizer, [Message("user", "Where?")], "Here.")


def test_rows_that_differ_only_in_the_rejected_response_count_once_for_sft(base: Path, tmp_path: Path) -> None:
    row, tokenizer = preference(1), load_tokenizer(str(base))
    rows = (row, replace(row, rejected="somewhere", hard_negative="length"))
    write_jsonl(tmp_path / "train.jsonl", map(preference_to_json, rows))
    assert [one.completion for one in read_conversations(tmp_path / "train.jsonl")] == [row.chosen]
    assert len(pair_dataset(rows, tokenizer)) == 2

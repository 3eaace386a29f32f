"""Summed log-probabilities against a slow twin, and tokens against those that TRL's trainers cut."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graph.errors import UserError
from graph.types import Message
from tests.train.world import preference
from train.data import Splits, both_sides, chosen_side, pair_dataset, sft_dataset
from train.logps import TokenizedRow, common_prefix_length, completion_logps, pad_rows, tokenize_row
from train.loop import prepare
from train.models import load_policy, load_tokenizer
from train.pairs import pair_trainer
from train.settings import DpoSettings, SftSettings
from train.sft import sft_trainer

ROWS = (
    TokenizedRow((5, 6, 7, 300, 301, 2), 3),
    TokenizedRow((5, 6, 7, 8, 9, 10, 40, 2), 6),
    TokenizedRow((11, 12, 2), 2),
)


def slow_logps(model: torch.nn.Module, row: TokenizedRow) -> float:
    """One sequence alone, one token at a time, every logit in float64."""
    total = 0.0
    for position in range(row.prompt_tokens, len(row.ids)):
        logits = model(input_ids=torch.tensor([row.ids[:position]])).logits[0, -1].double()
        total += (logits[row.ids[position]] - logits.logsumexp(dim=0)).item()
    return total


@torch.no_grad()
def test_equal_to_the_slow_twin_summed_and_with_the_end_token(base: Path) -> None:
    model, tokenizer = load_policy(str(base))
    expected = [slow_logps(model, row) for row in ROWS]
    logps = completion_logps(model, *pad_rows(ROWS, tokenizer.pad_token_id))
    assert logps.dtype == torch.float32
    assert logps.tolist() == pytest.approx(expected, abs=1e-4)
    assert expected[0] < 3 * expected[2] / 2, "three tokens cost more than one: summed, not averaged"


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
    """Nothing masked, nothing summed; and a mask on the last token alone leaves that token's own log-probability."""
    model, _ = load_policy(str(base))
    ids, mask = pad_rows(ROWS[:1], 0)
    assert completion_logps(model, ids, torch.zeros_like(mask)).tolist() == [0.0]
    last = TokenizedRow(ROWS[0].ids, len(ROWS[0].ids) - 1)
    assert completion_logps(model, *pad_rows([last], 0)).item() == pytest.approx(slow_logps(model, last), abs=1e-4)


def test_pad_rows_marks_completions() -> None:
    ids, mask = pad_rows(ROWS, 0)
    assert ids[2].tolist() == [11, 12, 2, 0, 0, 0, 0, 0]
    assert mask.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 1, 0, 0, 0, 0, 0]]
    assert common_prefix_length([], [1]) == 0
    assert common_prefix_length([1, 2], [1, 2, 3]) == 2


def test_tokens_equal_those_of_both_trl_trainers(base: Path, data: Path, tmp_path: Path) -> None:
    common = {"model": str(base), "data": str(data), "output": str(tmp_path / "run")}
    start = prepare(DpoSettings(**common), both_sides)
    trainer = pair_trainer(DpoSettings(**common), start, tmp_path / "pairs", None)
    rows = start.splits.train
    assert len(trainer.train_dataset) == len(rows)
    for row, cut in zip(rows, trainer.train_dataset, strict=True):
        for completion, side in ((row.chosen, "chosen_ids"), (row.rejected, "rejected_ids")):
            ours = tokenize_row(start.tokenizer, row.prompt, completion)
            assert list(ours.ids) == cut["prompt_ids"] + cut[side]
            assert ours.prompt_tokens == len(cut["prompt_ids"])
            assert ours.ids[-1] == start.tokenizer.eos_token_id

    sft = SftSettings(**common)
    trainer = sft_trainer(sft, prepare(sft, chosen_side), tmp_path / "sft")
    for row, cut in zip(rows, trainer.train_dataset, strict=True):
        ours = tokenize_row(start.tokenizer, row.prompt, row.chosen)
        assert list(ours.ids) == cut["input_ids"]
        assert [label != -100 for label in cut["labels"]] == [t >= ours.prompt_tokens for t in range(len(ours.ids))]


def test_a_template_without_the_end_token_is_refused(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    with pytest.raises(UserError, match=r"without '<\|im_end\|>'"):
        tokenize_row(tokenizer, [Message("user", "Where?")], "Here.")


def test_rows_that_differ_in_the_rejected_side_alone_count_once_for_sft() -> None:
    row = preference(1)
    rows = Splits((row, replace(row, rejected="somewhere", control="length")), ()).train
    assert len(sft_dataset(rows)) == 1
    assert len(pair_dataset(rows)) == 2

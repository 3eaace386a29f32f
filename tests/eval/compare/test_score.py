"""Log-probabilities of pairs compared with a slow reference."""

import pytest
import torch

from eval.compare.compare import score_pairs
from eval.comparison import read_rows
from train.model.load import load_policy


def slow_logp(model, tokenizer, row, completion: str) -> tuple[float, int]:
    """(log π, number of tokens) of a completion, computed without batching: the log-probabilities of its tokens, from the full softmax, added one by one."""
    turns = [{"role": turn.role, "content": turn.content} for turn in row.prompt]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template([*turns, {"role": "assistant", "content": completion}], tokenize=False)
    prompt_ids, ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, whole))
    assert ids[: len(prompt_ids)] == prompt_ids
    logits = model(input_ids=torch.tensor([ids])).logits[0].double()
    places = range(len(prompt_ids), len(ids))
    total = sum(torch.log_softmax(logits[place - 1], dim=-1)[ids[place]].item() for place in places)
    return total, len(ids) - len(prompt_ids)


def test_scores_equal_the_slow_reference(world):
    model, tokenizer = load_policy(str(world.sft))
    rows = read_rows(world.data, "test")[3:9]
    scores = score_pairs(model, tokenizer, rows)
    with torch.no_grad():
        for row, score in zip(rows, scores, strict=True):
            chosen, chosen_tokens = slow_logp(model, tokenizer, row, row.chosen)
            rejected, rejected_tokens = slow_logp(model, tokenizer, row, row.rejected)
            assert (score.chosen_tokens, score.rejected_tokens) == (chosen_tokens, rejected_tokens)
            assert score.chosen_logp == pytest.approx(chosen, abs=2e-3)
            assert score.rejected_logp == pytest.approx(rejected, abs=2e-3)


def test_batches_do_not_change_scores(world):
    model, tokenizer = load_policy(str(world.sft))
    rows = read_rows(world.data, "test")
    together = score_pairs(model, tokenizer, rows)
    alone = [score for row in rows for score in score_pairs(model, tokenizer, [row])]
    for one, other in zip(together, alone, strict=True):
        assert one.chosen_logp == pytest.approx(other.chosen_logp, abs=1e-3)
        assert one.rejected_logp == pytest.approx(other.rejected_logp, abs=1e-3)

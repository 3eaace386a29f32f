"""Anchored refusals: the loss equals a calculation by hand and a slow reference; where the prompts do not differ, the log-odds of
refusing do not change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus
from transformers import AutoModelForCausalLM

from data_synth.reading.reading_rows import ReadingSettings, reading_rows
from data_synth.rows import ReadingRow, preference_to_json, reading_to_json
from graph.answer.prompt import NOT_FOUND, format_answer
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.data_synth.reading.world import isles
from tests.train.test_sft import base, reading, settings_of  # noqa: F401
from tests.train.world import preference
from train.model.load import load_tokenizer
from train.model.packing import TokenizedGroup, plain_logps
from train.refusals import (
    AnchoredRefusals,
    answers_and_refusals,
    at_weights,
    check_refusals,
    log_complement,
    log_odds,
    refusal_signs,
    trained_weights,
    with_refusals,
)
from train.sft import answer_tokens, read_sft_data, sft_trainer

REFUSAL = (5, 6, 2)


def test_rows_are_classified_by_whether_they_refuse() -> None:
    """A refusal, an answer, and an answer that begins like a refusal; the first two are a group, whose prompts share their first token."""
    groups = [TokenizedGroup((1,), ((4, *REFUSAL), (3, 7, 2)), (1, 1)), TokenizedGroup((1,), ((5, 7, 2),))]
    probed = [with_refusals(group, REFUSAL[0]) for group in groups]
    assert probed[0].responses[2:] == ((4, 5), (3, 5)) and probed[1].responses[1:] == ((5,),)
    assert refusal_signs(probed, REFUSAL).tolist() == [1, -1, 0]


def test_rows_whose_first_tokens_do_not_distinguish_refusals_are_refused(base: Path, tmp_path: Path) -> None:  # noqa: F811
    """A template may start every completion alike; in the form `reasoned`, the reason comes before a refusal."""
    alike = [with_refusals(TokenizedGroup((1,), (REFUSAL, (5, 7, 2))), REFUSAL[0])]
    with pytest.raises(UserError, match="all 2 completions begin with the same token as a refusal"):
        check_refusals(alike, REFUSAL, 1)
    check_refusals(alike, REFUSAL, 2)
    rows = [replace(preference(0), chosen=format_answer("No passage says so", NOT_FOUND)), preference(1)]
    write_jsonl(tmp_path / "train.jsonl", map(preference_to_json, rows))
    settings = settings_of(base, tmp_path, tmp_path / "run", anchor_refusals=True)
    with pytest.raises(UserError, match="1 of 2 rows refuse, and none of them begins like 'not in the documents'"):
        read_sft_data(settings, load_tokenizer(str(base)))
    write_jsonl(tmp_path / "train.jsonl", [preference_to_json(preference(1))])
    read_sft_data(settings, load_tokenizer(str(base)))


def loss_by_hand(answers: Tensor, refusals: Tensor, initial: Tensor, kinds: Sequence[int]) -> Tensor:
    """The loss of rows from its definition, computed with probabilities; kind 1 is a refusal, −1 an answer, 0 an answer that begins like a refusal."""
    counts = {kind: kinds.count(kind) for kind in (-1, 1)}
    total = torch.zeros((), dtype=torch.float64)
    for row, kind in enumerate(kinds):
        p, p_0 = refusals[row].double().exp(), initial[row].double().exp()
        moved = (p / (1 - p)).log() - (p_0 / (1 - p_0)).log()
        total = total - answers[row]
        if kind:
            total = total + (p if kind > 0 else 1 - p).log()
            total = total - sum(counts.values()) / (2 * counts[kind]) * torch.sigmoid(kind * moved).log()
    return total


def test_the_loss_and_its_gradients_are_those_of_a_slow_reference(base: Path, reading: Path, tmp_path: Path) -> None:  # noqa: F811
    """Compared after the weights have been changed; the reference processes every row alone, with all logits of its sequence, and computes the loss in double
    precision from probabilities.
    """
    tokenizer = load_tokenizer(str(base))
    settings = settings_of(base, reading, tmp_path / "run", anchor_refusals=True)
    data = read_sft_data(settings, tokenizer)
    trainer = sft_trainer(settings, data, tokenizer, tmp_path / "work")
    with torch.no_grad():
        for weight in trainer.model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * weight.std()
    loss = trainer.compute_loss(trainer.model, data.train)
    loss.backward()
    first = AutoModelForCausalLM.from_pretrained(base)
    twin = AutoModelForCausalLM.from_pretrained(base)
    twin.load_state_dict(trainer.model.state_dict())
    answers, refusals, initial, kinds = [], [], [], []
    for group in data.train:
        rows = len(group.responses) // 2
        for response, context in zip(group.responses[:rows], group.context_tokens, strict=False):
            ids = torch.tensor([[*group.prompt, *response]])
            start = len(group.prompt) + context
            logps = twin(input_ids=ids).logits[0].log_softmax(-1)
            answers.append(sum(logps[at - 1, ids[0, at]] for at in range(start, ids.shape[1])))
            refusals.append(logps[start - 1, data.refusal[0]])
            initial.append(first(input_ids=ids).logits[0].log_softmax(-1)[start - 1, data.refusal[0]].detach())
            begins_alike = response[context] == data.refusal[0]
            kinds.append((1 if response[context:] == data.refusal else 0) if begins_alike else -1)
    assert {-1, 0, 1} == set(kinds)
    expected = loss_by_hand(torch.stack(answers), torch.stack(refusals), torch.stack(initial), kinds)
    expected = expected / answer_tokens(data.train)
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    for (name, ours), theirs in zip(trainer.model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=2e-5, rtol=1e-2, msg=name)


def test_a_row_has_the_same_weight_in_every_batch(base: Path, reading: Path, tmp_path: Path) -> None:  # noqa: F811
    """The mean loss over steps of one group each equals the loss of one step of all groups, though a refusal has fewer tokens than an answer."""
    tokenizer = load_tokenizer(str(base))
    settings = settings_of(base, reading, tmp_path / "run", anchor_refusals=True, group_tokens=8)
    data = read_sft_data(settings, tokenizer)
    trainer = sft_trainer(settings, data, tokenizer, tmp_path / "work")
    assert len({group.scored_tokens for group in data.train}) > 1
    with torch.no_grad():
        alone = [float(trainer.compute_loss(trainer.model, [group])) for group in data.train]
        assert sum(alone) / len(alone) == pytest.approx(
            float(trainer.compute_loss(trainer.model, data.train)), rel=1e-5
        )


def optimal_log_odds(refusal_weight: float, answer_weight: float, kinds: Sequence[int], loss: str) -> float:
    """The log-odds of refusing that minimise a loss over rows with the same prompt, by gradient descent from the initial model's, −1."""
    initial = torch.tensor(-1.0)
    odds = initial.clone().requires_grad_()
    anchored = AnchoredRefusals(plain_logps, REFUSAL, {}, refusal_weight, answer_weight)
    kinds_R = torch.tensor(kinds, dtype=torch.float32)
    for _ in range(2000):
        if loss == "anchored":
            total = anchored.correction((odds - initial).expand(len(kinds)), kinds_R).sum()
        else:
            total = softplus(-kinds_R * odds).sum()
        (gradient,) = torch.autograd.grad(total, odds)
        odds = (odds - 0.1 * gradient).detach().requires_grad_()
    return float(odds.detach())


@pytest.mark.parametrize("refused", [1, 4, 9])
def test_with_identical_prompts_the_anchored_loss_ignores_the_share_of_refusals(refused: int) -> None:
    """Ten rows with the same prompt: the anchored loss stays at the initial log-odds; the plain loss moves to the log-odds of the share of refusals."""
    kinds = [1] * refused + [-1] * (10 - refused)
    weights = (10 / (2 * refused), 10 / (2 * (10 - refused)))
    assert optimal_log_odds(*weights, kinds, "anchored") == pytest.approx(-1, abs=1e-3)
    assert optimal_log_odds(*weights, kinds, "plain") == pytest.approx(math.log(refused / (10 - refused)), abs=1e-3)


def test_rows_of_one_kind_leave_the_log_odds_unchanged() -> None:
    """Rows without refusals do not teach a model never to refuse: the loss is lowest if the log-odds have not moved, and rises in both directions."""
    one_kind = AnchoredRefusals(plain_logps, REFUSAL, {}, 0.0, 1.0)
    losses = one_kind.correction(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([-1.0, -1.0, -1.0]))
    assert losses[0] == losses[2] > losses[1]
    assert one_kind.correction(torch.tensor([2.0]), torch.tensor([0.0])).tolist() == [0.0]


def test_an_answer_is_learned_separately_from_the_refusal(base: Path, tmp_path: Path) -> None:  # noqa: F811
    """On rows that are all answers, 60 steps make the answers much more likely and change the mean log-odds of refusing by less than with the plain loss."""
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = [row for row in reading_rows(isles(), ReadingSettings(distractors=1)) if isinstance(row, ReadingRow)]
    answered = [row for row in rows if row.completion != NOT_FOUND]
    write_jsonl(folder / "train.jsonl", map(reading_to_json, answered))
    tokenizer = load_tokenizer(str(base))
    moved = {}
    for anchored in (True, False):
        settings = settings_of(
            base,
            folder,
            tmp_path / "run",
            anchor_refusals=anchored,
            max_steps=60,
            learning_rate=3e-3,
        )
        data = read_sft_data(settings, tokenizer)
        trainer = sft_trainer(settings, data, tokenizer, tmp_path / f"work{anchored}")
        probed = (
            data.train if anchored else [with_refusals(g, tokenizer(NOT_FOUND)["input_ids"][0]) for g in data.train]
        )

        def figures(model: Any, groups: Sequence[TokenizedGroup] = probed) -> tuple[float, float]:
            with torch.no_grad():
                answers_R, refusals_R = answers_and_refusals(plain_logps(model, groups), groups)
            return float(answers_R.mean()), float(log_odds(refusals_R).mean())

        before = figures(trainer.model)
        trainer.train()
        after = figures(trainer.model)
        assert after[0] > before[0] + 5
        moved[anchored] = after[1] - before[1]
    assert abs(moved[True]) < 1 and abs(moved[False]) > 2


def test_the_models_weights_are_restored_after_a_failure_and_sharded_weights_are_refused(base: Path) -> None:  # noqa: F811
    """The model's weights and training mode are restored even if the `with` block raises an exception."""
    model = AutoModelForCausalLM.from_pretrained(base).train()
    initial = trained_weights(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1
    changed = trained_weights(model)
    with pytest.raises(RuntimeError), at_weights(model, initial):
        assert not model.training
        assert all(torch.equal(weight, initial[name]) for name, weight in model.named_parameters())
        raise RuntimeError
    assert model.training and all(torch.equal(weight, changed[name]) for name, weight in model.named_parameters())
    name = next(iter(initial))
    sharded = initial | {name: initial[name][:1]}
    with pytest.raises(UserError, match="sharded"), at_weights(model, sharded):
        pass


def test_a_certain_refusal_has_a_finite_loss_and_gradient() -> None:
    """log(1 − p) at p = 1 in float32 is clipped, not minus infinity."""
    logps = torch.tensor([0.0, -1e-9, -1.0], requires_grad=True)
    odds = log_odds(logps)
    odds.sum().backward()
    assert odds.isfinite().all() and logps.grad is not None and logps.grad.isfinite().all()
    assert float(log_complement(torch.tensor(-1.0))) == pytest.approx(math.log(1 - math.exp(-1)))

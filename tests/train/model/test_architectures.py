"""Every type of causal language model in transformers that is not in NOT_TINY: either its log-probabilities and gradients in all layouts equal those of
a float64 reference, or training refuses it.

The reference of a model (its twin) shares nothing with the layouts: it uses float64 (float32 for FLOAT32_TWIN), eager attention and experts, one row
at a time without padding, and a softmax by hand.
"""

import copy
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.utils import logging

from graph.errors import UserError
from graph.shared.jsonl import read_jsonl
from tests.places import ROOT
from tests.train.model.architectures import MODEL_TYPES, NOT_TINY, REFUSED, VOCABULARY, tiny_model
from train.model.attention import use_shared_prefix_attention
from train.model.load import check_model, load_tokenizer, make_deterministic, without_dropout
from train.model.logps import RotationLimit, check_rotation, rotation_limit
from train.model.packing import TokenizedGroup, pack_rows, packed_logps, packing_problem, plain_logps
from train.preference.preference import train_once
from train.run.settings import DpoSettings, SftSettings
from train.sft import train_sft

TINY = [each for each in MODEL_TYPES if each not in NOT_TINY]
FLOAT32_TWIN = {"xglm"}
"""Types whose eager attention in transformers 5.19 cannot be computed in float64: their twin is in float32."""
PAGE = ROOT / "docs" / "reference" / "models.md"
PACKED, PLAIN, PAGE_REFUSED, PAGE_NOT_TRIED = (
    set(re.findall(r"`([a-z0-9_-]+)`", section)) & set(MODEL_TYPES)
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:5]
)


def group(prompt: int, *responses: int, seed: int) -> TokenizedGroup:
    generator = torch.Generator().manual_seed(seed)
    ids_T = torch.randint(3, VOCABULARY, (prompt + sum(responses),), generator=generator)
    first, *others = torch.split(ids_T, [prompt, *responses])
    return TokenizedGroup(tuple(first.tolist()), tuple(tuple(each.tolist()) for each in others))


GROUPS = (group(9, 4, 1, 7, seed=1), group(3, 2, 5, seed=2))


def weighted_loss(logps_R: Tensor) -> Tensor:
    """A loss that weights each response differently."""
    return (logps_R * torch.linspace(-1, 1.5, len(logps_R))).sum()


def gradients(model: Any, logps_R: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    weighted_loss(logps_R).backward()
    return {name: weight.grad.double() for name, weight in model.named_parameters() if weight.grad is not None}


def twin_of(model: Any, model_type: str) -> Any:
    twin = copy.deepcopy(model).to(torch.float32 if model_type in FLOAT32_TWIN else torch.float64).eval()
    if twin._can_set_attn_implementation():
        twin.set_attn_implementation("eager")
    if twin._can_set_experts_implementation():
        twin.set_experts_implementation("eager")
    return twin


def twin_logps(twin: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """The sum of log p = x_y − log Σ_v exp x_v over the tokens of each response, alone after its prompt."""
    sums = []
    for each in groups:
        for response in each.responses:
            logits_TV = twin(input_ids=torch.tensor([[*each.prompt, *response]]), use_cache=False).logits[0].double()
            first = len(each.prompt) - 1
            total = logits_TV.new_zeros(())
            for place, token in enumerate(response, start=first):
                top = logits_TV[place].max().detach()
                total = total + logits_TV[place, token] - top - (logits_TV[place] - top).exp().sum().log()
            sums.append(total)
    return torch.stack(sums)


def assert_equal(model: Any, logps_R: Tensor, expected_R: Tensor, expected: dict[str, Tensor]) -> None:
    """Check log-probabilities, and the gradients of all weights."""
    assert (logps_R.double() - expected_R).abs().max().item() < 1e-3
    found = gradients(model, logps_R)
    for name, gradient in expected.items():
        if gradient.abs().max() > 0 or name in found:
            largest = max(1.0, gradient.abs().max().item())
            assert (found[name] - gradient).abs().max().item() < 2e-3 * largest, name


@pytest.fixture(autouse=True, scope="module")
def silence_hints() -> None:
    """Silence transformers' hints on how to compute faster."""
    logging.set_verbosity_error()


def test_every_model_type_is_in_exactly_one_list_of_the_models_page() -> None:
    assert set(NOT_TINY) == PAGE_NOT_TRIED and set(REFUSED) == PAGE_REFUSED
    assert PACKED | PLAIN | PAGE_REFUSED | PAGE_NOT_TRIED == set(MODEL_TYPES)
    assert len(PACKED) + len(PLAIN) + len(PAGE_REFUSED) + len(PAGE_NOT_TRIED) == len(MODEL_TYPES)


@pytest.mark.long
@pytest.mark.parametrize("model_type", TINY)
def test_all_layouts_equal_the_float64_reference_or_the_model_is_refused(model_type: str) -> None:
    """The model is in training mode; `without_dropout` turns off the dropout of 0.3 in its configuration."""
    model = tiny_model(model_type).train()
    twin = twin_of(model, model_type)
    without_dropout(model)
    if model_type in REFUSED:
        with pytest.raises(UserError, match=f"a model of type '{model_type}': {REFUSED[model_type]}"):
            check_model(model)
            make_deterministic(model)
        return
    check_model(model)
    make_deterministic(model)
    assert model.training
    expected_R = twin_logps(twin, GROUPS)
    expected = gradients(twin, expected_R)
    reference = (expected_R.detach(), expected)
    assert_equal(model, plain_logps(model, GROUPS), *reference)
    assert (packing_problem(model, 16) == "") == (model_type in PACKED)
    if model_type in PACKED:
        assert_equal(model, packed_logps(model, pack_rows(GROUPS, 100)), *reference)
        use_shared_prefix_attention(model)
        if not packing_problem(model, 16):
            assert_equal(model, packed_logps(model, pack_rows(GROUPS, 100)), *reference)


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": 16,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0, 2.0, 8.0, 16.0],
    "partial_rotary_factor": 1.0,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
SHORT, LONG = group(6, 4, 10, seed=3), group(12, 5, 9, seed=4)
MIXED = (SHORT, LONG)


@pytest.mark.parametrize("shared", [False, True])
def test_longrope_is_correct_on_either_side_of_its_boundary_and_refused_across_it(shared: bool) -> None:
    """Rows of up to 16 tokens use the short factors, longer rows the long ones; in every layout, each row has the same values as alone."""
    model = tiny_model("phi3", rope_parameters=LONGROPE, original_max_position_embeddings=16)
    without_dropout(model)
    twin = twin_of(model, "phi3")
    assert rotation_limit(model.config) == RotationLimit("longrope", 16, longer_rows_alike=True)
    assert packing_problem(model, 21) == ""
    if shared:
        use_shared_prefix_attention(model)
    for side in (SHORT, LONG, SHORT):
        expected_R = twin_logps(twin, [side, side])
        expected = gradients(twin, expected_R)
        for budget_tokens in (1, 1000):
            packed_R = packed_logps(model, pack_rows([side, side], budget_tokens))
            assert_equal(model, packed_R, expected_R, expected)
        assert_equal(model, plain_logps(model, [side, side]), expected_R, expected)
    pattern = r"rows of 10 to 21 tokens; the longrope positions of this model \(phi3\) change above 16\. Expected rows on one side"
    for crossing in (
        MIXED,
        (TokenizedGroup(LONG.prompt[:8], (LONG.responses[0][:2], LONG.prompt + LONG.responses[0][:1])),),
    ):
        lengths = [len(each.prompt) + len(response) for each in crossing for response in each.responses]
        message = pattern.replace("10", str(min(lengths)))
        for logps in (
            lambda groups: plain_logps(model, groups),
            lambda groups: packed_logps(model, pack_rows(groups, 90)),
        ):
            with pytest.raises(UserError, match=message):
                logps(crossing)


def test_rows_batched_across_a_boundary_differ_from_the_same_rows_alone() -> None:
    """Such rows are refused because transformers computes a short row differently in a batch with a long one, by over half a nat."""
    model = tiny_model("phi3", rope_parameters=LONGROPE, original_max_position_embeddings=16).eval()
    ids = torch.tensor([[*SHORT.prompt, *SHORT.responses[0], *[0] * 11]])
    alone, padded = (model(input_ids=each).logits[0, 5:9].log_softmax(-1) for each in (ids[:, :10], ids))
    assert (alone - padded[: len(alone)]).abs().max() > 0.5


def test_dynamic_positions_are_refused_beyond_their_original_context() -> None:
    model = tiny_model("llama", rope_parameters=DYNAMIC, max_position_embeddings=16)
    without_dropout(model)
    assert rotation_limit(model.config) == RotationLimit("dynamic", 16, longer_rows_alike=False)
    expected_R = twin_logps(twin_of(model, "llama"), [SHORT])
    assert (plain_logps(model, [SHORT]) - expected_R).abs().max() < 1e-3
    for groups in ([LONG], MIXED):
        with pytest.raises(UserError, match=r"change above 16\. Expected at most 16 tokens"):
            plain_logps(model, groups)


@pytest.mark.parametrize(
    ("rope", "lengths", "refused"),
    [
        (LONGROPE, [3, 16], False),
        (LONGROPE, [17, 60], False),
        (LONGROPE, [16, 17], True),
        (LONGROPE, [], False),
        ({"rope_type": "default", "rope_theta": 1e4}, [3, 60], False),
    ],
)
def test_only_lengths_on_both_sides_of_a_boundary_are_refused(
    rope: dict[str, Any], lengths: list[int], refused: bool
) -> None:
    config = tiny_model("phi3", rope_parameters=rope, original_max_position_embeddings=16).config
    if not refused:
        check_rotation(config, lengths)
        return
    with pytest.raises(UserError, match="change above 16"):
        check_rotation(config, lengths)


def test_rows_across_a_boundary_are_refused_before_the_first_step(base: Path, data: Path, tmp_path: Path) -> None:
    """SFT, our trainer and TRL's all refuse them: the rows of `data` have 105 to 240 tokens."""
    rope = LONGROPE | {"original_max_position_embeddings": 150}
    sizes = {"vocab_size": 600, "max_position_embeddings": 256, "original_max_position_embeddings": 150}
    tiny_model("phi3", rope_parameters=rope, **sizes).save_pretrained(tmp_path / "phi3")
    load_tokenizer(str(base)).save_pretrained(tmp_path / "phi3")
    places = {"model": str(tmp_path / "phi3"), "data": str(data), "output": str(tmp_path / "run"), "max_steps": 1}
    for train, settings in (
        (train_sft, SftSettings(**places)),
        (train_once, DpoSettings(**places)),
        (train_once, DpoSettings(**places, trainer="trl")),
    ):
        with pytest.raises(UserError, match=r"the longrope positions of this model \(phi3\) change above 150"):
            train(settings)  # type: ignore[operator]
    assert not (tmp_path / "run").exists() and not (tmp_path / "run.partial").exists()


def test_bert_that_is_not_a_decoder_is_refused() -> None:
    """It attends to later tokens, so it cannot be a policy, but transformers raises no error."""
    check_model(tiny_model("bert"))
    with pytest.raises(
        UserError, match=r"a model of type 'bert': its log-probabilities change by .* a causal language model"
    ):
        check_model(tiny_model("bert", is_decoder=False))


@pytest.mark.parametrize("model_type", ["opt", "falcon", "gpt_neo", "gptj", "persimmon"])
def test_dropout_without_a_dropout_module_is_turned_off(model_type: str) -> None:
    """OPT calls a dropout function with a rate that it stores, Falcon and Persimmon with rates of their configurations; GPT-Neo and GPT-J use modules."""
    model = tiny_model(model_type).train()
    assert not torch.equal(plain_logps(model, GROUPS), plain_logps(model, GROUPS))
    make_deterministic(model)
    assert torch.equal(plain_logps(model, GROUPS), plain_logps(model, GROUPS))


def test_a_policy_with_dropout_starts_at_its_reference(base: Path, data: Path, tmp_path: Path) -> None:
    """Δ = 0 at the first step of an OPT whose dropout is 0.3, with our trainer and with TRL's."""
    tiny_model("opt", vocab_size=600, max_position_embeddings=256).save_pretrained(tmp_path / "opt")
    load_tokenizer(str(base)).save_pretrained(tmp_path / "opt")
    places = {"model": str(tmp_path / "opt"), "data": str(data), "max_steps": 1, "logging_steps": 1, "beta": 0.5}
    for trainer in ("modegraph", "trl"):
        train_once(DpoSettings(**places, output=str(tmp_path / trainer), trainer=trainer))
        ((_, first),) = read_jsonl(tmp_path / trainer / "log.jsonl")
        assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)

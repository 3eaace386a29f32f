"""Packed rows compared with the plain layout (log-probabilities and gradients), the mask with a slow reference; and how rows are packed."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from graph.errors import UserError
from train.model import attention
from train.model import logps as heads
from train.model.attention import SHARED_PREFIX, group_span, use_shared_prefix_attention
from train.model.logps import chunked_logps, without_head
from train.model.packing import (
    TokenizedGroup,
    attention_mask,
    first_fit,
    gap_beyond_rounding,
    pack_rows,
    packed_logps,
    packing_problem,
    plain_logps,
)

VOCABULARY = 97
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 2,
}
Maker = Callable[[], Any]
MAKERS: dict[str, Maker] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "llama with one matrix for both embeddings": lambda: LlamaForCausalLM(
        LlamaConfig(**SHAPE, tie_word_embeddings=True)
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE)),
    "mistral without a window": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None)),
}
MODELS = pytest.mark.parametrize("name", MAKERS)


def make(name: str) -> Any:
    torch.manual_seed(0)
    return MAKERS[name]().train()


def tokens(generator: torch.Generator, count: int) -> tuple[int, ...]:
    return tuple(torch.randint(3, VOCABULARY, (count,), generator=generator).tolist())


def groups_of(sizes: Sequence[tuple[int, Sequence[int]]], seed: int = 0) -> list[TokenizedGroup]:
    """Groups of random ids from (prompt tokens, tokens of each response)."""
    generator = torch.Generator().manual_seed(seed)
    return [
        TokenizedGroup(tokens(generator, prompt), tuple(tokens(generator, response) for response in responses))
        for prompt, responses in sizes
    ]


RAGGED_GROUPS = groups_of([(9, [4, 1]), (1, [3]), (14, [2, 5, 1, 7, 3, 3, 2, 6]), (5, [1, 1, 8]), (11, [6, 6])])


def weighted_loss(logps_R: Tensor) -> Tensor:
    """A loss that weights each response differently, as a preference loss does."""
    return (logps_R * torch.linspace(-1, 1.5, len(logps_R))).sum() / 10


def gradients(model: Any, logps_R: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    weighted_loss(logps_R).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.requires_grad}


def slow_logps(model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """The log-probability of each response, alone after its prompt, from all logits of its sequence."""
    logps = []
    for group in groups:
        for response in group.responses:
            logps_TV = model(input_ids=torch.tensor([[*group.prompt, *response]])).logits[0].float().log_softmax(dim=-1)
            logps.append(sum(logps_TV[len(group.prompt) - 1 + t, token] for t, token in enumerate(response)))
    return torch.stack(logps)


def assert_layouts_equal(
    model: Any, groups: Sequence[TokenizedGroup], budget_tokens: int, tolerance: float = 2e-5
) -> None:
    """Check log-probabilities and the gradients of all trained weights against the slow reference: in the plain layout, packed with a mask
    of the whole row, and packed with shared-prefix attention.
    """
    slow = slow_logps(model, groups)
    expected = gradients(model, slow)
    assert len(expected) > 4
    for how in ("plain", "sdpa", SHARED_PREFIX):
        if how == SHARED_PREFIX:
            use_shared_prefix_attention(model)
        logps = plain_logps(model, groups) if how == "plain" else packed_logps(model, pack_rows(groups, budget_tokens))
        assert logps.dtype == torch.float32
        torch.testing.assert_close(logps, slow, atol=10 * tolerance, rtol=tolerance)
        found = gradients(model, logps)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            largest = max(1.0, gradient.abs().max().item())
            torch.testing.assert_close(found[name], gradient, atol=tolerance * largest, rtol=0.0)
    assert model.config._attn_implementation == SHARED_PREFIX
    torch.testing.assert_close(slow_logps(model, groups), slow, atol=10 * tolerance, rtol=tolerance)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few tokens, so that the rows of these tests have several."""
    monkeypatch.setattr(attention, "CHUNK_TOKENS", 9)


def test_chunks_contain_whole_responses_and_mask_them_from_each_other() -> None:
    place = group_span(2, 10, 3, [4, 5, 2, 12, 1])
    assert (place.row, place.start, place.end) == (2, 10, 13)
    assert [(chunk.start, chunk.end) for chunk in place.chunks] == [(13, 22), (22, 24), (24, 36), (36, 37)]
    mask = place.chunks[0].mask
    assert mask.shape == (9, 12) and mask[:, :3].all()
    for query in range(9):
        for key in range(9):
            same = (query < 4) == (key < 4)
            assert mask[query, 3 + key].item() == (same and key <= query)


@MODELS
@pytest.mark.parametrize("budget_tokens", [1, 40, 1000])
def test_packing_equals_the_plain_layout(name: str, budget_tokens: int) -> None:
    """Each group has a separate row, some groups share a row, or all are in one row; K from 1 to 8, ragged lengths, a prompt of one token."""
    assert_layouts_equal(make(name), RAGGED_GROUPS, budget_tokens)


@pytest.mark.parametrize("responses", [1, 2, 8])
def test_packing_equals_the_plain_layout_for_every_k(responses: int) -> None:
    groups = groups_of([(20, range(1, responses + 1)), (7, [5] * responses)], seed=responses)
    assert_layouts_equal(make("llama"), groups, 1000)


def test_packing_equals_the_plain_layout_with_lora_on_all_linear_layers_and_the_head() -> None:
    model = get_peft_model(
        make("qwen2"),
        LoraConfig(
            r=3,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "lm_head"],
            init_lora_weights=False,
            task_type="CAUSAL_LM",
        ),
    )
    assert packing_problem(model) == ""
    assert sum(weight.requires_grad for weight in model.parameters()) == 2 * (2 * 6 + 1)
    assert_layouts_equal(model, RAGGED_GROUPS, 50)


@pytest.mark.parametrize("reentrant", [False, True])
def test_packing_equals_the_plain_layout_with_gradient_checkpointing(reentrant: bool) -> None:
    model = make("llama")
    expected = gradients(model, packed_logps(model, pack_rows(RAGGED_GROUPS, 50)))
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    assert_layouts_equal(model, RAGGED_GROUPS, 50)
    for name, gradient in gradients(model, packed_logps(model, pack_rows(RAGGED_GROUPS, 50))).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-5)


def test_packing_is_close_to_the_plain_layout_in_bfloat16_and_under_autocast() -> None:
    """The tolerance allows for the rounding of the plain layout in bfloat16, about 1 % of a log-probability."""
    model = make("llama")
    exact = plain_logps(model, RAGGED_GROUPS)
    expected = torch.cat([gradient.flatten() for gradient in gradients(model, exact).values()])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = packed_logps(model, pack_rows(RAGGED_GROUPS, 50))
    half = packed_logps(copy.deepcopy(model).bfloat16(), pack_rows(RAGGED_GROUPS, 50))
    for logps in (mixed, half):
        assert logps.dtype == torch.float32
        torch.testing.assert_close(logps, exact, atol=0.5, rtol=0.02)
    found = torch.cat([gradient.flatten() for gradient in gradients(model, mixed).values()])
    assert torch.linalg.norm(found - expected) < 0.1 * torch.linalg.norm(expected)


def slow_mask(group_of: Sequence[int], response_of: Sequence[int]) -> list[list[bool]]:
    """Which tokens (columns) each token (row) may attend to, one pair at a time."""
    mask = [[False] * len(group_of) for _ in group_of]
    for query in range(len(group_of)):
        for key in range(query + 1):
            if group_of[key] != group_of[query]:
                continue
            in_prompt = response_of[key] == 0
            mask[query][key] = in_prompt or response_of[key] == response_of[query]
    return mask


def test_the_tensors_of_a_row_match_a_row_worked_by_hand() -> None:
    """Two prompts; response "40 2" starts at position 3 although "30 31 2" is between it and the prompt."""
    groups = [TokenizedGroup((5, 6, 7), ((30, 31, 2), (40, 2))), TokenizedGroup((8,), ((50,),))]
    batch = pack_rows(groups, 10)
    assert batch.ids_BT.tolist() == [[5, 6, 7, 30, 31, 2, 40, 2, 8, 50]]
    assert batch.positions_BT.tolist() == [[0, 1, 2, 3, 4, 5, 3, 4, 0, 1]]
    assert batch.group_BT.tolist() == [[0, 0, 0, 0, 0, 0, 0, 0, 1, 1]]
    assert batch.response_BT.tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 0, 3]]
    assert batch.predictors_N.tolist() == [2, 3, 4, 2, 6, 8]
    rows = ["".join(".x"[visible] for visible in row) for row in attention_mask(batch, "sdpa")[0, 0].tolist()]
    assert rows == [
        "x.........",
        "xx........",
        "xxx.......",
        "xxxx......",
        "xxxxx.....",
        "xxxxxx....",
        "xxx...x...",
        "xxx...xx..",
        "........x.",
        "........xx",
    ]


SIZES = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(1, 5), min_size=1, max_size=4)), min_size=1, max_size=7
)


@given(SIZES, st.integers(1, 40))
def test_every_group_is_packed_once_and_rows_stay_within_the_budget(
    sizes: list[tuple[int, list[int]]], budget_tokens: int
) -> None:
    """Only a group that alone exceeds the budget has a longer row; as first fit promises, no two rows would have fitted into one."""
    groups = groups_of(sizes)
    rows = first_fit(groups, budget_tokens)
    assert rows == first_fit(groups, budget_tokens)
    assert sorted(number for row in rows for number in row) == list(range(len(groups)))
    totals = [sum(groups[number].tokens for number in row) for row in rows]
    assert all(total <= budget_tokens or len(row) == 1 for row, total in zip(rows, totals, strict=True))
    assert len(rows) < 2 or sum(sorted(totals)[:2]) > budget_tokens

    batch = pack_rows(groups, budget_tokens)
    assert batch.ids_BT.shape == (len(rows), max(totals))
    for place, (row, total) in enumerate(zip(rows, totals, strict=True)):
        parts = [part for number in row for part in (groups[number].prompt, *groups[number].responses)]
        assert batch.ids_BT[place].tolist() == [
            *(token for part in parts for token in part),
            *[0] * (max(totals) - total),
        ]
    masks = attention_mask(batch, "sdpa")[:, 0].tolist()
    for mask, group_of, response_of in zip(masks, batch.group_BT.tolist(), batch.response_BT.tolist(), strict=True):
        assert mask == slow_mask(group_of, response_of)


def test_rows_are_packed_by_first_fit_decreasing() -> None:
    """Sizes 3, 5, 2, 4, 6 with a budget of 10: from the largest down, 6 + 4 and 5 + 3 + 2 fill two rows."""
    groups = groups_of([(2, [1]), (4, [1]), (1, [1]), (3, [1]), (5, [1])])
    assert first_fit(groups, 10) == [[4, 3], [1, 0, 2]]


def test_longer_groups_come_first_and_padding_belongs_to_no_group() -> None:
    """Group 1 is longer and comes first; group 0 is padded, its padding belongs to no group, and its response keeps its number."""
    batch = pack_rows([TokenizedGroup((5,), ((6,),)), TokenizedGroup((7, 8), ((9,), (3,)))], 4)
    assert batch.ids_BT.tolist() == [[7, 8, 9, 3], [5, 6, 0, 0]]
    assert batch.group_BT.tolist() == [[1, 1, 1, 1], [0, 0, -1, -1]]
    assert batch.response_BT.tolist() == [[0, 0, 2, 3], [0, 1, 0, 0]]
    assert batch.predictors_N.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("prompt", "responses", "found"),
    [((), ((1,),), "a prompt of 0 tokens"), ((1,), ((2,), ()), r"responses of \[1, 0\]"), ((1,), (), r"of \[\]")],
)
def test_an_empty_prompt_or_response_is_refused(
    prompt: tuple[int, ...], responses: tuple[tuple[int, ...], ...], found: str
) -> None:
    with pytest.raises(UserError, match=found):
        TokenizedGroup(prompt, responses)


@pytest.mark.parametrize("chunk", [1, 4, 11, 64])
def test_the_chunked_head_equals_the_whole_one(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares values and the gradients of the states, the weight and the bias; there are never more logits than those of one chunk."""
    monkeypatch.setattr(heads, "HEAD_CHUNK_TOKENS", chunk)
    torch.manual_seed(1)
    head, states = nn.Linear(6, VOCABULARY), torch.randn(11, 6, requires_grad=True)
    ids, weights = torch.randint(VOCABULARY, (11,)), torch.randn(11)
    inputs = (states, head.weight, head.bias)
    whole = head(states).log_softmax(dim=-1)[torch.arange(11), ids]
    expected = torch.autograd.grad((whole * weights).sum(), inputs)
    widths: list[int] = []
    head.register_forward_hook(lambda module, arguments, logits: widths.append(logits.shape[1]))
    chunked = chunked_logps(head, states, ids)
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(torch.autograd.grad((chunked * weights).sum(), inputs), expected)
    assert max(widths) == min(chunk, 11)
    assert sum(widths) == (11 if chunk >= 11 else 2 * 11), (
        "if there are several chunks, each should be computed again for the gradient"
    )


def test_the_chunked_head_takes_states_of_another_precision() -> None:
    """A mixed-precision wrapper passes the states in float32 although the head's weights are bfloat16."""
    head, states = nn.Linear(6, VOCABULARY).bfloat16(), torch.randn(3, 6)
    assert chunked_logps(head, states, torch.tensor([1, 2, 3])).dtype == torch.float32


def test_packing_applies_the_soft_cap_of_the_logits() -> None:
    """Gemma 2 limits its logits to ±cap, here 0.5; its window is longer than these sequences."""
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=0.5, attn_logit_softcapping=None)
    )
    model.set_attn_implementation("sdpa")
    assert packing_problem(model, 22) == ""
    assert_layouts_equal(model.train(), RAGGED_GROUPS, 50)
    assert (packed_logps(model, pack_rows(RAGGED_GROUPS[1:2], 50)) / 3 + math.log(VOCABULARY)).abs() <= 1


def test_the_head_is_restored_even_after_a_failure() -> None:
    model = make("llama")
    head = model.lm_head
    with pytest.raises(RuntimeError), without_head(model):
        raise RuntimeError
    assert model.lm_head is head


def test_the_head_reads_only_response_tokens() -> None:
    model = make("llama")
    widths: list[int] = []
    model.lm_head.register_forward_hook(lambda module, arguments, logits: widths.append(logits.shape[1]))
    with torch.no_grad():
        assert packed_logps(model, pack_rows(RAGGED_GROUPS[:2], 100)).shape == (3,)
    assert widths == [8]


@MODELS
def test_models_with_full_attention_can_be_packed(name: str) -> None:
    model = make(name)
    assert packing_problem(model) == ""
    assert model.training and all(weight.grad is None for weight in model.parameters())
    assert packing_problem(model.bfloat16().eval()) == "" and not model.training


def test_a_sliding_window_is_refused_unless_the_longest_row_fits_into_it() -> None:
    window = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=16))
    assert packing_problem(window) == packing_problem(window, 17) == "its attention has a sliding window of 16 tokens"
    assert packing_problem(window, 16) == ""
    fitting = groups_of([(9, [7, 3]), (4, [2, 5])])
    assert_layouts_equal(window.train(), fitting, 100)
    qwen = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert packing_problem(Qwen2ForCausalLM(qwen)) == "its attention has a sliding window of 8 tokens"


def test_unsupported_attention_is_refused_with_the_reason() -> None:
    eager = LlamaForCausalLM._from_config(LlamaConfig(**SHAPE), attn_implementation="eager")
    assert packing_problem(eager).startswith("its attention is 'eager'")
    eager.config._attn_implementation = "flash_attention_2"
    assert packing_problem(eager).startswith("its attention is 'flash_attention_2'")
    mamba = MambaForCausalLM(MambaConfig(vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=1, state_size=2))
    assert packing_problem(mamba) == "it has layers that are not full attention (linear_attention)"


class IgnoresMask(LlamaForCausalLM):
    """A model that claims to support everything and ignores its mask."""

    def forward(self, *arguments: Any, attention_mask: Tensor | None = None, **named: Any) -> Any:
        return super().forward(*arguments, **named)


class TakesNoPositions(LlamaForCausalLM):
    """A model that takes no positions."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, use_cache: bool = False) -> Any:
        return super().forward(input_ids, attention_mask=attention_mask, use_cache=use_cache)


class ReadsAMissingAttribute(LlamaForCausalLM):
    """A model that expects something other than a tensor as positions."""

    def forward(self, *arguments: Any, position_ids: Tensor | None = None, **named: Any) -> Any:
        positions = None if position_ids is None else position_ids.offsets_of_rows
        return super().forward(*arguments, position_ids=positions, **named)


def test_a_trial_allows_for_rounding_at_very_low_log_probabilities() -> None:
    """A tuned model in bfloat16 gave three tokens a sum of −57 nats, which varied by .31 with the batch; a gap of .31 at −10 nats is a fault."""
    half, whole = LlamaForCausalLM(LlamaConfig(**SHAPE)).bfloat16(), LlamaForCausalLM(LlamaConfig(**SHAPE))
    unlikely, likelier, not_a_number = (
        torch.tensor([-57.0, -20.0]),
        torch.tensor([-57.0, -10.0]),
        torch.tensor([math.nan, -1.0]),
    )
    assert gap_beyond_rounding(half, unlikely, unlikely + torch.tensor([0.314, 0.303])) == 0
    assert gap_beyond_rounding(half, likelier, likelier + 0.31) == pytest.approx(0.31, abs=1e-4)
    assert gap_beyond_rounding(half, unlikely, unlikely + torch.tensor([1.0, 0.0])) == pytest.approx(1.0, abs=1e-4)
    assert gap_beyond_rounding(whole, unlikely, unlikely + 0.01) == pytest.approx(0.01, abs=1e-4)
    assert math.isnan(gap_beyond_rounding(half, not_a_number, not_a_number))


def test_a_trial_finds_models_that_ignore_the_mask_or_the_positions() -> None:
    torch.manual_seed(0)
    assert "nats away from the plain layout" in packing_problem(IgnoresMask(LlamaConfig(**SHAPE)))
    assert "a trial of the packed layout failed (TypeError" in packing_problem(TakesNoPositions(LlamaConfig(**SHAPE)))
    broken = ReadsAMissingAttribute(LlamaConfig(**SHAPE))
    assert "a trial of the packed layout failed (AttributeError" in packing_problem(broken)

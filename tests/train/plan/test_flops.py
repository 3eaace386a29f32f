"""The cost formulas compared with the operations that torch counts, and with the sizes of real tensors."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, BertConfig, CamembertConfig, CTRLConfig, GPT2Config, T5Config

from graph.errors import UserError
from tests.train.model.architectures import tiny_model
from tests.train.world import response_row
from train.model import logps
from train.model.attention import use_shared_prefix_attention
from train.model.load import load_model, load_tokenizer
from train.model.packing import TokenizedGroup, pack_rows, packed_logps, plain_logps
from train.plan.flops import (
    Shape,
    Work,
    forward_flops,
    packed_work,
    plain_work,
    shape_of,
    text_work,
    total,
    training_flops,
)
from train.plan.memory import Launch, memory_of, peak_bytes, read_launch
from train.preference.groups import tokenize_group
from train.preference.preference import read_preference_data, response_group_trainer
from train.run.loop import load_with_adapter
from train.run.settings import LoraSettings, MsSettings

LORA = LoraSettings(rank=4, alpha=8)
ROTATION_TOLERANCE = 2e-3
"""The relative tolerance: the formulas omit the product that gives the angles of the rotary positions."""


def settings_of(base: Path, **changes: Any) -> MsSettings:
    return MsSettings(model=str(base), data="", output="", **changes)


def model_of(settings: MsSettings) -> Any:
    model = load_with_adapter(settings, load_tokenizer(settings.model))
    use_shared_prefix_attention(model)
    return model.train()


@pytest.fixture(scope="module")
def group(base: Path) -> TokenizedGroup:
    row = response_row(1)
    return tokenize_group(load_tokenizer(str(base)), row.prompt, row.responses)


def torch_flops(model: Any, group: TokenizedGroup, packed: bool, gradients: bool = True) -> int:
    """The operations of one pass, as torch counts them, with attention computed by products that it can count."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logps_R = packed_logps(model, pack_rows([group], group.tokens)) if packed else plain_logps(model, [group])
        if gradients:
            logps_R.sum().backward()
    return int(counter.get_total_flops())


def cut_to_shortest(group: TokenizedGroup) -> TokenizedGroup:
    """The group with every response cut to the length of the shortest, so that nothing is padded."""
    shortest = min(map(len, group.responses))
    return TokenizedGroup(group.prompt, tuple(response[:shortest] for response in group.responses))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_flops_equal_those_that_torch_counts(
    base: Path, group: TokenizedGroup, packed: bool, checkpointing: bool
) -> None:
    """With checkpointing, torch skips the last product of each of the two layers, because no gradient needs it."""
    settings = settings_of(base, gradient_checkpointing=checkpointing)
    model, group = model_of(settings), cut_to_shortest(group)
    if checkpointing:
        model.gradient_checkpointing_enable()
    work = packed_work(group) if packed else plain_work(group)
    predicted = training_flops(shape_of(settings), [work], checkpointing, logps.HEAD_CHUNK_TOKENS)
    predicted -= checkpointing * 2 * 2 * (96 * 32) * work.tokens
    assert torch_flops(model, group, packed) == pytest.approx(predicted, rel=ROTATION_TOLERANCE)


@pytest.mark.parametrize("packed", [True, False])
def test_context_within_a_response_has_no_logits(base: Path, group: TokenizedGroup, packed: bool) -> None:
    equal = cut_to_shortest(group)
    with_context = replace(equal, context_tokens=tuple(len(each) - 2 for each in equal.responses))
    work = packed_work(with_context) if packed else plain_work(with_context)
    assert work.predicted == 2 * len(equal.responses)
    with torch.no_grad():
        found = torch_flops(model_of(settings_of(base)), with_context, packed, gradients=False)
    assert found == pytest.approx(forward_flops(shape_of(settings_of(base)), work), rel=ROTATION_TOLERANCE)


def test_forward_flops_equal_those_that_torch_counts(base: Path, group: TokenizedGroup) -> None:
    predicted = forward_flops(shape_of(settings_of(base)), packed_work(group))
    with torch.no_grad():
        assert torch_flops(model_of(settings_of(base)), group, True, gradients=False) == pytest.approx(
            predicted, rel=ROTATION_TOLERANCE
        )


def test_the_linear_layers_of_gpt2_are_counted_too(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=300, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    config.save_pretrained(tmp_path)
    model, ids = AutoModelForCausalLM.from_config(config), torch.arange(48)[None]
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(input_ids=ids, use_cache=False)
    assert forward_flops(shape_of(settings_of(tmp_path)), text_work(48, 48)) == counter.get_total_flops()


@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize(
    "config",
    [GPT2Config(n_embd=32), CTRLConfig(n_embd=32, dff=48), BertConfig(hidden_size=32), CamembertConfig(hidden_size=32)],
)
def test_the_head_of_a_reward_model_is_found_by_any_name(
    config: Any, lora: LoraSettings | None, tmp_path: Path
) -> None:
    """GPT-2 names it `score`, CTRL `classifier`; BERT's has a bias, and CamemBERT's comes before the layers."""
    config.update({"num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 300})
    config.save_pretrained(tmp_path)
    shape = shape_of(settings_of(tmp_path, lora=lora), "score")
    assert shape.head == 32 and shape.head_is_trainable


def test_a_model_that_is_not_a_causal_language_model_has_no_plan(tmp_path: Path) -> None:
    T5Config(num_layers=1, num_heads=2, d_model=32, vocab_size=300).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"no usable configuration \(Unrecognized configuration class.*T5Config"):
        shape_of(settings_of(tmp_path))


@pytest.mark.parametrize("model_type", ["mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"])
def test_a_model_without_attention_heads_has_no_plan(model_type: str, tmp_path: Path) -> None:
    tiny_model(model_type).config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"a model of type '{model_type}', without attention heads"):
        shape_of(settings_of(tmp_path))


@pytest.mark.parametrize(
    ("model_type", "routed", "changes"),
    [
        ("mixtral", "num_experts_per_tok", {}),
        ("aria_text", "moe_topk", {}),
        ("gemma4_text", "top_k_experts", {"enable_moe_block": True, "moe_intermediate_size": 16}),
    ],
)
def test_of_four_experts_those_that_a_token_is_routed_to_are_counted(
    model_type: str, routed: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    counts = {}
    for number in (1, 4):
        model = tiny_model(model_type, **changes, **{routed: number})
        model.config.save_pretrained(tmp_path)
        counts[number] = shape_of(settings_of(tmp_path)).trainable
    experts = sum(weight.numel() for weight in model.parameters() if weight.dim() == 3)
    assert experts > 0 and counts[4] - counts[1] == experts * 3 / 4


def test_an_adapter_that_is_trained_further_keeps_its_ranks_and_its_fully_trained_modules(
    base: Path, tmp_path: Path
) -> None:
    config = LoraConfig(
        r=4,
        target_modules=["q_proj", "up_proj"],
        rank_pattern={"q_proj": 2},
        modules_to_save=["o_proj"],
        task_type="CAUSAL_LM",
    )
    get_peft_model(load_model(str(base), "float32"), config).save_pretrained(tmp_path)
    weights = load_model(str(tmp_path), "float32", trainable=True).parameters()
    trained = sum(weight.nbytes for weight in weights if weight.requires_grad)
    assert shape_of(settings_of(tmp_path)).trainable_bytes == trained


def test_logits_in_chunks_are_computed_twice(
    base: Path, group: TokenizedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logps, "HEAD_CHUNK_TOKENS", 16)
    work = packed_work(group)
    assert work.predicted > 16
    model = model_of(settings_of(base))
    expected = training_flops(shape_of(settings_of(base)), [work], False, 16)
    assert torch_flops(model, group, True) == pytest.approx(expected, rel=ROTATION_TOLERANCE)
    once = training_flops(shape_of(settings_of(base)), [work], False, work.predicted)
    assert expected - once == 2 * model.lm_head.weight.numel() * work.predicted


def test_frozen_weights_cost_no_weight_gradients(base: Path, group: TokenizedGroup) -> None:
    """The formula is too high by the gradients that the lowest layer's queries, keys and values would pass back to the embeddings."""
    settings = settings_of(base, lora=LORA)
    shape, work = shape_of(settings), packed_work(group)
    predicted = training_flops(shape, [work], False, logps.HEAD_CHUNK_TOKENS)
    not_needed = 2 * 3 * (32 * 32 + 32 * LORA.rank) * work.tokens
    assert torch_flops(model_of(settings), group, True) == pytest.approx(predicted - not_needed, rel=ROTATION_TOLERANCE)
    assert not shape.head_is_trainable and shape.trainable < shape.frozen / 2


def test_full_training_takes_six_operations_per_weight_and_token() -> None:
    """The rule is that of linear layers: this shape has no attention and no output head."""
    shape = Shape(0, 0, 1000, 0, True, 0.0, 0.0)
    assert training_flops(shape, [Work(7, 3, 49), Work(5, 1, 25)], False, 0) == 6 * 1000 * 12


def test_a_packed_prompt_is_read_once_for_all_its_responses(group: TokenizedGroup) -> None:
    packed, plain = packed_work(group), plain_work(group)
    assert packed.tokens == group.tokens and plain.tokens - packed.tokens == 5 * len(group.prompt)
    assert packed.predicted == plain.predicted == sum(map(len, group.responses)) and packed.pairs < plain.pairs
    assert total([packed, plain]) == packed + plain


@pytest.mark.parametrize(
    "changes", [{}, {"lora": LORA}, {"lora": LORA, "precision": "bfloat16"}, {"lora": LORA, "quantise": "nf4"}]
)
def test_memory_equals_the_size_of_the_tensors(
    base: Path, scored_data: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    if "quantise" in changes:
        pytest.importorskip("bitsandbytes")
    values = {"rewards": {"correct": 1.0}, "max_steps": 1, "batch_size": 1, **changes}
    settings = settings_of(base, **values).model_copy(update={"data": str(scored_data)})
    tokenizer = load_tokenizer(str(base))
    data = read_preference_data(settings, tokenizer)
    trainer = response_group_trainer(settings, "ms", data, tokenizer, tmp_path)
    trainer.train()
    weights = list(trainer.model.parameters())
    memory = memory_of(shape_of(settings), Launch())
    states = [state[name] for state in trainer.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert memory.optimiser == sum(state.nbytes for state in states) > 0
    assert memory.gradients == sum(weight.nbytes for weight in weights if weight.requires_grad)
    if "quantise" not in changes:
        assert memory.weights == sum(weight.nbytes for weight in weights)
    else:
        scales = [weight.quant_state for weight in weights if hasattr(weight, "quant_state")]
        of_scales = sum(each.absmax.nbytes + each.state2.absmax.nbytes for each in scales)
        assert len(scales) == 14
        assert memory.weights == pytest.approx(sum(weight.nbytes for weight in weights) + of_scales, rel=0.01)


def test_the_peak_counts_tensors_that_are_alive_at_the_same_time() -> None:
    outside = torch.ones(1000)
    with peak_bytes("cpu") as peak:
        one = outside + 1
        assert peak() == 4000, "earlier tensors should not count"
        view = one.view(10, 100)[2:]
        one.mul_(2)
        assert peak() == 4000, "neither a view nor a change in place should count"
        two = one + outside
        assert peak() == 8000
        del one, view
        gc.collect()
        three = two + outside
        assert peak() == 8000 and len(three) == 1000
        (torch.ones(500, requires_grad=True) * two[:500]).exp().sum().backward()
    assert peak() >= 8000 + 3 * 2000


def test_sharded_memory_is_divided_among_the_processes(base: Path, tmp_path: Path) -> None:
    shape = shape_of(settings_of(base))
    file = tmp_path / "launch.yaml"

    def parts(text: str) -> list[float]:
        file.write_text(f"num_processes: 4\n{text}")
        memory = memory_of(shape, read_launch(file), activations=100.0)
        whole = memory_of(shape, Launch(), activations=100.0)
        assert memory.activations == 100.0
        assert memory.total == memory.weights + memory.gradients + memory.optimiser + 100.0
        pairs = ("weights", "gradients", "optimiser")
        return [getattr(memory, name) / getattr(whole, name) for name in pairs]

    assert parts("distributed_type: MULTI_GPU") == parts("distributed_type: NO") == [1, 1, 1]
    assert parts("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 1}") == [1, 1, 0.25]
    assert parts("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}") == [1, 0.25, 0.25]
    assert parts("distributed_type: FSDP") == [0.25, 0.25, 0.25]
    with pytest.raises(UserError, match="distributed_type is TPU"):
        parts("distributed_type: TPU")
    for config, stage in (
        ("{zero_stage: auto}", "'auto'"),
        ("{deepspeed_config_file: zero3.json}", "None"),
        ("z3", "'z3'"),
    ):
        with pytest.raises(UserError, match=f"deepspeed_config.zero_stage is {stage}"):
            parts(f"distributed_type: DEEPSPEED\ndeepspeed_config: {config}")
    assert parts("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 0}") == [1, 1, 1]
    assert parts("distributed_type: DEEPSPEED") == [1, 0.25, 0.25]
    file.write_text("num_processes: 0")
    with pytest.raises(UserError, match="num_processes is 0"):
        read_launch(file)

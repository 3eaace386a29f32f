"""A run exported as a GGUF file and read back gives the run's logits, tokens and template; the error for an unsupported model names its architecture."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, pre_tokenizers
from torch import Tensor
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from graph.answer.prompt import answer_messages
from graph.answer.template import prompt_ids
from graph.errors import UserError
from graph.models.convert import read_gguf
from graph.types import Excerpt
from tests.train.adapters import SMALL_SIZES, random_adapter, with_smollm2
from tests.train.world import TEXTS
from train.export import gguf
from train.export.export import merged_model
from train.export.gguf import (
    PRE_TOKENIZERS,
    GgufType,
    check_architecture,
    pre_tokenizer_name,
    vocabulary_of,
    write_gguf,
)
from train.model.load import load_policy, load_tokenizer

STRINGS = (
    "In 1913 the ferry  cost £2.50.",
    "naïve café – Ångström 你好, мир! 😀",
    "def f(x):\n\treturn x ** 2  # ok\n\n\n",
    "I'll, we've, THEY'RE",
    "<|im_start|>user\nhi<|im_end|>\n",
    " \t around  ",
)
QUESTIONS = ("Who built the Lantern?", "Where does Hanne live?", "What is 12 times 12?", "Write a list of three boats.")


@pytest.fixture(scope="module")
def run(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_adapter(str(base), data, tmp_path_factory.mktemp("gguf") / "run", size=0.05)


def prompts(tokenizer: Any, questions: int) -> Iterator[Tensor]:
    """Prompts as training and serving write them, with and without a passage."""
    for question in QUESTIONS[:questions]:
        for excerpts in ((), (Excerpt("p", "Mills", TEXTS[0]),)):
            yield torch.tensor([prompt_ids(tokenizer, answer_messages(question, excerpts))])


@torch.no_grad()
def gap_and_agreement(ours: Any, theirs: Any, tokenizer: Any, questions: int = 4) -> tuple[float, float]:
    """(largest log-probability gap among the ten likeliest tokens of each position, share of positions with the same top token)."""
    gaps, same = [], []
    for ids in prompts(tokenizer, questions):
        ours_TV, theirs_TV = (model(ids).logits[0].float().log_softmax(-1) for model in (ours, theirs))
        top = ours_TV.topk(10).indices
        gaps.append((ours_TV - theirs_TV).gather(1, top).abs().max())
        same.append(ours_TV.argmax(-1) == theirs_TV.argmax(-1))
    return float(max(gaps)), float(torch.cat(same).float().mean())


@pytest.mark.parametrize(("kind", "gap"), [("f16", 1e-3), ("bf16", 5e-3), ("q8_0", 0.05)])
def test_a_file_read_back_matches_the_run(kind: GgufType, gap: float, run: Path, base: Path, tmp_path: Path) -> None:
    """transformers reads back the run's logits, tokens and template; the base model's logits are far from those of the file."""
    model, tokenizer = load_policy(str(run))
    write_gguf(merged_model(run, "float32"), tokenizer, tmp_path / "model.gguf", kind, "run")
    theirs, their_tokenizer = read_gguf(tmp_path / "model.gguf", torch.float32)
    found, same = gap_and_agreement(model, theirs, tokenizer)
    assert found < gap and same > 0.98
    assert gap_and_agreement(load_policy(str(base))[0], theirs, tokenizer)[0] > 10 * found
    assert [their_tokenizer(text)["input_ids"] for text in STRINGS] == [
        tokenizer(text)["input_ids"] for text in STRINGS
    ]
    assert (
        their_tokenizer.chat_template == tokenizer.chat_template
        and their_tokenizer.eos_token_id == tokenizer.eos_token_id
    )


def test_the_comparison_detects_rotary_pairs_left_in_the_order_of_transformers(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = load_policy(str(run))
    model = model.merge_and_unload()
    for layer in model.model.layers:  # In a small untrained model, attention hardly depends on positions.
        layer.self_attn.q_proj.weight.mul_(50)
    gaps = {}
    for name in ("right", "wrong"):
        write_gguf(model, tokenizer, tmp_path / f"{name}.gguf", "f16", "base")
        gaps[name], _ = gap_and_agreement(model, read_gguf(tmp_path / f"{name}.gguf", torch.float32)[0], tokenizer)
        monkeypatch.setattr(gguf, "paired", lambda weights, heads: weights)
    assert gaps["wrong"] > 100 * gaps["right"]


@pytest.mark.slow
@with_smollm2
def test_a_file_of_a_real_small_model_read_back_matches_the_model(tmp_path: Path) -> None:
    """Nine query heads that share three key heads, and a real vocabulary; four layers are tested, because the other 26 are written and read in the same way."""
    model, tokenizer = load_policy("smollm2")
    model.model.layers, model.config.num_hidden_layers = model.model.layers[:4], 4
    write_gguf(model, tokenizer, tmp_path / "smollm2.gguf", "f16", "smollm2")
    theirs, their_tokenizer = read_gguf(tmp_path / "smollm2.gguf", torch.float32)
    found, same = gap_and_agreement(model, theirs, tokenizer, questions=1)
    assert found < 0.05 and same == 1.0
    assert [their_tokenizer(text)["input_ids"] for text in STRINGS] == [
        tokenizer(text)["input_ids"] for text in STRINGS
    ]
    assert their_tokenizer.chat_template == tokenizer.chat_template


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("kind", "config", "width"), [(Qwen2ForCausalLM, Qwen2Config, 16), (Qwen3ForCausalLM, Qwen3Config, 128)]
)
def test_a_file_of_another_family_read_back_matches_the_model(
    kind: Any, config: Any, width: int, tied: bool, base: Path, tmp_path: Path
) -> None:
    """Covers biases of q, k and v, norms of q and k, an untied output head, and more embeddings than tokens."""
    torch.manual_seed(0)
    model = kind(config(**SMALL_SIZES, tie_word_embeddings=tied, head_dim=width)).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim == 1:
                weights.add_(torch.randn_like(weights) * 0.1)
    tokenizer = load_tokenizer(str(base))
    write_gguf(model, tokenizer, tmp_path / "model.gguf", "f16", "other")
    found, same = gap_and_agreement(model, read_gguf(tmp_path / "model.gguf", torch.float32)[0], tokenizer)
    assert found < 2e-3 and same > 0.98


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (GPT2Config(architectures=["GPT2LMHeadModel"]), "a model of type GPT2LMHeadModel"),
        (
            LlamaConfig(
                architectures=["LlamaForCausalLM"],
                rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
            ),
            "LlamaForCausalLM with linear rotary scaling",
        ),
        (
            Qwen2Config(architectures=["Qwen2ForCausalLM"], use_sliding_window=True, sliding_window=64),
            "Qwen2ForCausalLM with a sliding window",
        ),
    ],
)
def test_the_error_for_an_unsupported_architecture_names_it(config: Any, found: str) -> None:
    with pytest.raises(UserError, match=rf"{found}.*LlamaForCausalLM, Qwen2ForCausalLM.*--merge"):
        check_architecture(config.architectures[0], config)


def test_weights_too_large_for_float16_are_refused(base: Path, tmp_path: Path) -> None:
    model, tokenizer = load_policy(str(base))
    model.model.layers[1].mlp.up_proj.weight.view(-1)[0] = 1e5
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.up_proj.*not finite or too large"):
        write_gguf(model, tokenizer, tmp_path / "model.gguf", "f16", "base")


@pytest.mark.parametrize("steps", PRE_TOKENIZERS, ids=PRE_TOKENIZERS.values())
def test_each_pre_tokenizer_gets_its_name(steps: tuple[str, ...], base: Path) -> None:
    kinds = {
        "bytes and words": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        "digits": pre_tokenizers.Digits(individual_digits=True),
    }
    stages = [kinds.get(step) or pre_tokenizers.Split(Regex(step), behavior="isolated") for step in steps]
    core = load_tokenizer(str(base)).backend_tokenizer
    core.pre_tokenizer = stages[0] if len(stages) == 1 else pre_tokenizers.Sequence(stages)
    assert pre_tokenizer_name(json.loads(core.to_str()), "a tokenizer") == PRE_TOKENIZERS[steps]


@pytest.mark.parametrize(
    "other",
    [pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Whitespace(), pre_tokenizers.Digits(False)],
)
def test_an_unknown_pre_tokenizer_is_refused(other: Any, base: Path) -> None:
    core = load_tokenizer(str(base)).backend_tokenizer
    core.pre_tokenizer = other
    with pytest.raises(UserError, match=r"splits texts by (ByteLevel|Whitespace|Digits).*gpt-2, smollm, qwen2"):
        pre_tokenizer_name(json.loads(core.to_str()), "a tokenizer")


def test_surplus_embeddings_get_unused_tokens_and_missing_embeddings_are_refused(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    tokens, types = vocabulary_of(tokenizer, len(tokenizer) + 2)
    assert tokens[-2:] == [f"[PAD{len(tokenizer)}]", f"[PAD{len(tokenizer) + 1}]"] and types[-1].name == "UNUSED"
    assert tokenizer.convert_tokens_to_ids(tokens[:-2]) == list(range(len(tokenizer)))
    assert types[tokenizer.eos_token_id].name == "CONTROL" and types[300].name == "NORMAL"
    with pytest.raises(UserError, match="an embedding for each token"):
        vocabulary_of(tokenizer, len(tokenizer) - 1)

"""Training runs exported as GGUF files and opened in llama.cpp: whole models and separate adapters reply as the run does; adapters that GGUF cannot
represent are refused.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from graph.answer.prompt import answer_messages
from graph.answer.template import prompt_text
from graph.errors import UserError
from graph.types import Message
from tests import commands
from tests.llama import with_llama
from tests.train.adapters import SMALL_SIZES, random_adapter, with_smollm2
from tests.train.templates import STYLES
from train.export import gguf, gguf_export
from train.export.divergence import ProbeConversation, read_probe_conversations, score_completion
from train.export.export import merged_model
from train.export.gguf import GgufType, TensorNames, lora_weights, write_adapter, write_gguf
from train.export.gguf_export import FileGaps, GgufExport, compare, export_gguf, fitting_probes, llama_replies
from train.export.server import Reply
from train.model.load import load_model, load_policy, load_tokenizer
from train.model.logps import tokenize_row
from train.run.record import read_run, write_run

MAX_F16_GAP_NATS = 0.01


@pytest.fixture(scope="module")
def run(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_adapter(str(base), data, tmp_path_factory.mktemp("llama") / "run", size=0.1)


def assert_faithful(export: GgufExport, nats: float) -> None:
    """Check that every reply equals that of the run, up to near ties, and that log-probabilities differ by less than `nats`."""
    assert export.measured_on == "dev.jsonl" and export.conversations == 4 and export.tokens >= 4
    (gaps,) = export.gaps
    assert gaps.precision == "float32" and gaps.same_replies + gaps.near_ties == 4
    assert 0 < gaps.mean_gap_nats <= gaps.largest_gap_nats < nats


@with_llama
@pytest.mark.parametrize(("kind", "nats"), [("f16", MAX_F16_GAP_NATS), ("bf16", 0.03), ("q8_0", 0.1)])
def test_a_whole_model_replies_as_the_run_does(
    kind: GgufType, nats: float, run: Path, base: Path, tmp_path: Path
) -> None:
    export = export_gguf(run, tmp_path / "out", kind)
    assert_faithful(export, nats)
    assert export.file == f"model-{kind}.gguf" and export.template
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert kind.upper() in card and f"{export.gaps[0].largest_gap_nats:.2g} nats apart at most" in card
    assert "the run in float32: the same tokens in " in card
    assert not any(str(place) in card for place in (run, base, tmp_path))


@with_llama
@pytest.mark.parametrize(
    "options",
    [{}, {"use_rslora": True}, {"rank_pattern": {"q_proj": 2, "up_proj": 8}, "alpha_pattern": {"v_proj": 3}}],
    ids=["plain", "rank-stabilised", "patterns"],
)
def test_a_separate_adapter_replies_as_the_run_does(
    options: dict[str, Any], base: Path, data: Path, tmp_path: Path
) -> None:
    """The adapter is opened on its base; its modules are scaled in different ways."""
    run = random_adapter(str(base), data, tmp_path / "run", size=0.1, **options)
    export = export_gguf(run, tmp_path / "out", "f16", adapter_only=True)
    assert_faithful(export, MAX_F16_GAP_NATS)
    assert export.file == "adapter-f16.gguf" and not export.template and export.megabytes < 0.1
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"adapter-f16.gguf", "README.md", "run.json"}
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "LoRA adapter" in card and "on an F16 file of its base" in card and "--lora adapter-f16.gguf" in card


@with_llama
@pytest.mark.parametrize("style", ["qwen3", "always thinking"])
def test_prompts_with_a_thinking_block_equal_those_of_training(
    style: str, base: Path, data: Path, tmp_path: Path
) -> None:
    """The compared prompts include the marker that starts a thinking block."""
    shutil.copytree(base, tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").write_text(STYLES[style].template, encoding="utf-8")
    run = random_adapter(str(tmp_path / "base"), data, tmp_path / "run", size=0.1)
    assert "<think>" in prompt_text(load_tokenizer(str(run)), [Message("user", "Who?")])
    assert_faithful(export_gguf(run, tmp_path / "out", "f16"), MAX_F16_GAP_NATS)


def test_the_system_prompt_is_that_of_training_or_none(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_export, "is_installed", lambda: False)
    shutil.copytree(run, tmp_path / "chat")
    write_run(tmp_path / "chat", replace(read_run(run), answer_form=None))
    for source, has_prompt in ((run, True), (tmp_path / "chat", False)):
        out = tmp_path / f"{source.name}-gguf"
        export_gguf(source, out, "f16")
        assert ("SYSTEM" in (out / "Modelfile").read_text(encoding="utf-8")) == has_prompt
        card = (out / "README.md").read_text(encoding="utf-8")
        assert ("system prompt" in card) == has_prompt and "LM Studio" in card


def adapter_gaps(run: Path, place: Path) -> FileGaps:
    """The gaps between a run in transformers and its adapter, newly written as GGUF and opened in llama.cpp."""
    tokenizer = load_tokenizer(str(run))
    _, conversations = read_probe_conversations(read_run(run), tokenizer, 4)
    model = load_model(str(run), "float32")
    write_adapter(model, place / "adapter-f16.gguf", "f16", "run", "base")
    base = load_model(read_run(run).base_model, "float32")
    write_gguf(base, tokenizer, place / "base.gguf", "f16", "base")
    replies = llama_replies(place / "base.gguf", {"run": place / "adapter-f16.gguf"}, conversations, tokenizer)
    return compare(model, "float32", conversations, replies)


@with_llama
@pytest.mark.parametrize(
    "fault",
    [
        lambda weights: lambda whole, alpha: ((name, a, b / 2) for name, a, b in weights(whole, alpha)),
        lambda weights: lambda whole, alpha: ((name, a, b[::-1]) for name, a, b in weights(whole, alpha)),
    ],
    ids=["half as strong", "outputs in another order"],
)
def test_a_wrongly_written_adapter_has_a_large_gap(
    fault: Callable[..., Any], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "lora_weights", fault(lora_weights))
    assert adapter_gaps(run, tmp_path).largest_gap_nats > 5 * MAX_F16_GAP_NATS


@with_llama
def test_an_adapter_with_rotary_pairs_in_the_order_of_transformers_has_a_large_gap(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter with large weights, of q and k alone; if its rows stay in the order of transformers, the gap is large."""
    modules = ["q_proj", "k_proj"]
    run = random_adapter(str(base), data, tmp_path / "run", size=2.0, target_modules=modules)
    assert adapter_gaps(run, tmp_path).largest_gap_nats < MAX_F16_GAP_NATS
    ordered = TensorNames.ordered
    monkeypatch.setattr(  # Only for the adapter: its B has fewer columns than any weight of the base.
        TensorNames,
        "ordered",
        lambda self, key, weights: (
            weights if weights.ndim == 2 and weights.shape[1] == 4 else ordered(self, key, weights)
        ),
    )
    assert adapter_gaps(run, tmp_path).largest_gap_nats > 5 * MAX_F16_GAP_NATS


@with_llama
@pytest.mark.parametrize(
    ("kind", "config", "tied", "width"),
    [
        (LlamaForCausalLM, LlamaConfig, True, 16),
        (Qwen2ForCausalLM, Qwen2Config, False, 16),
        (Qwen2ForCausalLM, Qwen2Config, True, 16),
        (Qwen3ForCausalLM, Qwen3Config, False, 64),
    ],
)
def test_files_of_other_model_families_reply_as_the_models_do(
    kind: Any, config: Any, tied: bool, width: int, base: Path, tmp_path: Path
) -> None:
    """Covers query heads that share keys, biases of q, k and v, norms of q and k, an untied output head, and more embeddings than tokens.

    The heads of Qwen3 need a width of 64 or more: at 16, llama.cpp's results differ.
    """
    torch.manual_seed(0)
    model = kind(config(**SMALL_SIZES, tie_word_embeddings=tied, head_dim=width)).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(4) if weights.ndim > 1 else weights.add_(torch.randn_like(weights) * 0.5)
    tokenizer = load_tokenizer(str(base))
    questions = ("Who built the Lantern?", "Where does Hanne live?")
    chats = [tuple(answer_messages(question, ())) for question in questions]
    conversations = [ProbeConversation(chat, tokenize_row(tokenizer, chat, "Ida.")) for chat in chats]
    write_gguf(model, tokenizer, tmp_path / "model.gguf", "f16", "model")
    gaps = compare(
        model, "float32", conversations, llama_replies(tmp_path / "model.gguf", {}, conversations, tokenizer)
    )
    assert gaps.largest_gap_nats < 0.05 and gaps.same_replies + gaps.near_ties == 2


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "fully trained modules"),
        ({"bias": "all"}, "biases of the base"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "an adapter of model.embed_tokens"),
        ({"lora_bias": True}, "trained biases"),
    ],
)
def test_an_adapter_that_gguf_cannot_represent_is_refused(
    options: dict[str, Any], found: str, base: Path, data: Path, tmp_path: Path
) -> None:
    run = random_adapter(str(base), data, tmp_path / "run", **options)
    with pytest.raises(UserError, match=rf"{found}.*--gguf TYPE --merge"):
        export_gguf(run, tmp_path / "out", "f16", adapter_only=True)
    assert not (tmp_path / "out").exists()


@with_llama
def test_a_file_that_tokenises_prompts_differently_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_with_other_template(model: Any, tokenizer: Any, *more: Any) -> None:
        tokenizer.chat_template = tokenizer.chat_template.replace("assistant", "helper")
        write_gguf(model, tokenizer, *more)

    monkeypatch.setattr(gguf_export, "write_gguf", write_with_other_template)
    tokenizer = load_tokenizer(str(run))
    monkeypatch.setattr(gguf_export, "load_tokenizer", lambda source: tokenizer)
    with pytest.raises(
        UserError, match=r"model-f16\.gguf: llama\.cpp tokenises a prompt differently from training.*helper.*--merge"
    ):
        export_gguf(run, tmp_path / "out", "f16")
    assert not (tmp_path / "out").exists()


def test_without_llama_cpp_the_file_is_written_and_not_opened(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_export, "is_installed", lambda: False)
    command = ["train", "export", str(run), "--out", str(tmp_path / "out"), "--gguf", "f16"]
    result = commands.run(*command)
    assert result.exit_code == 0, result.stderr
    assert "not opened: the package xllamacpp" in result.stdout and "pip install 'modegraph[cpu]'" in result.stdout
    assert (tmp_path / "out" / "model-f16.gguf").is_file()
    assert "pip install 'modegraph[cpu]'" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_without_log_probabilities_the_card_states_that_the_file_was_not_compared(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_export, "is_installed", lambda: True)
    monkeypatch.setattr(gguf_export, "llama_replies", lambda *_: [Reply(None, (), 9)] * 4)
    export = export_gguf(run, tmp_path / "out", "f16")
    assert (export.conversations, export.tokens, export.gaps) == (4, 0, ())
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "model-f16.gguf: not compared: llama.cpp returned no log-probabilities" in card


def test_replies_without_tokens_are_not_compared(run: Path) -> None:
    _, conversations = read_probe_conversations(read_run(run), load_tokenizer(str(run)), 3)
    model = load_model(str(run), "float32")
    replies = [Reply(None, (-1.0,), 9), Reply((), (), 9), Reply((7,), (-3.0,), 9)]
    gaps = compare(model, "float32", conversations, replies)
    scores = score_completion(model, conversations[2].with_answer((7,)))
    assert gaps.largest_gap_nats == gaps.mean_gap_nats == pytest.approx(abs(scores.logps[0] + 3))
    assert gaps.same_replies == (scores.nats_below_best[0] == 0)


def test_only_conversations_that_fit_into_the_window_are_sent(run: Path) -> None:
    _, conversations = read_probe_conversations(read_run(run), load_tokenizer(str(run)), 4)
    lengths = sorted(len(each.row.prompt) for each in conversations)
    assert len(fitting_probes(conversations, lengths[2] + 24)) == 3 and fitting_probes(conversations, 24) == []


@with_llama
def test_the_command_writes_and_compares_files(run: Path, tmp_path: Path) -> None:
    def export(name: str, *more: str) -> Any:
        command = ["train", "export", str(run), "--out", str(tmp_path / name), "--gguf", "q8_0", *more]
        return commands.run(*command, "--conversations", "2")

    result = export("out", "--json")
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["file"] == "model-q8_0.gguf" and figures["template"] is True and figures["conversations"] == 2
    assert [gaps["precision"] for gaps in figures["gaps"]] == ["float32"]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "model-q8_0.gguf",
        "Modelfile",
        "README.md",
        "run.json",
    }
    words = export("words", "--adapter-only").stdout
    assert words.startswith(f"{tmp_path / 'words'}: adapter-q8_0.gguf, ") and "greedy replies" in words
    assert "nats apart at most" in words and len(max(words.split(), key=len)) < len(str(tmp_path)) + 20


@pytest.mark.slow
@with_llama
@with_smollm2
def test_a_real_small_model_replies_as_its_run_does(data: Path, tmp_path: Path) -> None:
    """Merged, and as a separate adapter. The model has nine query heads that share three key heads; four of its layers are enough to test."""
    model, tokenizer = load_policy("smollm2")
    model.model.layers, model.config.num_hidden_layers = model.model.layers[:4], 4
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "base")
    run = random_adapter(str(tmp_path / "base"), data, tmp_path / "run", size=0.02)
    for adapter_only in (False, True):
        export = export_gguf(run, tmp_path / f"out{adapter_only}", "f16", adapter_only)
        (gaps,) = export.gaps
        assert gaps.same_replies + gaps.near_ties == 4 and gaps.largest_gap_nats < 0.1
    assert merged_model(run, "float32").config.tie_word_embeddings

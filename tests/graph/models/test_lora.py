"""The changes that an adapter makes to the weights of its base model, read without torch and compared with PEFT's own merge."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from graph.answer.model_verifier import CALIBRATION, Calibration, read_calibration
from graph.errors import UserError
from graph.models.catalogue import resolve
from graph.models.checkpoint import adapter_base, answer_form
from graph.models.openvino_ir import (
    GGUF_NAMES,
    OPENVINO_MODEL,
    adapted_folder,
    convert_once,
    key_of,
    lora_changes,
    read_safetensors,
)
from serve.engines import open_model


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A rank-stabilised adapter, in float32, of a random Qwen2 model with two layers."""
    return write_adapter(tmp_path / "adapter", use_rslora=True)


def tiny_model() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


def write_adapter(folder: Path, **options: object) -> Path:
    targets = [name.rpartition(".")[2] for name in GGUF_NAMES]
    model = get_peft_model(tiny_model(), LoraConfig(r=4, lora_alpha=6, target_modules=targets, **options))
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights)
    model.save_pretrained(folder)
    return folder


def base_of(folder: Path, family: str = "qwen2") -> Path:
    """Write a base model of a family, only its configuration, inside `folder`; return the model's folder."""
    base = folder / f"base-{family}"
    base.mkdir(exist_ok=True)
    (base / "config.json").write_text(json.dumps({"model_type": family}))
    return base


def test_the_changes_equal_those_of_pefts_merge(adapter: Path) -> None:
    before = dict(tiny_model().named_parameters())
    merged = dict(PeftModel.from_pretrained(tiny_model(), adapter).merge_and_unload().named_parameters())
    changes = lora_changes(adapter, base_of(adapter))
    assert len(changes) == 2 * len(GGUF_NAMES)
    for layer in range(2):
        for ours, theirs in GGUF_NAMES.items():
            name = f"model.layers.{layer}.{ours}.weight"
            change = (merged[name] - before[name]).detach().numpy()
            assert np.abs(change).max() > 0.1
            np.testing.assert_allclose(changes[f"blk.{layer}.{theirs}.weight"], change, atol=1e-5)


def test_an_adapter_with_changed_settings_has_another_conversion_key(adapter: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(adapter, copy)
    assert key_of(copy) == key_of(adapter)
    config = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 2 * config["lora_alpha"]}))
    assert key_of(copy) != key_of(adapter)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_are_read_as_torch_reads_them(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.randn(3, 5).to(dtype)
    save_file({"a": values}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(read_safetensors(tmp_path / "x.safetensors")["a"], values.float().numpy())


def test_adapters_that_cannot_be_merged_are_refused(adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="adapter of llama"):
        lora_changes(adapter, base_of(adapter, "llama"))
    with pytest.raises(UserError, match="use_dora"):
        lora_changes(write_adapter(tmp_path / "dora", use_dora=True), base_of(adapter))
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"bias": "all"}))
    with pytest.raises(UserError, match="plain LoRA"):
        lora_changes(adapter, base_of(adapter))
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    weights = load_file(adapter / "adapter_model.safetensors")
    save_file(
        weights | {"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 16)}, adapter / "adapter_model.safetensors"
    )
    with pytest.raises(UserError, match="lm_head"):
        lora_changes(adapter, base_of(adapter))
    save_file({"x": torch.zeros(2, dtype=torch.int8)}, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="x has the type I8"):
        read_safetensors(tmp_path / "x.safetensors")


def test_only_models_of_the_qwen2_family_are_offered_as_a_base(adapter: Path) -> None:
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "smollm2"}))
    expected = r"an adapter of smollm2\. Expected one of qwen2\.5-coder-0\.5b, qwen2\.5-coder-1\.5b as its base"
    with pytest.raises(UserError, match=expected):
        adapted_folder(adapter, print)


@pytest.mark.long
def test_a_conversion_for_openvino_cleans_up_after_a_killed_one_and_reports_a_cache_that_cannot_be_written(
    tmp_path: Path,
) -> None:
    target = tmp_path / "adapted" / "0123"
    killed = tmp_path / "adapted" / "adapted.killed" / "openvino"
    killed.mkdir(parents=True)

    def make(scratch: Path) -> None:
        (scratch / "openvino").mkdir()
        (scratch / "openvino" / OPENVINO_MODEL).write_text("")

    def fill_disk(scratch: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"0123: cannot be written \(.*No space left on device.*Free some space"):
        convert_once(target, target.parent, "reader", fill_disk, print)
    assert convert_once(target, target.parent, "reader", make, print) == target
    assert {each.name for each in target.parent.iterdir()} == {"0123", "fetching.lock"}
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        convert_once(tmp_path / "file" / "0123", tmp_path / "file", "reader", make, print)


def test_the_shipped_reader_is_small_and_names_its_base_and_data_sets(tmp_path: Path) -> None:
    folder = Path(resolve("reader"))
    assert (folder / "adapter_model.safetensors").stat().st_size < 20e6
    assert adapter_base(str(folder)) == "qwen2.5-coder-0.5b" and answer_form(folder) == "cited"
    changes = lora_changes(folder, base_of(tmp_path))
    assert len(changes) == 24 * len(GGUF_NAMES) and changes["blk.0.ffn_down.weight"].shape == (896, 4864)
    assert all(np.isfinite(change).all() and np.abs(change).max() > 0 for change in changes.values())
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(name in card for name in ("SQuAD", "HotpotQA", "Natural Questions", "BoolQ", "2Wiki", "FairytaleQA"))


def test_the_shipped_verifier_is_small_and_cannot_be_opened_as_a_language_model() -> None:
    folder = Path(resolve("support"))
    assert (folder / "adapter_model.safetensors").stat().st_size < 10e6
    assert adapter_base(str(folder)) == "qwen2.5-coder-0.5b"
    assert read_calibration(folder / CALIBRATION) != Calibration()
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(
        name in card for name in ("SummEdits", "BUMP", "Q2", "SQuAD", "Natural Questions", "COVID-QA", "HotpotQA")
    )
    with pytest.raises(UserError, match="model 'support': no such model"):
        open_model("support")


def test_a_folder_named_like_the_reader_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reader").mkdir()
    assert resolve("reader") == "reader"
    with pytest.raises(UserError, match="model 'reader'"):
        open_model("reader")

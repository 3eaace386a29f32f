"""Loading whole models and adapters, and the errors for those that are missing or unusable."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from graph.errors import UserError
from graph.models.checkpoint import adapter_base, base_weights, is_adapter
from tests.hub import go_online, hub, put_into_cache
from train.model.load import check_source, load_model, load_policy, load_tokenizer


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """An adapter that changes the outputs of `base`."""
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(load_model(str(base), "float32"), config)
    model.save_pretrained(tmp_path / "adapter")
    load_tokenizer(str(base)).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_whole_model_is_loaded_in_evaluation_mode_with_a_pad_token(base: Path) -> None:
    model, tokenizer = load_policy(str(base))
    assert not model.training
    assert model.dtype == torch.float32
    assert tokenizer.pad_token == "<|pad|>" and tokenizer.padding_side == "right"
    assert load_policy(str(base), "bfloat16")[0].dtype == torch.bfloat16


@torch.no_grad()
def test_an_adapter_is_loaded_onto_its_base_and_changes_its_logits(base: Path, adapter: Path) -> None:
    ids = torch.tensor([[5, 6, 7]])
    model, _ = load_policy(str(adapter))
    plain, _ = load_policy(str(base))
    assert is_adapter(str(adapter)) and adapter_base(str(adapter)) == str(base)
    assert not any(weight.requires_grad for weight in model.parameters())
    assert not torch.allclose(model(ids).logits, plain(ids).logits)
    with model.disable_adapter():
        assert torch.equal(model(ids).logits, plain(ids).logits)


def test_a_relative_base_is_found_from_the_working_directory(
    base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": f"./{base.name}"}))
    monkeypatch.chdir(base.parent)
    load_policy(str(adapter))
    monkeypatch.chdir(adapter)
    with pytest.raises(UserError, match=r"base model './base' does not exist"):
        load_policy(str(adapter))


def test_a_model_in_the_home_folder_is_loaded(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(base.parent))
    model, _ = load_policy(f"~/{base.name}")
    assert base_weights(f"~/{base.name}") == base_weights(str(base)) and not model.training
    with pytest.raises(UserError, match="model '~/nowhere': no such folder"):
        load_policy("~/nowhere")


@torch.no_grad()
def test_an_unavailable_hub_gets_one_request_for_the_model_and_one_for_its_tokenizer(
    base: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.tensor([[5, 6, 7]])
    expected, tuned = (load_policy(str(source))[0](ids).logits for source in (base, adapter))
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": "owner/tiny"}))
    with hub(503) as (address, requested):
        go_online(monkeypatch, address, tmp_path)
        with pytest.raises(UserError, match="model 'owner/tiny': no such folder, not in the hub's cache"):
            load_policy("owner/tiny")
        put_into_cache(tmp_path, "owner/tiny", base)
        assert torch.equal(load_policy("owner/tiny")[0](ids).logits, expected)
        assert requested == ["/api/models/owner/tiny"] * 3, "the model and its tokenizer should each cost one request"
        assert torch.equal(load_policy(str(adapter))[0](ids).logits, tuned)
    assert requested[3:] == ["/api/models/owner/tiny"]


@pytest.mark.parametrize("source", ["./nowhere", "/nowhere/at/all", "runs/of/mine"])
def test_a_path_without_a_folder_is_refused(source: str) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load_policy(source)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither config\.json nor adapter_config\.json"):
        check_source(str(tmp_path))


def test_a_model_that_is_neither_local_nor_cached_is_refused_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="nobody/nothing"):
        load_model("nobody/nothing", "float32")


def test_weights_that_could_run_code_are_not_read(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "pickled"
    shutil.copytree(base, copy)
    torch.save(load_model(str(base), "float32").state_dict(), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be loaded"):
        load_model(str(copy), "float32")


@pytest.mark.parametrize(("missing", "part"), [("eos_token", "end token"), ("chat_template", "chat template")])
def test_a_tokenizer_without_an_end_token_or_chat_template_is_refused(
    base: Path, tmp_path: Path, missing: str, part: str
) -> None:
    copy = tmp_path / "incomplete"
    shutil.copytree(base, copy)
    if missing == "chat_template":
        (copy / "chat_template.jinja").unlink()
    else:
        config = copy / "tokenizer_config.json"
        values = json.loads(config.read_text())
        del values["eos_token"]
        config.write_text(json.dumps(values))
    with pytest.raises(UserError, match=f"its tokenizer has no {part}"):
        load_tokenizer(str(copy))


def test_a_tokenizer_without_a_pad_token_pads_with_its_end_token(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "unpadded"
    shutil.copytree(base, copy)
    config = copy / "tokenizer_config.json"
    values = json.loads(config.read_text())
    del values["pad_token"]
    config.write_text(json.dumps(values))
    assert load_tokenizer(str(copy)).pad_token == "<|im_end|>"

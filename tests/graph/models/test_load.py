"""Model folders with one fault each: training and serving refuse the folder and name the fault, even where the libraries would use random weights."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from graph.errors import UserError
from graph.types import CompletionRequest, Message
from serve.engines.hf_open import open_hf
from train.model.load import load_policy

WEIGHTS = "model.safetensors"
LAYER = "model.layers.1.mlp.up_proj.weight"
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def adapter(intact_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    get_peft_model(AutoModelForCausalLM.from_pretrained(intact_model), config).save_pretrained(folder)
    for file in [*intact_model.glob("tokenizer*"), *intact_model.glob("chat_template*")]:
        shutil.copy(file, folder)
    return folder


def edit(name: str, **changes: object) -> Damage:
    """Damage that changes entries of a JSON file."""

    def change(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def remove_weight(name: str) -> Damage:
    """Damage that removes a weight from the file."""

    def drop(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        del weights[name]
        save_file(weights, folder / WEIGHTS, {"format": "pt"})

    return drop


def cut(name: str) -> Damage:
    """Damage that cuts off the end of a file, as an interrupted copy does."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def overwrite(name: str, text: str) -> Damage:
    """Damage that replaces the content of a file."""
    return lambda folder: (folder / name).write_text(text)


def lose_a_shard(folder: Path) -> None:
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="40KB")
    (folder / WEIGHTS).unlink(missing_ok=True)
    max(folder.glob("model-*.safetensors")).unlink()


def rename_weights(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    save_file({name.replace(".model.", ".text.", 1): value for name, value in load_file(file).items()}, file)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut(WEIGHTS), "cannot be loaded .*deserializing header"),
        (overwrite(WEIGHTS, "version https://git-lfs.github.com/spec/v1\n"), "cannot be loaded .*deserializing header"),
        (lose_a_shard, "cannot be loaded .*No such file .*model-0000"),
        (remove_weight(LAYER), f"missing weights: 1, starting with {LAYER}"),
        (remove_weight("lm_head.weight"), "missing weights: 1, starting with lm_head.weight"),
        (edit("config.json", num_hidden_layers=3), "missing weights: 9, starting with model.layers.2"),
        (edit("config.json", vocab_size=1000), r"has shape \[\d+, 32\], but config.json says \[1000, 32\]"),
        (edit("config.json", model_type="mystery"), "cannot be loaded .*`mystery`"),
        (overwrite("config.json", "{"), "not a valid JSON"),
        (overwrite("tokenizer.json", "{"), "no tokenizer"),
        (overwrite("tokenizer.json", '{"model": {"type": "BPE"}}'), "no tokenizer"),
    ],
)
@pytest.mark.parametrize("load", [load_policy, open_hf])
def test_a_damaged_model_is_refused_and_named(
    load: Callable[[str], object], damage: Damage, message: str, intact_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(intact_model, tmp_path / "copy")
    damage(folder)
    with pytest.raises(UserError, match=f"(?s)copy.*{message}"):
        load(str(folder))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut("adapter_model.safetensors"), "cannot be loaded"),
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "no adapter_model.safetensors"),
        (overwrite("adapter_config.json", "{"), "names no base model"),
        (edit("adapter_config.json", peft_type="MAGIC"), "cannot be loaded .*MAGIC"),
        (edit("adapter_config.json", r=3), "does not belong to base model"),
        (
            rename_weights,
            r"does not belong .*missing weights: 28, starting with .*; weights without a counterpart: 28, starting with base_model\.text\.",
        ),
    ],
)
@pytest.mark.parametrize("load", [load_policy, open_hf])
def test_a_damaged_adapter_is_refused_and_named(
    load: Callable[[str], object], damage: Damage, message: str, adapter: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(adapter, tmp_path / "copy")
    damage(folder)
    with pytest.raises(UserError, match=f"(?s)copy.*{message}"):
        load(str(folder))


@pytest.mark.parametrize("load", [load_policy, open_hf])
def test_an_adapter_on_an_adapter_is_refused(load: Callable[[str], object], adapter: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(adapter, tmp_path / "second")
    edit("adapter_config.json", base_model_name_or_path=str(adapter))(folder)
    with pytest.raises(UserError, match=r"is itself an adapter.*--merge"):
        load(str(folder))


@pytest.mark.parametrize("load", [load_policy, open_hf])
def test_an_adapter_whose_base_was_trained_further_is_refused(
    load: Callable[[str], object], adapter: Path, intact_model: Path, tmp_path: Path
) -> None:
    """Names and shapes fit; only the run's record shows that the weights differ."""
    other, folder = shutil.copytree(intact_model, tmp_path / "other"), shutil.copytree(adapter, tmp_path / "run")
    edit("adapter_config.json", base_model_name_or_path=str(other))(folder)
    load(str(folder))
    (folder / "run.json").write_text(json.dumps({"base_weights": "0123456789ab"}))
    with pytest.raises(UserError, match=r"does not belong .*trained on weights 0123456789ab, found \w{12}"):
        load(str(folder))


def test_intact_models_and_adapters_are_loaded(intact_model: Path, adapter: Path) -> None:
    assert (
        load_policy(str(intact_model))
        and open_hf(str(intact_model))
        and load_policy(str(adapter))
        and open_hf(str(adapter))
    )


def test_weights_that_are_not_numbers_are_reported(intact_model: Path, tmp_path: Path) -> None:
    """A diverged run may leave such weights, with which greedy decoding would repeat one token endlessly."""
    folder = shutil.copytree(intact_model, tmp_path / "copy")
    weights = load_file(folder / WEIGHTS)
    weights[LAYER][0, 0] = torch.nan
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(UserError, match=r"log-probabilities are not numbers\. Expected intact weights"):
        load_policy(str(folder))
    with pytest.raises(UserError, match=r"logits that are not numbers\. Expected intact weights"):
        open_hf(str(folder)).complete([CompletionRequest((Message("user", "?"),), 4)])

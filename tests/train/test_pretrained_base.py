"""Training on a model of the catalogue: an adapter records its base by the name in the catalogue, and can be opened wherever that model has been fetched."""

import shutil
from pathlib import Path

import pytest

from graph.errors import UserError
from graph.models import catalogue
from graph.models.catalogue import ADAPTERS, SMOLLM2, PretrainedAdapter, folder_of, write_record
from graph.models.checkpoint import adapter_base
from serve.engines import open_model
from train.model.load import load_policy
from train.plan.memory import Launch
from train.plan.plan import plan_training
from train.preference.preference import train_once
from train.run.settings import LoraSettings, MsSettings, SftSettings
from train.sft import train_sft


@pytest.fixture
def cache_with_tiny_model(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache with a tiny model in the place of smollm2."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    catalogue._check_once.cache_clear()
    shutil.copytree(base, folder_of(SMOLLM2))
    (folder_of(SMOLLM2) / SMOLLM2.file).write_bytes(b"GGUF")
    write_record(folder_of(SMOLLM2), SMOLLM2)
    return tmp_path / "one"


def test_adapters_record_the_name_of_their_base_and_can_be_opened_with_another_cache(
    cache_with_tiny_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"data": str(data), "max_steps": 1, "learning_rate": 1e-3}
    lora = LoraSettings(rank=2, alpha=4)
    requested: list[str] = []
    # PEFT reads the hub's address when it is imported, so it cannot be redirected here: its requests are recorded instead.
    monkeypatch.setattr(
        "peft.utils.save_and_load.check_file_exists_on_hf_hub", lambda name, file: requested.append(name)
    )
    train_sft(SftSettings(model="smollm2", output=str(tmp_path / "sft"), lora=lora, **values))
    train_once(MsSettings(model=str(tmp_path / "sft"), output=str(tmp_path / "ms"), **values))
    assert requested == [], "PEFT should not search the hub for smollm2, which is a name of our catalogue only"
    assert {adapter_base(str(tmp_path / run)) for run in ("sft", "ms")} == {"smollm2"}
    assert str(cache_with_tiny_model) not in "".join(file.read_text() for file in (tmp_path / "ms").glob("*.json"))
    cache_with_tiny_model.rename(tmp_path / "two")
    with pytest.raises(UserError, match="not fetched yet"):
        load_policy(str(tmp_path / "ms"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    assert load_policy(str(tmp_path / "ms"))[0].get_base_model().config.hidden_size == 32
    assert open_model(f"hf:{tmp_path / 'ms'}").name.startswith("ms#")


def test_training_on_an_adapter_without_a_tokenizer_uses_that_of_its_base(
    cache_with_tiny_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter is given by its name in the catalogue and has no tokenizer, like the shipped adapters. Planning accepts the name, too."""
    values = {"data": str(data), "max_steps": 1, "learning_rate": 1e-3}
    lora = LoraSettings(rank=2, alpha=4)
    train_sft(SftSettings(model="smollm2", output=str(tmp_path / "sft"), lora=lora, **values))
    for file in (*tmp_path.glob("sft/tokenizer*"), *tmp_path.glob("sft/*.jinja")):
        file.unlink()
    ours = PretrainedAdapter(str(tmp_path / "sft"), SMOLLM2, "answers")
    monkeypatch.setitem(ADAPTERS, "small reader", ours)
    named = SftSettings(model="small reader", output=str(tmp_path / "on"), **values)
    assert plan_training(named, Launch(), 0) == plan_training(
        named.model_copy(update={"model": str(tmp_path / "sft")}), Launch(), 0
    )
    train_sft(named)
    assert adapter_base(str(tmp_path / "on")) == "smollm2"
    assert (tmp_path / "on/tokenizer.json").read_bytes() == (folder_of(SMOLLM2) / "tokenizer.json").read_bytes()

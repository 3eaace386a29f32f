"""A model's name in ledgers and data changes with its weights and its configuration, not with its path."""

import json
import shutil
from pathlib import Path

import pytest

from graph.errors import UserError
from graph.models.checkpoint import check_base, model_name, weights_fingerprint


def model(folder: Path, weights: bytes = b"w") -> Path:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text("{}")
    return folder


def adapter(folder: Path, base: Path, rank: int = 8) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(b"a")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base), "r": rank}))
    return folder


def test_the_name_depends_on_the_weights_and_not_on_the_path(tmp_path: Path) -> None:
    one = model(tmp_path / "a" / "sft")
    assert model_name(str(one)) == model_name(str(shutil.copytree(one, tmp_path / "b" / "sft")))
    assert model_name(str(one)).startswith("sft#") and str(tmp_path) not in model_name(str(one))
    assert model_name(str(model(tmp_path / "c" / "sft", b"W"))) != model_name(str(one))
    assert model_name("org/some-hub-name") == "org/some-hub-name"
    (one / "README.md").write_text("This file contains no weights.")
    assert weights_fingerprint(one) == weights_fingerprint(tmp_path / "b" / "sft")


def test_the_fingerprint_of_an_adapter_depends_on_its_base_and_rank(tmp_path: Path) -> None:
    base, other = model(tmp_path / "base"), model(tmp_path / "other", b"o")
    fingerprints = [
        model_name(str(adapter(tmp_path / name / "sft", base_folder, rank)))
        for name, base_folder, rank in [("x", base, 8), ("y", other, 8), ("z", base, 16), ("w", base, 8)]
    ]
    assert len(set(fingerprints[:3])) == 3 and fingerprints[0] == fingerprints[3]
    (base / "model.safetensors").write_bytes(b"trained on")
    assert model_name(str(tmp_path / "x" / "sft")) != fingerprints[0]


def test_an_adapter_has_a_name_without_weights_and_on_another_adapter(tmp_path: Path) -> None:
    first = adapter(tmp_path / "first", model(tmp_path / "base"))
    second = adapter(tmp_path / "second", first)
    (second / "adapter_model.safetensors").unlink()
    assert model_name(str(first)).startswith("first#") and model_name(str(second)).startswith("second#")


@pytest.mark.parametrize("config", ['{"base_model_name_or_path": "ba', "{}", '{"base_model_name_or_path": null}'])
def test_an_adapter_that_names_no_base_is_refused(tmp_path: Path, config: str) -> None:
    folder = adapter(tmp_path / "sft", tmp_path)
    (folder / "adapter_config.json").write_text(config)
    with pytest.raises(UserError, match=r"adapter_config\.json: names no base model.*Save the adapter again"):
        model_name(str(folder))


def test_the_weights_of_a_conversion_by_another_transformers_are_the_same(tmp_path: Path) -> None:
    configs = [
        {"transformers_version": "5.19.0", "rope_theta": 1e6},
        {"rope_theta": 1e6, "_name_or_path": "elsewhere", "transformers_version": "5.20.0"},
        {"transformers_version": "5.19.0", "rope_theta": 1e4},
    ]
    folder = model(tmp_path / "base")
    adapted = adapter(tmp_path / "adapter", folder)
    (folder / "config.json").write_text(json.dumps(configs[0]))
    (adapted / "run.json").write_text(json.dumps({"base_weights": weights_fingerprint(folder)}))
    for config in configs[:2]:
        (folder / "config.json").write_text(json.dumps(config))
        check_base(str(adapted), str(folder))
    (folder / "config.json").write_text(json.dumps(configs[2]))
    with pytest.raises(UserError, match="does not belong to base model"):
        check_base(str(adapted), str(folder))

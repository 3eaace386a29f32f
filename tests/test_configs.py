"""The expected configurations are shipped, with the recipes of their papers, and every field of every settings class is read."""

import ast
import re
from pathlib import Path

import pytest

from graph.config import Settings, load_settings, settings_class
from tests.places import ROOT
from tests.test_layers import FILES
from train.run.settings import (
    DpoSettings,
    MsSettings,
    PreferenceSettings,
    RewardSettings,
    SelectorSettings,
    SftSettings,
    TinySettings,
    VerifierSettings,
)

KINDS: dict[str, type[Settings]] = {
    "tiny": TinySettings,
    "sft": SftSettings,
    "ms": MsSettings,
    "dpo": DpoSettings,
    "reward": RewardSettings,
    "selector": SelectorSettings,
    "verifier": VerifierSettings,
}
"""The settings class of each training command; the names of its configs begin with the command."""
LAUNCHERS = sorted((ROOT / "configs" / "accelerate").glob("*.yaml"))
CONFIGS = sorted({*(ROOT / "configs").rglob("*.y*ml")} - {*LAUNCHERS})
MODELS = ("qwen2.5-0.5b", "qwen2.5-7b", "llama-3.1-8b", "ministral-8b")
SAME_IN_MS_AND_DPO = (
    "learning_rate",
    "max_steps",
    "epochs",
    "batch_size",
    "gradient_accumulation",
    "beta",
    "model",
    "data",
    "seed",
)


def test_the_expected_configs_are_shipped() -> None:
    names = {file.relative_to(ROOT / "configs").as_posix() for file in CONFIGS}
    stages = ("sft", "ms", "dpo")
    assert names >= {
        "tiny/tiny.yaml",
        *(f"tiny/{s}.yaml" for s in stages),
        *(f"train/{s}-{model}.yaml" for s in stages for model in MODELS),
        *(f"train/{s}-qwen2.5-7b-qlora.yaml" for s in ("sft", "ms")),
        "train/ms-k8-qwen2.5-0.5b.yaml",
        "train/ms-k4-exo-qwen2.5-0.5b.yaml",
        "train/reward-qwen2.5-0.5b.yaml",
        "study/k-responses.yaml",
    }
    assert {file.parent.name for file in CONFIGS} == {"train", "tiny", "serve", "eval", "data", "study"}
    assert [file.stem for file in LAUNCHERS] == ["ddp", "deepspeed-zero2", "fsdp"]


@pytest.mark.parametrize("file", LAUNCHERS, ids=lambda file: file.stem)
def test_accelerate_reads_every_launch_config(file: Path) -> None:
    """The loader of accelerate refuses unknown keys. The command on the second line of the config names this config and an existing settings file."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    kinds = {"ddp": "MULTI_GPU", "fsdp": "FSDP", "deepspeed-zero2": "DEEPSPEED"}
    config = load_config_from_file(str(file))
    assert config.distributed_type.value == kinds[file.stem] and config.num_processes > 1
    flags = {action.dest for action in launch_command_parser()._actions}
    assert flags >= {*config.fsdp_config, *config.deepspeed_config}
    command = file.read_text(encoding="utf-8").splitlines()[1].split()
    assert command[1:4] == ["accelerate", "launch", "--config_file"] and command[5:9] == [
        "-m",
        "modegraph",
        "train",
        "ms",
    ]
    assert ROOT / command[4] == file and (ROOT / command[10]).exists()


def test_ms_and_dpo_configs_start_from_the_output_of_sft_and_share_its_data_and_precision() -> None:
    """Each ms and dpo config starts from the output of the sft config for the same model, with its data, quantisation and precision."""
    for file in (ROOT / "configs" / "train").glob("sft-*.yaml"):
        sft = load_settings(SftSettings, file)
        for stage in ("ms", "dpo"):
            later = file.with_name(file.name.replace("sft-", f"{stage}-", 1))
            if later.exists():
                run = load_settings(KINDS[stage], later).model_dump()
                assert (run["model"], run["quantise"], run["lora"]) == (sft.output, sft.quantise, None), later
                assert (run["data"], run["precision"]) == (sft.data, sft.precision), later


@pytest.mark.parametrize("pattern", ["tiny/{}.yaml", *(f"train/{{}}-{model}.yaml" for model in MODELS)])
def test_ms_and_dpo_are_compared_on_equal_terms(pattern: str) -> None:
    files = {kind: ROOT / "configs" / pattern.format(kind) for kind in ("ms", "dpo")}
    ms = load_settings(MsSettings, files["ms"]).model_dump()
    dpo = load_settings(DpoSettings, files["dpo"]).model_dump()
    assert {key: ms[key] for key in SAME_IN_MS_AND_DPO} == {key: dpo[key] for key in SAME_IN_MS_AND_DPO}


def test_the_recipe_of_graphmpa_is_the_default() -> None:
    """GraphMPA §4.1: learning rate 1e-5, batch size 4, 2 epochs."""
    settings = PreferenceSettings(model="m", data="d", output="o")
    assert (settings.learning_rate, settings.batch_size, settings.epochs) == (1e-5, 4, 2)


WITH_A_RECIPE = [
    file for file in CONFIGS if file.stem.startswith(("sft-", "ms-", "dpo-")) and not re.search("reader|k64", file.stem)
]


@pytest.mark.parametrize("file", WITH_A_RECIPE, ids=lambda file: file.stem)
def test_a_training_config_has_the_recipe_of_its_paper(file: Path) -> None:
    """Every config for pairs or for K = 8 has GraphMPA's recipe; configs for SFT have it with the learning rate of an adapter.

    EXO's recipe: β_r = β_π = .5, learning rate 1e-6, 1 epoch, K = 4. The configs of the readers and those for K = 64 have no paper's recipe.
    """
    values = load_settings(KINDS[file.stem.partition("-")[0]], file).model_dump()
    recipe = (values["learning_rate"], values["epochs"], values["batch_size"] * values["gradient_accumulation"])
    rate = 2e-4 if file.stem.startswith("sft-") else 1e-5
    assert recipe == ((1e-6, 1, 4) if "exo" in file.stem else (rate, 2, 4))
    if "exo" in file.stem:
        assert (values["beta"], values["beta_reward"], values["responses"]) == (0.5, 0.5, 4)


@pytest.mark.long
def test_every_field_of_every_settings_class_is_read() -> None:
    """A field is read if its name is read as an attribute (`settings.beta`) in any of our files."""
    kinds: list[type[Settings]] = []
    read: set[str] = set()
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any("Settings" in ast.unparse(base) for base in node.bases):
                kinds.append(settings_class(f"{'.'.join(file.relative_to(ROOT).with_suffix('').parts)}:{node.name}"))
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
    unread = [f"{kind.__module__}.{kind.__name__}.{name}" for kind in kinds for name in kind.model_fields.keys() - read]
    assert not unread
    assert {kind.__name__ for kind in kinds} >= {"LoraSettings", "MsSettings", "TuneSettings", "Key"}

"""Every shipped configuration parses with its settings class, and every field of every settings class is read."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

from data_synth.reading.reading_rows import ImportSettings
from eval.run.config import MatrixSettings
from eval.study import StudySettings
from graph.config import Settings, load_settings
from serve.http.settings import ServerSettings
from tests.places import ROOT
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

FOLDERS = ("graph", "data_synth", "train", "serve", "eval")
KINDS: dict[str, type[Settings]] = {
    "tiny": TinySettings,
    "sft": SftSettings,
    "ms": MsSettings,
    "dpo": DpoSettings,
    "reward": RewardSettings,
    "selector": SelectorSettings,
    "verifier": VerifierSettings,
    "serve": ServerSettings,
}
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


def kind_of(file: Path) -> type[Settings]:
    """The settings class of a config: by its folder for eval, data and study, else by the part of its name before the first hyphen (<stage>-<model>.yaml)."""
    folders: dict[str, type[Settings]] = {"eval": MatrixSettings, "data": ImportSettings, "study": StudySettings}
    if file.parent.name in folders:
        return folders[file.parent.name]
    return KINDS[file.stem.partition("-")[0]]


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_shipped_config_parses(file: Path) -> None:
    assert file.parent.name in ("train", "tiny", "serve", "eval", "data", "study"), (
        "add the settings class of a new folder of configs to `kind_of`"
    )
    load_settings(kind_of(file), file)


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
                run = load_settings(kind_of(later), later).model_dump()
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


@pytest.mark.parametrize("file", [file for file in CONFIGS if file.parent.name == "train"], ids=lambda file: file.stem)
def test_a_training_config_has_the_recipe_of_its_paper(file: Path) -> None:
    """Every config for pairs or for K = 8 has GraphMPA's recipe; configs for SFT have it with the learning rate of an adapter.

    EXO's recipe: β_r = β_π = .5, learning rate 1e-6, 1 epoch, K = 4. The configs for smollm2, the readers, the reward
    model, the selectors and the verifier have different recipes.
    """
    values = load_settings(kind_of(file), file).model_dump()
    if file.stem.startswith(("sft-reader", "reward", "selector", "verifier")) or file.stem.endswith(
        ("smollm2", "reader")
    ):
        return
    recipe = (values["learning_rate"], values["epochs"], values["batch_size"] * values["gradient_accumulation"])
    rate = 2e-4 if file.stem.startswith("sft-") else 1e-5
    assert recipe == ((1e-6, 1, 4) if "exo" in file.stem else (rate, 2, 4))
    if "exo" in file.stem:
        assert (values["beta"], values["beta_reward"], values["responses"]) == (0.5, 0.5, 4)


def all_settings_classes() -> list[type[Settings]]:
    """Every settings class in FOLDERS."""
    for folder in FOLDERS:
        package = importlib.import_module(folder)
        for module in pkgutil.walk_packages(package.__path__, f"{folder}."):
            if module.name.endswith("settings"):
                importlib.import_module(module.name)
    found: list[type[Settings]] = []
    waiting = [Settings]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            found.append(kind)
    return sorted({kind for kind in found if kind.__module__.split(".")[0] in FOLDERS}, key=lambda kind: kind.__name__)


def attributes_read() -> set[str]:
    """Every name read as an attribute (`settings.beta`) anywhere in FOLDERS."""
    names: set[str] = set()
    for file in [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names |= {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
    return names


@pytest.mark.long
def test_every_field_of_every_settings_class_is_read() -> None:
    read = attributes_read()
    unread = [
        f"{k.__module__}.{k.__name__}.{name}"
        for k in all_settings_classes()
        for name in k.model_fields
        if name not in read
    ]
    assert not unread
    assert {kind.__name__ for kind in all_settings_classes()} >= {"TinySettings", "LoraSettings", "MsSettings"}

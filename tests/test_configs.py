"""Every shipped configuration parses with the class it is for, and every field of every settings class is read."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

from graph.config import Settings, load_settings
from train.settings import DpoSettings, MsSettings, PreferenceSettings, SftSettings, TinySettings

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("graph", "data_synth", "train", "serve", "eval")
KINDS: dict[str, type[Settings]] = {"tiny": TinySettings, "sft": SftSettings, "ms": MsSettings, "dpo": DpoSettings}
CONFIGS = sorted((ROOT / "configs").rglob("*.y*ml"))
SAME_IN_BOTH = (
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
    """configs/train/ and configs/demo/ hold <stage>.yaml and <stage>-<model>.yaml."""
    return KINDS[file.stem.partition("-")[0]]


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_shipped_config_parses(file: Path) -> None:
    assert file.parent.name in ("train", "demo"), "say here which class a new folder of configs is for"
    load_settings(kind_of(file), file)


def test_the_expected_configs_are_shipped() -> None:
    names = {file.relative_to(ROOT / "configs").as_posix() for file in CONFIGS}
    stages = ("sft", "ms", "dpo")
    assert names >= {
        "demo/tiny.yaml",
        *(f"demo/{s}.yaml" for s in stages),
        *(f"train/{s}-qwen2.5-0.5b.yaml" for s in stages),
    }


@pytest.mark.parametrize("pattern", ["demo/{}.yaml", "train/{}-qwen2.5-0.5b.yaml"])
def test_ms_and_dpo_are_compared_on_equal_terms(pattern: str) -> None:
    files = {kind: ROOT / "configs" / pattern.format(kind) for kind in ("ms", "dpo")}
    ms = load_settings(MsSettings, files["ms"]).model_dump()
    dpo = load_settings(DpoSettings, files["dpo"]).model_dump()
    assert {key: ms[key] for key in SAME_IN_BOTH} == {key: dpo[key] for key in SAME_IN_BOTH}


def test_the_recipe_of_graphmpa_is_the_default() -> None:
    """GraphMPA §4.1: learning rate 1e-5, batch size 4, 2 epochs."""
    settings = PreferenceSettings(model="m", data="d", output="o")
    assert (settings.learning_rate, settings.batch_size, settings.epochs) == (1e-5, 4, 2)


def all_settings_classes() -> list[type[Settings]]:
    """Every settings class of our folders."""
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
    """Every name read as an attribute (`settings.beta`) anywhere in our folders."""
    names: set[str] = set()
    for file in [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names |= {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
    return names


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

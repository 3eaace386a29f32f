"""Settings: unknown keys name the nearest, overrides are typed, bad values name themselves."""

from pathlib import Path

import pytest

from graph.config import Settings, known_keys, load_settings
from graph.errors import UserError


class Inner(Settings):
    rank: int = 8


class Outer(Settings):
    learning_rate: float = 1e-5
    model: str
    lora: Inner | None = None


def test_file_then_overrides(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model: a\nlora: {rank: 4}\n")
    loaded = load_settings(Outer, file, ["learning_rate=1e-6", "lora.rank=16", "model=b"])
    assert (loaded.learning_rate, loaded.model, loaded.lora) == (1e-6, "b", Inner(rank=16))


@pytest.mark.parametrize(
    ("text", "overrides", "told"),
    [
        ("model: a\nlearning_rat: 1", [], "unknown key 'learning_rat'; did you mean 'learning_rate'?"),
        ("model: a\nlora: {rnk: 1}", [], "unknown key 'lora.rnk'; did you mean 'lora.rank'?"),
        ("model: a", ["learning_rate=fast"], "learning_rate = 'fast'"),
        ("learning_rate: 1", [], "'model' is missing"),
        ("modle: a", [], "unknown key 'modle'; did you mean 'model'?"),
        ("- a", [], "holds a list"),
        ("a: [", [], "not valid YAML"),
        ("model: a", ["nonsense"], "--set nonsense"),
        ("model: a", ["model.size=1"], "model is the value 'a'"),
    ],
)
def test_bad_settings_are_told_in_one_line(tmp_path: Path, text: str, overrides: list[str], told: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as problem:
        load_settings(Outer, file, overrides)
    assert told in str(problem.value) and "\n" not in str(problem.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        load_settings(Outer, tmp_path / "nowhere.yaml")


def test_known_keys_are_flat() -> None:
    assert known_keys(Outer) == ["learning_rate", "model", "lora.rank"]

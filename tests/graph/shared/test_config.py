"""Settings: an override gets the type of its setting; errors name the bad value or the unknown key, with the known key most like it."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr, model_validator

from graph.config import Settings, known_keys, load_settings, read_scalar
from graph.errors import UserError


class Inner(Settings):
    rank: int = 8
    key: SecretStr | None = None


class Named(Settings):
    model: str
    flat: bool = False
    rank: int = 0

    @model_validator(mode="after")
    def _check_rank(self) -> "Named":
        if self.flat and self.rank:
            raise ValueError("rank is set although flat is true")
        return self


class Outer(Settings):
    learning_rate: float = 1e-5
    model: str
    lora: Inner | None = None
    named: dict[str, Named] = Field(default={})
    key: SecretStr | None = None
    folder: Path | None = None

    @model_validator(mode="after")
    def _check_model(self) -> "Outer":
        if self.model == "both":
            raise ValueError("model 'both' means two models")
        return self


def test_overrides_take_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model: a\nlora: {rank: 4}\n")
    loaded = load_settings(Outer, file, ["learning_rate=1e-6", "lora.rank=16", "model=b"])
    assert (loaded.learning_rate, loaded.model, loaded.lora) == (1e-6, "b", Inner(rank=16))


def test_a_setting_of_a_group_that_is_null_is_set(tmp_path: Path) -> None:
    """The settings.yaml of a run contains null for a group of settings that the run did not use."""
    file = tmp_path / "c.yaml"
    file.write_text("model: a\nlora: null\n")
    assert load_settings(Outer, file, ["lora.rank=16"]).lora == Inner(rank=16)
    assert load_settings(Outer, file, ["lora=null", "lora.rank=16"]).lora == Inner(rank=16)
    assert load_settings(Outer, file).lora is None


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("model: a\nlearning_rat: 1", [], "unknown key 'learning_rat'. Did you mean 'learning_rate'?"),
        ("model: a\nlora: {rnk: 1}", [], "unknown key 'lora.rnk'. Did you mean 'lora.rank'?"),
        ("model: a", ["learning_rate=fast"], "learning_rate = 'fast'"),
        ("learning_rate: 1", [], "'model' is missing"),
        ("modle: a", [], "unknown key 'modle'. Did you mean 'model'?"),
        ("model: a\nbeard: 1", [], "unknown key 'beard'. Known keys: learning_rate"),
        ("- a", [], "contains a list"),
        ("a: [", [], "not valid YAML"),
        ("model: a\nlora: {rank: 2024-02-30}", [], "not valid YAML (day is out of range for month)"),
        ("model: 0b_", [], "not valid YAML"),
        ("model: a", ["nonsense"], "--set nonsense"),
        ("model: a", ["model.size=1"], "model is the value 'a'"),
    ],
)
def test_bad_settings_are_reported_in_one_line(tmp_path: Path, text: str, overrides: list[str], message: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as problem:
        load_settings(Outer, file, overrides)
    assert message in str(problem.value) and "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "text",
    [
        *("2024", "1e5", "007", "on", "nan", "2024-01-02", "2024-02-30", "0b_", "1_000"),
        *("#S3cr3t!", "&S3cr3t", "!S3cr3t", "*S3cr3t", "abc #def", "5 #6", "&a b", "!!int 5", "--- a", "|", "---"),
    ],
)
def test_text_is_taken_literally(text: str) -> None:
    """Text that YAML would read as a number, a date, a boolean, null or a comment: without quotes, in quotes, in a group, as a secret and as a path."""
    assert load_settings(Outer, None, [f"model={text}"]).model == text
    assert load_settings(Outer, None, [f'model="{text}"']).model == text
    assert load_settings(Outer, None, ["model=a", f"named.x.model={text}"]).named["x"].model == text
    settings = load_settings(Outer, None, ["model=a", f"key={text}", f"folder={text}"])
    assert settings.key == SecretStr(text) and settings.folder == Path(text)


def test_null_is_text_only_where_a_setting_cannot_be_null() -> None:
    settings = load_settings(Outer, None, ["model=null", "key=null", "folder=~"])
    assert (settings.model, settings.key, settings.folder) == ("null", None, None)
    settings = load_settings(Outer, None, ["model=~ # none", "key=null # none", "folder=~  # none"])
    assert (settings.model, settings.key, settings.folder) == ("~ # none", None, None)


def test_a_number_without_quotes_is_not_converted_to_another_type() -> None:
    values = [read_scalar(text) for text in ("08", "+7", "٣", "9" * 5000)]
    assert list(map(repr, values)) == ["8", "7", "'٣'", repr("9" * 5000)]


def test_an_empty_secret_is_not_a_missing_one() -> None:
    settings = load_settings(Outer, None, ["model=a", "key=", "folder="])
    assert (settings.key, settings.folder) == (SecretStr(""), None)


def test_other_settings_are_parsed_as_yaml() -> None:
    settings = load_settings(
        Outer, None, ["model=a", "learning_rate=1e5", "lora=null", "named.x.model=b", "named.x.flat=yes"]
    )
    assert (settings.learning_rate, settings.lora, settings.named["x"].flat) == (1e5, None, True)


@pytest.mark.parametrize(("text", "rank"), [("010", 10), ("-010", -10), ("08", 8), ("0x10", 16), ("5 # five", 5)])
def test_a_number_with_leading_zeros_is_decimal(text: str, rank: int) -> None:
    assert load_settings(Outer, None, ["model=a", f"lora.rank={text}"]).lora == Inner(rank=rank)


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("model: 2024", [], "c.yaml: model = 2024. Expected a valid string. Write it in quotes"),
        ("model: a\n5: x", [], "c.yaml: the key 5 is not text. Expected keys that are text. Write it in quotes"),
        (
            "model: a\nnamed: {5: {model: b}}",
            [],
            "c.yaml: the key 5 of named is not text. Expected keys that are text. Write it in quotes",
        ),
        ("model: a\nlora: 5", [], "c.yaml: lora = 5. Expected a group of settings, `key: value`. Change the value"),
        (
            "model: a\nnamed: {x: {model: b, flat: true, rank: 9}}",
            [],
            "c.yaml: named.x: rank is set although flat is true",
        ),
        ("model: both", [], "c.yaml: model 'both' means two models"),
        ("model: a\nkey: 12345", [], "c.yaml: key = (not shown). Expected a valid string. Write it in quotes"),
        (
            "model: a\nlora: {key: [1, 2]}",
            [],
            "c.yaml: lora.key = (not shown). Expected a valid string. Change the value",
        ),
        (
            "model: a",
            ["learning_rate=fast"],
            "--set: learning_rate = 'fast'. Expected a valid number, unable to parse string as a number. Change the value",
        ),
        (
            "model: a",
            ["lora={rank: many}", "model=b"],
            "--set: lora.rank = 'many'. Expected a valid integer, unable to parse string as an integer. Change the value",
        ),
        (
            "model: a\nlora: {rank: many}",
            ["learning_rate=1"],
            "c.yaml: lora.rank = 'many'. Expected a valid integer, unable to parse string as an integer. Change the value",
        ),
        (
            "model: a",
            ["lora=5", "lora.rank=3"],
            "--set lora.rank=3: lora is the value 5. Expected a group of settings. Put the name of a group before the dot",
        ),
    ],
)
def test_a_problem_is_reported_without_secrets_or_internals(
    tmp_path: Path, text: str, overrides: list[str], message: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as problem:
        load_settings(Outer, file, overrides)
    assert str(problem.value).removeprefix(f"{tmp_path}/") == message


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        load_settings(Outer, tmp_path / "nowhere.yaml")
    with pytest.raises(UserError, match=f"{tmp_path}: a folder. Expected a YAML file of settings. Name a file in it"):
        load_settings(Outer, tmp_path)


def test_known_keys_of_groups_are_listed_with_dots() -> None:
    assert known_keys(Outer) == [
        "learning_rate",
        "model",
        "lora.rank",
        "lora.key",
        "named.model",
        "named.flat",
        "named.rank",
        "key",
        "folder",
    ]

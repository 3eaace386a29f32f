"""Settings: one YAML file and `key=value` flags become one frozen, validated settings object.

Used by the command line of every folder; inner functions take the values they need, never the settings object's file.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from graph.shared.errors import UserError, nearest, unreadable
from graph.shared.redact import is_secret, redacted

_QUOTED = re.compile(r"'([^']*)'")


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def recorded(self) -> dict[str, Any]:
        """The values for a record such as run.json, without secrets."""
        return cast(dict[str, Any], redacted(self.model_dump(mode="json")))


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Typed:
    """A value of `--set` that YAML reads as other than text, with the text: which of them is meant, the setting decides."""

    text: str
    value: Any


@dataclass(frozen=True)
class Problem:
    """What is wrong with one setting, in words; whether there is no such setting, or it only lacks a value that --set could give."""

    key: str
    text: str
    missing: bool
    unknown: bool


def load_settings(kind: type[S], file: Path | None = None, overrides: Sequence[str] = ()) -> S:
    """Read `file` (YAML mapping), lay `key=value` or `outer.inner=value` overrides over it, validate as `kind`.

    Raises UserError naming the file, the key or value, and the nearest known key.
    """
    values = read_yaml(file) if file is not None else {}
    where = str(file) if file is not None else "--set"
    for override in overrides:
        set_value(values, override)
    return parse_settings(kind, values, where)


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; UserError when it is missing, unreadable or not a mapping."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise unreadable(file, problem, "a YAML file of settings") from None
    except (UnicodeDecodeError, yaml.YAMLError) as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{file}: not valid YAML ({reason})", "a mapping of settings", "fix the file") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{file}: holds a {type(values).__name__}", "a mapping of settings", "write `key: value` lines")
    return values


def set_value(values: dict[str, Any], override: str) -> None:
    """Write one `outer.inner=value` (value read as YAML; see `Typed`) into the nested mapping `values`, in place."""
    path, found, text = override.partition("=")
    if not found or not path:
        raise UserError(f"--set {override}", "key=value", "for example --set learning_rate=1e-5")
    *outer, last = path.strip().split(".")
    target = values
    for key in outer:
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            value = inner.value if isinstance(inner, Typed) else inner
            shown = (
                f"--set {path}=…: {key} is a secret"
                if is_secret(key)
                else f"--set {override}: {key} is the value {value!r}"
            )
            raise UserError(shown, "a group of settings", "drop the dot")
        target = inner
    value = read_scalar(text)
    target[last] = value if isinstance(value, str | dict | list) else Typed(text.strip(), value)


def read_scalar(text: str) -> Any:
    """One YAML scalar; `1e-5` is a number here (YAML 1.1 would call it text), and what stands in quotes is text."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str) and value == text.strip():
        try:
            return float(value)
        except ValueError:
            return value
    return value


def parse_settings(kind: type[S], values: Mapping[str, Any], where: str) -> S:
    """Validate a mapping as `kind`; the first problem (unknown keys before others) becomes a UserError that names `where`."""
    try:
        return kind.model_validate(_settled(values))
    except ValidationError as problems:
        texts = {problem["loc"] for problem in problems.errors() if problem["type"] == "string_type"}
    try:
        return kind.model_validate(_settled(values, texts))
    except ValidationError as problems:
        problem = min(problems.errors(), key=lambda each: each["type"] != "extra_forbidden")
    raise _told(kind, problem, where)


def problems_in(kind: type[S], values: Mapping[str, Any], where: str) -> list[Problem]:
    """Everything that is wrong with a mapping as settings of `kind`, in order; [] when nothing is."""
    try:
        kind.model_validate(values)
    except ValidationError as problems:
        return [
            Problem(
                key=".".join(map(str, each["loc"])),
                text=str(_told(kind, each, where)),
                missing=each["type"] == "missing" and len(each["loc"]) == 1,
                unknown=each["type"] == "extra_forbidden",
            )
            for each in problems.errors()
        ]
    return []


def _settled(values: Mapping[str, Any], texts: Collection[tuple[int | str, ...]] = (), at: tuple[str, ...] = ()) -> Any:
    """The values without `Typed`: what YAML makes of one, but its text at the places `texts`."""
    settled: dict[str, Any] = {}
    for key, value in values.items():
        place = (*at, key)
        if isinstance(value, Typed):
            settled[key] = value.text if place in texts else value.value
        else:
            settled[key] = _settled(value, texts, place) if isinstance(value, Mapping) else value
    return settled


def _told(kind: type[Settings], problem: ErrorDetails, where: str) -> UserError:
    """One problem in words: the key with its value (never a secret's, never a whole section), what was expected, what to do."""
    places, given, expected = problem["loc"], problem["input"], problem["msg"]
    if problem["type"] == "invalid_key" or places[-1:] == ("[key]",):
        outer = ".".join(map(str, places[: -2 if places[-1] == "[key]" else -1]))
        found = f"{where}: the key {given!r}{f' of {outer}' if outer else ''} is no text"
        return UserError(found, "keys that are text", "write it in quotes")
    path = ".".join(map(str, places))
    if problem["type"] == "extra_forbidden":
        known = known_keys(kind)
        near = nearest(path, known)
        question = f"did you mean '{near}'?" if near else ""
        return UserError(f"{where}: unknown key '{path}'", question, f"known keys: {', '.join(known)}")
    if problem["type"] == "missing":
        return UserError(
            f"{where}: '{path}' is missing",
            "",
            f"it has no default: give {path}=… (on the command line: --set {path}=…)",
        )
    if problem["type"] == "value_error":
        expected = str(problem["ctx"]["error"])
        if isinstance(given, Mapping):
            return UserError(": ".join(part for part in (where, path, expected) if part), "", "")
    expected = expected.removeprefix("Input should be ")
    if problem["type"] in ("model_type", "dict_type"):
        expected = "a group of settings, `key: value`"
    if problem["type"] == "literal_error":
        near = nearest(str(given), _QUOTED.findall(expected))
        expected = f"did you mean '{near}'? Expected {expected}" if near else expected
    text_wanted = problem["type"] == "string_type" and not isinstance(given, Mapping | list)
    remedy = "write it in quotes" if text_wanted and given is not None else "change the value"
    shown = "(not shown)" if _is_secret(kind, places) else f"{given!r:.200}"
    if problem["type"] == "value_error":
        return UserError(f"{where}: {path} = {shown}: {expected}", "", remedy)
    return UserError(f"{where}: {path} = {shown}", expected, remedy)


def _is_secret(kind: type[BaseModel], places: Sequence[int | str]) -> bool:
    """Whether the setting at `places` is a password or a key."""
    for place in places:
        field = kind.model_fields.get(str(place))
        parts = (field.annotation, *getattr(field.annotation, "__args__", ())) if field else ()
        if SecretStr in parts:
            return True
        inner = settings_within(field.annotation) if field else None
        if inner is None:
            return False
        kind = inner
    return False


def known_keys(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """All keys of a settings class, nested ones with dots, in order of declaration."""
    keys: list[str] = []
    for name, field in kind.model_fields.items():
        inner = settings_within(field.annotation)
        keys += known_keys(inner, f"{prefix}{name}.") if inner is not None else [f"{prefix}{name}"]
    return keys


def settings_within(annotation: object) -> type[Settings] | None:
    """The settings class of a section: `LoraSettings`, also where it may be null; None for every other annotation."""
    parts = (annotation, *getattr(annotation, "__args__", ()))
    return next((part for part in parts if isinstance(part, type) and issubclass(part, Settings)), None)

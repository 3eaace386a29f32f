"""Settings at the door: one YAML file and `key=value` flags become one frozen, validated settings object.

Used by the command line of every folder; inner functions take the values they need, never the settings object's file.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from graph.errors import UserError

_QUOTED = re.compile(r"'([^']*)'")


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


S = TypeVar("S", bound=Settings)


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
    except FileNotFoundError:
        raise UserError(f"{file}: no such file", "a YAML file of settings", "check the path") from None
    except (UnicodeDecodeError, yaml.YAMLError) as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{file}: not valid YAML ({reason})", "a mapping of settings", "mend the file") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{file}: holds a {type(values).__name__}", "a mapping of settings", "write `key: value` lines")
    return values


def set_value(values: dict[str, Any], override: str) -> None:
    """Write one `outer.inner=value` (value read as YAML) into the nested mapping `values`, in place."""
    path, found, text = override.partition("=")
    if not found or not path:
        raise UserError(f"--set {override}", "key=value", "for example --set learning_rate=1e-5")
    *outer, last = path.strip().split(".")
    target = values
    for key in outer:
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {override}: {key} is the value {inner!r}", "a group of settings", "drop the dot")
        target = inner
    target[last] = read_scalar(text)


def read_scalar(text: str) -> Any:
    """One YAML scalar; `1e-5` is a number here (YAML 1.1 would call it text)."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def parse_settings(kind: type[S], values: Mapping[str, Any], where: str) -> S:
    """Validate a mapping as `kind`; the first problem (unknown keys before others) becomes a UserError that names `where`."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as problems:
        problem = min(problems.errors(), key=lambda each: each["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = known_keys(kind)
        near = difflib.get_close_matches(path, known, n=1, cutoff=0.0)
        raise UserError(
            f"{where}: unknown key '{path}'", f"did you mean '{near[0]}'?", f"known keys: {', '.join(known)}"
        )
    if problem["type"] == "missing":
        raise UserError(f"{where}: '{path}' is missing", "it has no default", f"add it or pass --set {path}=…")
    expected = problem["msg"]
    if problem["type"] == "literal_error":
        near = difflib.get_close_matches(str(problem["input"]), _QUOTED.findall(expected), n=1, cutoff=0.0)
        expected = "".join(f"did you mean '{name}'? " for name in near) + expected
    raise UserError(f"{where}: {path} = {problem['input']!r}", expected, "change the value")


def known_keys(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """All keys of a settings class, nested ones with dots, in order of declaration."""
    keys: list[str] = []
    for name, field in kind.model_fields.items():
        inner = [part for part in (field.annotation, *getattr(field.annotation, "__args__", ())) if _is_settings(part)]
        keys += known_keys(inner[0], f"{prefix}{name}.") if inner else [f"{prefix}{name}"]
    return keys


def _is_settings(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)

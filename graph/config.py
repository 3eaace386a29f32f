"""Settings: turns a YAML file and `key=value` flags into a frozen, validated settings object.

Used by the command line of every package. The second half documents a settings class as a table on a help page and as commented
YAML."""

import importlib
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from graph.errors import UserError, did_you_mean, is_secret, nearest, redacted, unreadable

_QUOTED = re.compile(r"'([^']*)'")


class Settings(BaseModel):
    """Base of all settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def recorded(self) -> dict[str, Any]:
        """The values for a record such as run.json, without secrets."""
        return cast(dict[str, Any], redacted(self.model_dump(mode="json")))


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Override:
    """A value of `--set`: its text and its YAML value. If YAML reads a number, date, boolean or null, the setting's type decides which is used."""

    text: str
    value: Any


@dataclass(frozen=True)
class Problem:
    """A problem with one setting, in words, and whether the setting is unknown or only lacks a value that --set could provide."""

    key: str
    text: str
    missing: bool
    unknown: bool


def load_settings(kind: type[S], file: Path | None, overrides: Sequence[str] = ()) -> S:
    """Read `file` (a YAML mapping), apply `key=value` or `outer.inner=value` overrides, and validate the result as `kind`.

    Raises UserError naming the file or --set, the key or value, and the nearest known key.
    """
    return parse_settings(kind, read_values(file, overrides), str(file or "--set"))


def read_values(file: Path | None, overrides: Sequence[str]) -> dict[str, Any]:
    """The mapping in `file`, if any, changed by `overrides` (see `set_value`)."""
    values = read_yaml(file) if file is not None else {}
    for override in overrides:
        set_value(values, override)
    return values


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; UserError when it is missing, unreadable or not a mapping."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise unreadable(file, problem, "a YAML file of settings") from None
    except (ValueError, yaml.YAMLError) as problem:  # ValueError: not UTF-8, or a date such as 2024-02-30
        reason = " ".join(str(problem).split())
        raise UserError(f"{file}: not valid YAML ({reason})", "a mapping of settings", "fix the file") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        contents = "a list" if isinstance(values, list) else f"only the value {values!r:.80}"
        raise UserError(f"{file}: contains {contents}", "a mapping of settings", "write `key: value` lines")
    return values


def set_value(values: dict[str, Any], override: str) -> None:
    """Write one `outer.inner=value` (see `Override`) into the nested mapping `values`, in place."""
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise UserError(f"--set {override}", "key=value", "for example --set learning_rate=1e-5")
    *outer, last = path.strip().split(".")
    target = values
    for key in outer:
        inner = target.get(key)
        inner = inner.value if isinstance(inner, Override) else inner
        if inner is None:  # a group that is missing or null
            inner = target[key] = {}
        if not isinstance(inner, dict):
            shown = (
                f"--set {path}=…: {key} is a secret"
                if is_secret(key)
                else f"--set {override}: {key} is the value {inner!r}"
            )
            raise UserError(shown, "a group of settings", "put the name of a group before the dot")
        target = inner
    text = text.strip()
    # An empty secret, perhaps from an unset variable of the shell, must not mean “none”.
    target[last] = Override(text, "" if is_secret(last) and not text else read_scalar(text))


def read_scalar(text: str) -> Any:
    """One value in YAML, with three exceptions: `1e-5` is a number (in YAML 1.1, text), `010` is 10 (in YAML 1.1, 8), and text without quotes is taken as it
    is, with any comment (#), anchor (&) or tag (!). Invalid YAML, such as 2024-02-30, is text.
    """
    try:
        value = int(text) if re.fullmatch("[+-]?[0-9]+", text) else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        return text
    is_null = value is None and text.partition(" #")[0].strip().lower() in ("", "~", "null")
    if is_null or text.startswith(("'", '"')) or not (value is None or isinstance(value, str)):
        return value
    try:
        return float(text) if text.isascii() else text
    except ValueError:
        return text


def parse_settings(kind: type[S], values: Mapping[str, Any], where: str) -> S:
    """Validate a mapping as `kind`; the first problem (unknown keys before others) becomes a UserError that names its origin, `where` or --set."""
    try:
        return kind.model_validate(_resolve_overrides(values))
    except ValidationError as problems:
        texts = {problem["loc"] for problem in problems.errors() if problem["type"] in ("string_type", "path_type")}
    try:
        return kind.model_validate(_resolve_overrides(values, texts))
    except ValidationError as problems:
        problem = min(problems.errors(), key=lambda each: each["type"] != "extra_forbidden")
    raise _as_user_error(kind, problem, _place_of(values, problem["loc"]) or where)


def problems_in(kind: type[S], values: Mapping[str, Any], where: str) -> list[Problem]:
    """All problems of a mapping as settings of `kind`, in order; [] if it is valid."""
    try:
        kind.model_validate(values)
    except ValidationError as problems:
        return [
            Problem(
                key=".".join(map(str, each["loc"])),
                text=str(_as_user_error(kind, each, where)),
                missing=each["type"] == "missing" and len(each["loc"]) == 1,
                unknown=each["type"] == "extra_forbidden",
            )
            for each in problems.errors()
        ]
    return []


def _resolve_overrides(
    values: Mapping[str, Any], texts: Collection[tuple[int | str, ...]] = (), at: tuple[str, ...] = ()
) -> Any:
    """The values with each `Override` replaced: by its text at the paths in `texts` (unless YAML reads a mapping or a list), elsewhere by its YAML value."""
    resolved: dict[str, Any] = {}
    for key, given in values.items():
        path = (*at, key)
        value = given.value if isinstance(given, Override) else given
        if isinstance(value, Mapping):
            resolved[key] = _resolve_overrides(value, texts, path)
        elif isinstance(given, Override) and path in texts and not isinstance(value, list):
            resolved[key] = given.text
        else:
            resolved[key] = value
    return resolved


def _place_of(values: Any, location: Sequence[int | str]) -> str:
    """The option --set, if the value at `location` comes from there, else ""."""
    for key in location:
        values = values.get(key) if isinstance(values, Mapping) else None
        if isinstance(values, Override):
            return "--set"
    return ""


def _as_user_error(kind: type[Settings], problem: ErrorDetails, where: str) -> UserError:
    """One problem in words: the key with its value (never a secret's, never a whole section), what was expected, what to do."""
    location, value, expected = problem["loc"], problem["input"], problem["msg"]
    if problem["type"] == "invalid_key" or location[-1:] == ("[key]",):
        outer = ".".join(map(str, location[: -2 if location[-1] == "[key]" else -1]))
        found = f"{where}: the key {value!r}{f' of {outer}' if outer else ''} is not text"
        return UserError(found, "keys that are text", "write it in quotes")
    path = ".".join(map(str, location))
    if problem["type"] == "extra_forbidden":
        known = known_keys(kind)
        return UserError(f"{where}: unknown key '{path}'", did_you_mean(path, known), f"known keys: {', '.join(known)}")
    if problem["type"] == "missing":
        remedy = f"it has no default: give {path}=… (on the command line: --set {path}=…)"
        return UserError(f"{where}: '{path}' is missing", "", remedy)
    if problem["type"] == "value_error":
        expected = str(problem["ctx"]["error"])
        if isinstance(value, Mapping):
            return UserError(": ".join(part for part in (where, path, expected) if part), "", "")
    expected = expected.removeprefix("Input should be ")
    if problem["type"] in ("model_type", "dict_type"):
        expected = "a group of settings, `key: value`"
    if problem["type"] == "literal_error":
        near = nearest(str(value), _QUOTED.findall(expected))
        expected = f"did you mean '{near}'? Expected {expected}" if near else expected
    needs_quotes = problem["type"] == "string_type" and value is not None and not isinstance(value, Mapping | list)
    remedy = "write it in quotes" if needs_quotes else "change the value"
    shown = "(not shown)" if _is_secret(kind, location) else f"{value!r:.200}"
    if problem["type"] == "value_error":
        return UserError(f"{where}: {path} = {shown}: {expected}", "", remedy)
    return UserError(f"{where}: {path} = {shown}", expected, remedy)


def _is_secret(kind: type[BaseModel], location: Sequence[int | str]) -> bool:
    """Whether the setting at `location` is a password or a key."""
    for name in location:
        field = kind.model_fields.get(str(name))
        annotation = field.annotation if field else None
        if SecretStr in (annotation, *getattr(annotation, "__args__", ())):
            return True
        if (inner := settings_within(annotation)) is None:
            return False
        kind = inner
    return False


def known_keys(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """All keys of a settings class, nested ones dotted, in order of declaration."""
    keys: list[str] = []
    for name, field in kind.model_fields.items():
        inner = settings_within(field.annotation)
        keys += known_keys(inner, f"{prefix}{name}.") if inner is not None else [f"{prefix}{name}"]
    return keys


def settings_within(annotation: object) -> type[Settings] | None:
    """The settings class in an annotation: of a section, nullable or not, or of the items of a tuple or dict; None if there is none."""
    parts = (annotation, *getattr(annotation, "__args__", ()))
    return next((part for part in parts if isinstance(part, type) and issubclass(part, Settings)), None)


WIDTH = 100
REQUIRED = "required"
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class SettingLine:
    """One setting: its dotted key, its default as YAML or REQUIRED ("" for a section that is not null), and its meaning."""

    key: str
    default: str
    meaning: str
    commented: bool
    """Whether it is in a section that is null by default, or in an entry of a dict."""


def settings_class(path: str) -> type[Settings]:
    """The class named `module:Class`."""
    module, _, name = path.partition(":")
    found: type[Settings] = getattr(importlib.import_module(module), name)
    return found


def setting_lines(kind: type[Settings], prefix: str = "", commented: bool = False) -> Iterator[SettingLine]:
    """Every setting of a class in order of declaration, sections before their contents."""
    for name, field in kind.model_fields.items():
        inner = settings_within(field.annotation)
        container = get_origin(field.annotation)
        if inner is None or container in (tuple, dict):
            yield SettingLine(f"{prefix}{name}", _default(field), _meaning(field), commented)
            if inner is not None and container is dict:
                yield SettingLine(f"{prefix}{name}.NAME", "", "", True)
                yield from setting_lines(inner, f"{prefix}{name}.NAME.", True)
        else:
            disabled = commented or field.get_default() is None
            yield SettingLine(f"{prefix}{name}", _default(field) if disabled else "", _meaning(field), commented)
            yield from setting_lines(inner, f"{prefix}{name}.", disabled)


def as_yaml(kind: type[Settings], title: str) -> str:
    """All settings of a class with their defaults, as YAML with comments; required ones have no value."""
    lines = [*_comment(title, ""), ""]
    for line in setting_lines(kind):
        *outer, name = line.key.split(".")
        mark, indent = "# " if line.commented else "", "  " * len(outer)
        value = "" if line.default == REQUIRED else f" {line.default}" if line.default else ""
        lines += _comment(line.meaning, "" if line.commented else indent, indent if line.commented else "")
        lines.append(f"{mark}{indent}{name}:{value}")
    return "\n".join(lines) + "\n"


def print_settings(path: str) -> None:
    """Print the settings of `module:Class` as a table, below the help page of a command."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, style="bold cyan")
    table.add_column(ratio=1)
    for line in setting_lines(settings_class(path)):
        if not line.meaning:
            continue
        text = Text(line.meaning)
        if line.default == REQUIRED:
            text.append(" [required]", style="dim red")
        elif line.default:
            text.append(f" [default: {line.default}]", style="dim")
        table.add_row(line.key, text)
    Console().print(Panel(table, title="Settings for --config and --set", title_align="left", border_style="dim"))


def _default(field: FieldInfo) -> str:
    value = field.get_default()
    return REQUIRED if value is PydanticUndefined else as_scalar(value)


def as_scalar(value: Any) -> str:
    """A value as YAML on one line.

    >>> as_scalar(1e-05), as_scalar(None), as_scalar(""), as_scalar(("a", "b"))
    ('1.0e-05', 'null', "''", '[a, b]')
    """
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _meaning(field: FieldInfo) -> str:
    """The description, the values of a choice, "Not empty" for a minimum length, and the bounds of a number, as one sentence each."""
    text = (field.description or "").strip()
    first = text[:1].upper() if text[:1].isascii() else text[:1]
    parts = [f"{first}{text[1:].removesuffix('.')}." if text else ""]
    if choices := _choices(field.annotation):
        parts.append(f"One of {', '.join(map(str, choices))}.")
    if any(getattr(each, "min_length", 0) for each in field.metadata):
        parts.append("Not empty.")
    bounds = {name: getattr(each, name) for each in field.metadata for name in BOUNDS if hasattr(each, name)}
    if {"ge", "le"} <= bounds.keys():
        parts.append(f"From {bounds.pop('ge'):g} to {bounds.pop('le'):g}.")
    if phrases := [f"{BOUNDS[name]} {bound:.10g}" for name, bound in bounds.items()]:
        parts.append(f"{' and '.join(phrases).capitalize()}.")
    return " ".join(part for part in parts if part)


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a Literal, also within Annotated, a union or a list."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    arguments = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return next((choices for part in arguments if (choices := _choices(part))), ())


def _comment(text: str, before: str, after: str = "") -> list[str]:
    lead = f"{before}# {after}"
    return [lead + line for line in textwrap.wrap(text, WIDTH - len(lead))]

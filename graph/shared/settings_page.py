"""Settings for a person to read: what each means and what it is by default, as a table on a help page and as commented YAML."""

import importlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from graph.shared.config import Settings, settings_within

WIDTH = 100
REQUIRED = "required"
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class SettingLine:
    """One setting: its key with dots for inner ones, its default as YAML or REQUIRED, and what it means."""

    key: str
    default: str
    meaning: str
    commented: bool
    """Whether it lies in a section that is null by default."""


def settings_class(path: str) -> type[Settings]:
    """`module:Class` to the class."""
    module, _, name = path.partition(":")
    found: type[Settings] = getattr(importlib.import_module(module), name)
    return found


def setting_lines(kind: type[Settings], prefix: str = "", commented: bool = False) -> Iterator[SettingLine]:
    """Every setting of a class in order of declaration, sections before what they hold."""
    for name, field in kind.model_fields.items():
        inner = settings_within(field.annotation)
        kept_in = get_origin(field.annotation)
        if inner is None or kept_in is tuple:
            yield SettingLine(f"{prefix}{name}", _default(field), _meaning(field), commented)
        elif kept_in is dict:
            yield SettingLine(f"{prefix}{name}", _default(field), _meaning(field), commented)
            yield SettingLine(f"{prefix}{name}.NAME", "", "", True)
            yield from setting_lines(inner, f"{prefix}{name}.NAME.", True)
        else:
            off = commented or field.get_default() is None
            yield SettingLine(f"{prefix}{name}", _default(field) if off else "", _meaning(field), commented)
            yield from setting_lines(inner, f"{prefix}{name}.", off)


def as_yaml(kind: type[Settings], title: str) -> str:
    """All settings of a class with their defaults, as YAML with comments; what must be given stands there without a value."""
    lines = [*_comment(title, ""), ""]
    for each in setting_lines(kind):
        *outer, name = each.key.split(".")
        mark, indent = "# " if each.commented else "", "  " * len(outer)
        value = "" if each.default == REQUIRED else f" {each.default}" if each.default else ""
        lines += [*_comment(each.meaning, "" if each.commented else indent, indent if each.commented else "")]
        lines += [f"{mark}{indent}{name}:{value}"]
    return "\n".join(lines) + "\n"


def print_settings(path: str) -> None:
    """The settings of `module:Class` as a table, below the help page of a command."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, style="bold cyan")
    table.add_column(ratio=1)
    for each in setting_lines(settings_class(path)):
        if not each.meaning:
            continue
        told = Text(each.meaning)
        if each.default == REQUIRED:
            told.append(" [required]", style="dim red")
        elif each.default:
            told.append(f" [default: {each.default}]", style="dim")
        table.add_row(each.key, told)
    Console().print(Panel(table, title="Settings, of --config and --set", title_align="left", border_style="dim"))


def _default(field: FieldInfo) -> str:
    value = field.get_default()
    if value is PydanticUndefined:
        return REQUIRED
    return as_scalar(value)


def as_scalar(value: Any) -> str:
    """A value as YAML on one line.

    >>> as_scalar(1e-05), as_scalar(None), as_scalar(""), as_scalar(("a", "b"))
    ('1.0e-05', 'null', "''", '[a, b]')
    """
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _meaning(field: FieldInfo) -> str:
    """The description, the values that a choice has, and the bounds of a number, as one sentence each."""
    said = (field.description or "").strip()
    first = said[:1].upper() if said[:1].isascii() else said[:1]
    parts = [f"{first}{said[1:].removesuffix('.')}." if said else ""]
    if choices := _choices(field.annotation):
        parts.append(f"One of {', '.join(map(str, choices))}.")
    if any(getattr(one, "min_length", 0) for one in field.metadata):
        parts.append("Not empty.")
    found = {name: getattr(one, name) for one in field.metadata for name in BOUNDS if hasattr(one, name)}
    if {"ge", "le"} <= found.keys():
        parts.append(f"From {found.pop('ge'):g} to {found.pop('le'):g}.")
    if bounds := [f"{BOUNDS[name]} {bound:g}" for name, bound in found.items()]:
        parts.append(f"{' and '.join(bounds).capitalize()}.")
    return " ".join(part for part in parts if part)


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a Literal, also within Annotated, a union or a list."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    arguments = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return next((found for part in arguments if (found := _choices(part))), ())


def _comment(text: str, before: str, after: str = "") -> list[str]:
    lead = f"{before}# {after}"
    return [lead + line for line in textwrap.wrap(text, WIDTH - len(lead))]

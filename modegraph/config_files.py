"""Which command's settings a YAML file holds, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.config import Problem, problems_in, settings_class


@dataclass(frozen=True)
class FileCheck:
    """The commands that the file is for, or comes closest to; what is wrong, in words; and required keys that it lacks."""

    commands: list[str]
    problems: list[str]
    missing: list[str]


def check_settings(where: str, values: Mapping[str, Any], known: Mapping[str, str]) -> FileCheck:
    """The file against the settings of every command in `known` (`module:Class` by its words): the fewest unknown keys win.

    Between equals the fewest other problems do, then the command that the file is named after (ms-qwen.yaml), then the fewest keys
    that are missing.
    """
    found = {path: problems_in(settings_class(path), values, where) for path in dict.fromkeys(known.values())}

    def how_far(path: str) -> tuple[int, int, bool, int]:
        problems = found[path]
        wrong = sum(not each.missing for each in problems)
        last_words = [name.rpartition(" ")[2] for name, of in known.items() if of == path]
        unknown = sum(each.unknown for each in problems)
        return unknown, wrong, Path(where).stem.partition("-")[0] not in last_words, len(problems) - wrong

    best = min(found, key=how_far)
    equal = [path for path in found if not problems_to_fix(found[path])] or [best]
    takes = sorted(equal, key=how_far)
    missing = [each.key for each in found[best] if each.missing]
    return FileCheck(
        [name for path in takes for name, of in known.items() if of == path], problems_to_fix(found[best]), missing
    )


def problems_to_fix(problems: list[Problem]) -> list[str]:
    """What must be fixed: not what can still be given."""
    return [each.text for each in problems if not each.missing]

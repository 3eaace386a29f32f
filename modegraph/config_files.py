"""Finds the command that a YAML file of settings is for, and the problems in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graph.config import Problem, problems_in, settings_class


@dataclass(frozen=True)
class FileCheck:
    """The commands that the file fits or, if it fits none, fits best; its problems, in words; and the required keys that it lacks."""

    commands: list[str]
    problems: list[str]
    missing: list[str]


def check_settings(where: str, values: Mapping[str, Any], known: Mapping[str, str]) -> FileCheck:
    """Check the file against the settings of every command in `known`, which maps full names to `module:Class`.

    The command with the fewest unknown keys fits best. Ties are broken by the fewest other problems, then the command that the file is
    named after (ms-qwen.yaml), then the fewest missing keys.
    """
    problems_by_class = {
        path: problems_in(settings_class(path), values, where) for path in dict.fromkeys(known.values())
    }

    def distance(path: str) -> tuple[int, int, bool, int]:
        problems = problems_by_class[path]
        wrong = sum(not problem.missing for problem in problems)
        last_words = [name.rpartition(" ")[2] for name, class_path in known.items() if class_path == path]
        unknown = sum(problem.unknown for problem in problems)
        return unknown, wrong, Path(where).stem.partition("-")[0] not in last_words, len(problems) - wrong

    best = min(problems_by_class, key=distance)
    fitting = [path for path in problems_by_class if not problems_to_fix(problems_by_class[path])] or [best]
    missing = [problem.key for problem in problems_by_class[best] if problem.missing]
    return FileCheck(
        [name for path in sorted(fitting, key=distance) for name, class_path in known.items() if class_path == path],
        problems_to_fix(problems_by_class[best]),
        missing,
    )


def problems_to_fix(problems: list[Problem]) -> list[str]:
    """The problems that must be fixed in the file: all but missing keys, which can still be given elsewhere."""
    return [problem.text for problem in problems if not problem.missing]

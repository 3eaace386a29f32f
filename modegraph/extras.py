"""The error for a missing package: it names the extra of modegraph that installs the package."""

from __future__ import annotations

from importlib.metadata import requires

from packaging.requirements import Requirement

from graph.errors import UserError

INSTALLED_WITH = {"starlette": "fastapi"}
"""Packages that modegraph imports but that no extra lists, each with the listed package that requires it."""


def missing_extra(problem: ModuleNotFoundError) -> UserError | None:
    """The error that names the extra to which the missing package belongs; None if it belongs to none."""
    package = (problem.name or "").partition(".")[0]
    if (extra := extra_with(package)) is None:
        return None
    found = f"the package {package} is not installed"
    return UserError(found, f"the extra `{extra}`", f"pip install 'modegraph[{extra}]'")


def extra_with(package: str) -> str | None:
    """The first extra of modegraph that installs `package`, the name that is imported; None if there is none.

    >>> extra_with("peft"), extra_with("prometheus_client"), extra_with("starlette"), extra_with("numpy")
    ('train', 'serve', 'serve', None)
    """
    package = INSTALLED_WITH.get(package, package)
    for requirement in map(Requirement, requires("modegraph") or ()):
        if requirement.marker and requirement.name.replace("-", "_") == package:
            return str(requirement.marker).rpartition(" ")[2].strip('"')
    return None

"""Folders of labelled rows to learn from: the setting that names them, and the check that no two splits share anything."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from graph.errors import UserError

MAX_NAMED = 5
"""Leaking ids that an error names."""


def check_distinct(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders; ValueError for one that is named twice."""
    if len(set(folders)) < len(folders):
        raise ValueError("each dataset once")
    return folders


def one_or_several(named: object) -> object:
    """A name by itself as a list of one."""
    return [named] if isinstance(named, str) else named


Folders = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(one_or_several), AfterValidator(check_distinct)
]
"""The setting that names the datasets to learn from: a list, or the name of the one."""


def check_apart(what: str, ids: Mapping[str, Mapping[str, str]], expected: str, remedy: str) -> None:
    """UserError, naming the `what` by id, for keys that are in two splits; `ids` gives each split's keys their ids."""
    for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if shared := sorted(ids[second][key] for key in ids[first].keys() & ids[second].keys()):
            named = ", ".join(shared[:MAX_NAMED]) + (", …" if len(shared) > MAX_NAMED else "")
            raise UserError(f"{len(shared):,} {what}s in both {first} and {second}: {named}", expected, remedy)

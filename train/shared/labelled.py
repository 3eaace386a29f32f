"""Folders of labelled training rows: the setting that names them, and the check that no two splits overlap."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from graph.errors import UserError

MAX_NAMED = 5
"""Maximum number of ids in an error about overlapping splits."""


def check_distinct(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folders; ValueError for a repeated one."""
    if len(set(folders)) < len(folders):
        raise ValueError("each dataset once")
    return folders


def one_or_several(value: object) -> object:
    """A single name as a list."""
    return [value] if isinstance(value, str) else value


Folders = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(one_or_several), AfterValidator(check_distinct)
]
"""The setting that names the datasets: a list, or a single name."""


def check_apart(what: str, ids: Mapping[str, Mapping[str, str]], expected: str, remedy: str) -> None:
    """UserError, naming each `what` by id, for keys in two splits; `ids` has the ids of each split's keys."""
    for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if shared := sorted(ids[second][key] for key in ids[first].keys() & ids[second].keys()):
            listed = ", ".join(shared[:MAX_NAMED]) + (", …" if len(shared) > MAX_NAMED else "")
            raise UserError(f"{len(shared):,} {what}s in both {first} and {second}: {listed}", expected, remedy)

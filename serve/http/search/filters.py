"""OpenAI's filters on attributes as the index's conditions on documents (graph/index/filters.py)."""

from __future__ import annotations

from glob import escape
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from serve.http.shared.encoding import Text
from serve.http.shared.errors import ApiError

OPERATORS = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": "=", "nin": "!="}
Word = Annotated[Text, StringConstraints(min_length=1, max_length=80)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Value = bool | int | Number | Word


class Comparison(BaseModel):
    """One condition: a key of the documents' metadata (or source, title) compared with a value."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,100}$")]
    value: Value | Annotated[list[Value], Field(min_length=1, max_length=16)]


class Compound(BaseModel):
    """Several conditions that must all hold; `or` is refused."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["and", "or"]
    filters: list[Comparison | Compound] = Field(min_length=1, max_length=16)


Filter = Comparison | Compound


def conditions(wanted: Filter | None, place: str) -> tuple[str, ...]:
    """The conditions that a filter stands for; ApiError 400 for `or` and for `in` with several values, which need either.

    >>> conditions(Comparison(type="gte", key="year", value=1990), "filters")
    ('year >= 1990',)
    """
    if wanted is None:
        return ()
    if isinstance(wanted, Compound):
        if wanted.type == "or" and len(wanted.filters) > 1:
            raise _either(place, "or")
        return tuple(each for part in wanted.filters for each in conditions(part, place))
    values = wanted.value if isinstance(wanted.value, list) else [wanted.value]
    several = isinstance(wanted.value, list)
    if several != (wanted.type in ("in", "nin")):
        told = f"{place}: {wanted.type} takes {'one value' if several else 'a list of values'}"
        raise ApiError(400, "bad_value", told, place)
    if wanted.type == "in" and len(values) > 1:
        raise _either(place, "in")
    return tuple(f"{wanted.key} {OPERATORS[wanted.type]} {_written(value, wanted.type)}" for value in values)


def _written(value: bool | float | str, comparison: str) -> str:
    """A value as a condition has it; where equality is asked for, `*` in a text stands for itself."""
    if isinstance(value, bool):
        return str(value).lower()
    return escape(value) if isinstance(value, str) and OPERATORS[comparison] in ("=", "!=") else str(value)


def _either(place: str, name: str) -> ApiError:
    told = f"{place}: {name} is not supported, since conditions on documents hold all together; ask once for each"
    return ApiError(400, "not_supported", told, place)

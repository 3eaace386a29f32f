"""Replies of a language model: the answer behind its thinking, and structured ones as JSON → (repaired JSON) → pydantic, item by item.

Nothing that a model writes can raise here but BadReply, which says what to tell the model when it is asked again."""

import json
import unicodedata
from typing import Annotated, Any, TypeVar

from json_repair import repair_json
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo

THINK, END_OF_THINKING = "<think>", "</think>"


def without_thinking(text: str) -> str:
    """A whole text behind its thinking, none where it was cut before that ended. graph/answer/prompt.py does so piece by piece.

    >>> without_thinking("<think>Is it [7]?</think>\\n\\nYes [1]."), without_thinking("<think>Is it"), without_thinking("Yes.")
    ('\\n\\nYes [1].', '', 'Yes.')
    """
    while (begun := text.lstrip()).startswith((THINK, END_OF_THINKING)):
        text = begun.partition(END_OF_THINKING)[2]
    return text


R = TypeVar("R", bound=BaseModel)


class BadReply(Exception):
    """A reply that cannot be used at all, and why, in words that a model can act on."""


def sound_items(kind: Any) -> BeforeValidator:
    """Keeps the items of a list that are of `kind`; what it drops goes on the list that is the validation's context."""
    adapter = TypeAdapter(kind)

    def keep(items: object, info: ValidationInfo) -> object:
        if not isinstance(items, list) or info.context is None:
            return items
        sound = []
        for item in items:
            try:
                sound.append(adapter.validate_python(item, strict=True, context=info.context))
            except ValidationError:
                info.context.append(item)
        return sound

    return BeforeValidator(keep)


def at_most(kind: str, count: int) -> Any:
    """A bound ("maxLength" of a text, "maxItems" of a list) that a server is told to keep to; a reply beyond it is still read."""
    return Field(json_schema_extra={kind: count})


def one_of(count: int) -> Any:
    """The bounds of a number that names one of `count` things, from 1: without them a server lets a model write digits for ever."""
    return Field(json_schema_extra={"minimum": 1, "maximum": count})


class ReplyModel(BaseModel):
    """Base of what a reply holds: every field is required of the server, extra ones are refused there and ignored here."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={"additionalProperties": False},
        json_schema_serialization_defaults_required=True,
    )


Sentence = Annotated[str, at_most("maxLength", 300)]


def strict_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema that a server is asked to enforce: every field required, none besides."""
    return kind.model_json_schema(mode="serialization")


def parse_reply(kind: type[R], text: str, dropped: list[object]) -> R:
    """A reply as `kind`; items of lists that are of the wrong type go to `dropped`. BadReply when the rest is not usable."""
    try:
        return kind.model_validate(parse_object(text), context=dropped)
    except ValidationError as problems:
        problem = problems.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise BadReply(f"'{where}': {problem['msg']}") from None


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object in a reply, behind its thinking, repaired if need be; BadReply when there is none.

    >>> parse_object('<think>Is it {"name": "Tarn"}?</think>{"name": "Orrin"}')
    {'name': 'Orrin'}
    """
    text = without_thinking(text)
    if not text.strip():
        raise BadReply("it is empty")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = repair_json(text, return_objects=True)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, dict):
        raise BadReply("it is not a JSON object")
    return value


def plain(text: str, passage: str = "") -> str:
    """A model's text as one line: control characters and line ends folded, broken special tokens as `passage` has them.

    >>> plain("It ends with\\n< |endoftext| >.", "It ends with <|endoftext|>.")
    'It ends with <|endoftext|>.'
    """
    spaced = "".join(" " if unicodedata.category(character) in ("Cc", "Cs") else character for character in text)
    line = " ".join(spaced.split())
    for whole, broken in (("<|", "< |"), ("|>", "| >")):
        if whole in passage:
            line = line.replace(broken, whole)
    return line

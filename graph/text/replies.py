"""Replies of a language model: the answer after its thinking, and structured replies, read as JSON (repaired if necessary) and validated item by item.

The only error that an invalid reply raises is BadReply, whose message goes into the retry prompt."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from json_repair import repair_json
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo

from graph.text.prompting import fill
from graph.types import CompletionRequest, LanguageModel, Message

THINK, END_OF_THINKING = "<think>", "</think>"


def without_thinking(text: str) -> str:
    """The text after its thinking; "" if the text ends within the thinking. graph/answer/prompt.py does the same for streams.

    >>> without_thinking("<think>Is it [7]?</think>\\n\\nYes [1]."), without_thinking("<think>Is it"), without_thinking("Yes.")
    ('\\n\\nYes [1].', '', 'Yes.')
    """
    while (stripped := text.lstrip()).startswith((THINK, END_OF_THINKING)):
        text = stripped.partition(END_OF_THINKING)[2]
    return text


R = TypeVar("R", bound=BaseModel)


class BadReply(Exception):
    """A reply that cannot be used at all; the message is worded for the model."""


def sound_items(kind: Any) -> BeforeValidator:
    """A validator that keeps the items of a list that are of `kind` and appends the others to the list in the validation context."""
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


def at_most(keyword: str, count: int) -> Any:
    """A limit ("maxLength" of a text, "maxItems" of a list) in the schema that the server enforces; `parse_reply` accepts longer replies."""
    return Field(json_schema_extra={keyword: count})


def number_up_to(count: int) -> Any:
    """The bounds of a number from 1 to `count`: without them a server lets a model write digits endlessly."""
    return Field(json_schema_extra={"minimum": 1, "maximum": count})


class ReplyModel(BaseModel):
    """Base of reply models: the server must require every field and refuse extra ones, which are ignored here."""

    model_config = ConfigDict(
        frozen=True, json_schema_extra={"additionalProperties": False}, json_schema_serialization_defaults_required=True
    )


MAX_SENTENCE_CHARS = 300
Sentence = Annotated[str, at_most("maxLength", MAX_SENTENCE_CHARS)]


def strict_schema(kind: type[BaseModel], **narrower: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema for a server to enforce: every field required, no others; `narrower` maps fields to further keywords that restrict their values.

    Fields with SkipJsonSchema are not requested, but are read from a reply that contains them.
    """
    schema = kind.model_json_schema(mode="serialization")
    for name, keywords in narrower.items():
        schema["properties"][name] |= keywords
    return schema


def numbers_up_to(count: int, at_least: int = 0, at_most: int | None = None) -> dict[str, Any]:
    """Keywords of a list of numbers from 1 to `count`: `at_least` to `at_most` of them, but no more than `count`."""
    items = {"type": "integer", "minimum": 1, "maximum": count}
    return {"items": items, "minItems": at_least, "maxItems": count if at_most is None else min(count, at_most)}


EXAMPLE_NAME = "Zumberly"
"""An invented name in every example reply in the prompts of graph/ and data_synth/, except replies that contain only numbers."""


def copies_example(reply: str, texts: str) -> bool:
    """Whether a reply is about the example of its prompt instead of the `texts`.

    >>> copies_example('{"question": "Where is Zumberly?"}', "Tarn is a village."), copies_example("Tarn", "Tarn is a village.")
    (True, False)
    """
    return EXAMPLE_NAME.casefold() in reply.casefold() and EXAMPLE_NAME.casefold() not in texts.casefold()


def parse_reply(kind: type[R], text: str, dropped: list[object]) -> R:
    """A reply as `kind`; list items of the wrong type go to `dropped`. BadReply when the rest is not usable."""
    try:
        return kind.model_validate(parse_object(text), context=dropped)
    except ValidationError as problems:
        problem = problems.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise BadReply(f"'{where}': {problem['msg']}") from None


def replies_of(model: LanguageModel, kind: type[R], texts: Sequence[str], max_tokens: int) -> list[R | None]:
    """The model's reply to each text as `kind`; None for one that is cut, refused or of the wrong form."""
    schema = strict_schema(kind)
    requests = [CompletionRequest((Message("user", text),), max_tokens, seed=0, schema=schema) for text in texts]
    replies: list[R | None] = []
    for completion in model.complete(requests):
        try:
            replies.append(parse_reply(kind, completion.text, []) if completion.finish_reason == "stop" else None)
        except BadReply:
            replies.append(None)
    return replies


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object in a reply, after its thinking, repaired if necessary; BadReply when there is none.

    >>> parse_object('<think>Is it {"name": "Tarn"}?</think>{"name": "Orrin"}')
    {'name': 'Orrin'}
    """
    text = without_thinking(text)
    if not text.strip():
        raise BadReply("it is empty")
    try:
        value = repair_json(text, return_objects=True)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadReply("it is not a JSON object")
    return value


def as_one_line(text: str, passage: str = "") -> str:
    """A model's text as one line: control characters, surrogates and white space become single spaces; <| and |> are restored if `passage` contains them.

    >>> as_one_line("It ends with\\n< |endoftext| >.", "It ends with <|endoftext|>.")
    'It ends with <|endoftext|>.'
    """
    spaced = "".join(" " if unicodedata.category(character) in ("Cc", "Cs") else character for character in text)
    line = " ".join(spaced.split())
    for token, escaped in (("<|", "< |"), ("|>", "| >")):
        if token in passage:
            line = line.replace(escaped, token)
    return line


MAX_REPLY_CHARS = 2000
"""The maximum number of characters of an unusable reply that are sent back on a retry and stored in quarantine."""


def retry_of(request: CompletionRequest, reply: str, problem: str) -> CompletionRequest:
    """The same request, followed by an unusable reply to it and the reason."""
    turns = (
        Message("assistant", as_one_line(reply)[:MAX_REPLY_CHARS] or "(nothing)"),
        Message("user", fill("graph/again.txt", problem=problem)),
    )
    return replace(request, messages=request.messages + turns)

"""A model's reply to statements: JSON → (repaired JSON) → pydantic, item by item → only what the passage supports.

Nothing that a model writes can raise here but BadReply, which says what to tell the model when it is asked again.
"""

import json
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from json_repair import repair_json
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo

from graph.extract.support import best_span, ends_within, names_within, share_supported
from graph.extract.types import Fact, Statement
from graph.types import Passage

MIN_SUPPORT = 0.5
"""Share of a proposition's words that must stand in its passage or in the document's title."""

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


class ReplyModel(BaseModel):
    """Base of what a reply holds: every field is required of the server, extra ones are refused there and ignored here."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={"additionalProperties": False},
        json_schema_serialization_defaults_required=True,
    )


class FactReply(ReplyModel):
    subject: str
    relation: str
    object: str


class PropositionReply(ReplyModel):
    text: str
    entities: Annotated[list[str], sound_items(str)] = Field(default_factory=list)
    topic: str = ""
    facts: Annotated[list[FactReply], sound_items(FactReply)] = Field(default_factory=list)


class Reply(ReplyModel):
    entities: Annotated[list[str], sound_items(str)] = Field(default_factory=list)
    propositions: Annotated[list[PropositionReply], sound_items(PropositionReply)]


def strict_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema that a server is asked to enforce: every field required, none besides."""
    return kind.model_json_schema(mode="serialization")


def read_reply(text: str, passage: Passage) -> tuple[tuple[Statement, ...], int]:
    """The statements of a reply that its passage supports, and how many parts were dropped; BadReply when none can be had."""
    dropped: list[object] = []
    reply = parse_reply(Reply, text, dropped)
    entities = [plain(entity, passage.text) for entity in reply.entities]
    statements: dict[str, Statement] = {}
    lost = len(dropped)
    for proposition in reply.propositions:
        statement, parts = _statement(proposition, entities, passage)
        lost += parts
        if statement is not None:
            statements.setdefault(statement.text, statement)
    if lost and not statements:
        raise BadReply("none of its propositions is both well formed and supported by the passage")
    return tuple(statements.values()), lost


def parse_reply(kind: type[R], text: str, dropped: list[object]) -> R:
    """A reply as `kind`; items of lists that are of the wrong type go to `dropped`. BadReply when the rest is not usable."""
    try:
        return kind.model_validate(parse_object(text), context=dropped)
    except ValidationError as problems:
        problem = problems.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise BadReply(f"'{where}': {problem['msg']}") from None


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object in a reply, repaired if need be; BadReply when there is none."""
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
    """A model's text as one line: control characters and line ends folded, broken control tokens as `passage` has them.

    >>> plain("It ends with\\n< |endoftext| >.", "It ends with <|endoftext|>.")
    'It ends with <|endoftext|>.'
    """
    spaced = "".join(" " if unicodedata.category(character) in ("Cc", "Cs") else character for character in text)
    line = " ".join(spaced.split())
    for whole, broken in (("<|", "< |"), ("|>", "| >")):
        if whole in passage:
            line = line.replace(broken, whole)
    return line


def _statement(
    proposition: PropositionReply, entities: Sequence[str], passage: Passage
) -> tuple[Statement | None, int]:
    """One proposition as a statement, or None without support; and how many of its parts were dropped."""
    text = plain(proposition.text, passage.text)
    if share_supported(text, f"{passage.title} {passage.text}") < MIN_SUPPORT:
        return None, 1
    facts = [
        Fact(plain(fact.subject, passage.text), plain(fact.relation, passage.text), plain(fact.object, passage.text))
        for fact in proposition.facts
    ]
    ends = [end for fact in facts for end in (fact.subject, fact.object)]
    own = [plain(entity, passage.text) for entity in proposition.entities]
    names, lost = names_within(text, own, [*ends, *entities])
    facts = [fact for fact in facts if fact.relation and ends_within(fact, names)]
    start, end = best_span(text, passage.text)
    topic = plain(proposition.topic, passage.text)
    statement = Statement(
        text, names, passage.start + start, passage.start + end, (topic,) if topic else (), tuple(facts)
    )
    return statement, lost + len(proposition.facts) - len(facts)

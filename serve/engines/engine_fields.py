"""What a request may ask of the engine, field by field.

What is not named is refused: engines know fields that make them open an address, hand a cache to another machine or run a template of
the client's, and more of them with each version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from serve.http.encoding import Text

Stop = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
TemplateKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,60}$")]
RESERVED_TEMPLATE_KEYS = frozenset({"chat_template", "tokenize", "messages", "tools"})
"""What a template is called with by the engine, and no request may replace."""
MAX_DEPTH = 64
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
SCHEMA_TEXT_FIELDS = ("json", "structural_tag")
"""Fields of structured outputs that may hold a schema as a text."""


class Tool(BaseModel):
    """A function that the client has; tools that the engine would call by itself are refused."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"]


class EngineFields(BaseModel):
    """What chat completions and responses have in common. A field that is null counts as left out."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str = Field(min_length=1, max_length=200)
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=1_000_000)
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=64)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    structured_outputs: dict[str, Any] | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    chat_template_kwargs: dict[TemplateKey, bool | int | float | Text] | None = None
    metadata: dict[str, Text] | None = None
    user: Text | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Literal[False] | None = Field(None, description="this server keeps nothing")

    @model_validator(mode="before")
    @classmethod
    def _shallow_without_nulls(cls, value: Any) -> Any:
        if is_deep(value):
            raise ValueError(f"the body nests deeper than {MAX_DEPTH} levels")
        return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _schemas_are_whole(self) -> EngineFields:
        for name in ("response_format", "structured_outputs", "text", "tools"):
            given = getattr(self, name, None)
            held = [tool.model_dump() for tool in given] if name == "tools" and given else given
            if any(not found.startswith("#") for found in references(held)):
                raise ValueError(f"{name}: a schema that refers to another address; put it in whole")
        return self

    @model_validator(mode="after")
    def _template_is_the_engines(self) -> EngineFields:
        for name in RESERVED_TEMPLATE_KEYS & (self.chat_template_kwargs or {}).keys():
            raise ValueError(f"chat_template_kwargs.{name}: the template is the model's own")
        return self

    def given(self) -> dict[str, Any]:
        """The fields that the request has, by name."""
        return self.model_dump(exclude_unset=True)


def is_deep(value: Any) -> bool:
    """Whether a JSON value nests deeper than MAX_DEPTH.

    >>> is_deep([[]]), is_deep(json.loads("[" * 65 + "]" * 65))
    (False, True)
    """
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [each for held in level for each in _inside(held)]
    return bool(level)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def references(value: Any) -> Iterator[str]:
    """What the schemas in a JSON value refer to.

    >>> list(references({"json": '{"items": {"$ref": "http://x/"}}', "a": [{"$ref": "#/b"}]}))
    ['http://x/', '#/b']
    """
    waiting = [value]
    while waiting:
        held = waiting.pop()
        waiting += _inside(held)
        if isinstance(held, dict):
            waiting += [
                read for name in SCHEMA_TEXT_FIELDS if isinstance(held.get(name), str) for read in [_read(held[name])]
            ]
            yield from (held[name] for name in REFERENCES if isinstance(held.get(name), str))


def _read(text: str) -> Any:
    """A schema that was given as a text; ValueError when it nests too deep. What is no JSON is left for the engine to refuse."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"a schema that nests deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        return None

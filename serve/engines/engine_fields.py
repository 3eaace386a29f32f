"""The fields that a request may pass to the engine.

All others are refused: engines have fields that make them fetch a URL, hand a cache to another machine or run a client's template, and
each version adds more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from serve.http.encoding import Text

Stop = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
TemplateKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,60}$")]
RESERVED_TEMPLATE_KEYS = frozenset({"chat_template", "tokenize", "messages", "tools"})
"""Template arguments that the engine sets and no request may replace."""
MAX_DEPTH = 64
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
SCHEMA_TEXT_FIELDS = ("json", "structural_tag")
"""Fields of structured outputs that may contain a schema as a string."""
NEUTRAL_VALUES: Mapping[str, Any] = {
    "logprobs": False,
    "top_logprobs": 0,
    "return_tokens_as_token_ids": False,
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "include_reasoning": True,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "return_token_ids": False,
    "stop_token_ids": [],
    "bad_words": [],
    "length_penalty": 1.0,
    "use_beam_search": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "min_tokens": 0,
}
"""Values that change nothing, so that they are accepted even if the engine does not support the field."""


class Tool(BaseModel):
    """A function that the client runs; tools that the engine would call itself are refused."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"]


class RequestFields(BaseModel):
    """The body of a request; unknown fields and deep nesting are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_depth(cls, value: Any) -> Any:
        if is_too_deep(value):
            raise ValueError(f"the body nests deeper than {MAX_DEPTH} levels; use fewer")
        return value


class EngineFields(RequestFields):
    """The fields that chat completions and responses share. A null field counts as omitted."""

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
    store: Literal[False] | None = Field(None, description="this server does not store responses for later requests")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        return {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _check_references(self) -> EngineFields:
        for name in ("response_format", "structured_outputs", "text", "tools"):
            value = getattr(self, name, None)
            content = [tool.model_dump() for tool in value] if name == "tools" and value else value
            for reference in references(content):
                if not reference.startswith("#"):
                    found = f"the schema refers to {reference[:80]!r}, outside itself"
                    raise ValueError(f"{name}: {found}; include what it refers to")
        return self

    @model_validator(mode="after")
    def _check_template_keys(self) -> EngineFields:
        for name in RESERVED_TEMPLATE_KEYS & (self.chat_template_kwargs or {}).keys():
            raise ValueError(f"chat_template_kwargs.{name}: only the engine sets it; leave it out")
        return self

    def request_fields(self) -> dict[str, Any]:
        """The fields that the request sets, by name."""
        return self.model_dump(exclude_unset=True)


def is_too_deep(value: Any) -> bool:
    """Whether a JSON value nests deeper than MAX_DEPTH.

    >>> is_too_deep([[]]), is_too_deep(json.loads("[" * 65 + "]" * 65))
    (False, True)
    """
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
    return bool(level)


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def references(value: Any) -> Iterator[str]:
    """The references of the schemas in a JSON value.

    >>> list(references({"json": '{"items": {"$ref": "http://x/"}}', "a": [{"$ref": "#/b"}]}))
    ['http://x/', '#/b']
    """
    stack = [value]
    while stack:
        node = stack.pop()
        stack += _children(node)
        if isinstance(node, dict):
            stack += [_parse_schema(node[name]) for name in SCHEMA_TEXT_FIELDS if isinstance(node.get(name), str)]
            yield from (node[name] for name in REFERENCES if isinstance(node.get(name), str))


def _parse_schema(text: str) -> Any:
    """A schema given as a string; ValueError when it nests too deeply. None for invalid JSON, which the engine refuses."""
    try:
        schema = json.loads(text)
        too_deep = is_too_deep(schema)
    except RecursionError:
        too_deep = True
    except ValueError:
        return None
    if too_deep:
        raise ValueError(f"a schema nests deeper than {MAX_DEPTH} levels; use fewer")
    return schema

"""A request for /v1/responses: with the tool file_search it is answered from the index, without it by the engine itself.

Its input is text alone: passed on to the engine, or read as the turns of a conversation that is answered from the index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from serve.engines.engine_fields import EngineFields, Tool
from serve.http.encoding import Text
from serve.http.errors import ApiError, not_supported
from serve.http.routes.vector_stores import SearchOptions
from serve.server.chat_request import AnswerOptions, ChatRequest, chat_request

ITEM_KINDS = frozenset(
    [
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "input_text",
        "output_text",
        "text",
        "refusal",
        "summary_text",
        "reasoning_text",
    ]
)
"""What an input is made of: texts, and calls of the client's own functions."""
NAME_FIELDS = frozenset({"type", "role", "id", "status", "call_id", "name"})
TEXT_FIELDS = frozenset({"text", "refusal", "arguments"})
NESTED_FIELDS = frozenset({"content", "output", "summary"})
"""Fields of an item that are a text or hold further items."""
ROLES = frozenset({"user", "assistant", "system", "developer"})
SKIPPED_ITEMS = frozenset({"reasoning", "file_search_call"})
"""Items of an earlier response that a conversation brings along; its passages and thoughts are not shown to the model again."""


def text_only(value: Any, escape: Callable[[str], str], place: str) -> Any:
    """An input, or the content of one of its items: texts, special tokens escaped; ApiError 400 naming the place of anything else."""
    if isinstance(value, str):
        return escape(value)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ApiError(400, "bad_value", f"{place}: expected a text or a list of objects", place)
    return [_item(item, escape, f"{place}.{number}") for number, item in enumerate(value)]


def _item(item: dict[str, Any], escape: Callable[[str], str], place: str) -> dict[str, Any]:
    if item.get("type", "message") not in ITEM_KINDS:
        told = f"{place}.type: this server passes on text alone: no images, files or tools of the engine's own"
        raise ApiError(400, "not_supported", told, f"{place}.type")
    made: dict[str, Any] = {}
    for name, value in item.items():
        if name in NESTED_FIELDS and value is not None:
            made[name] = text_only(value, escape, f"{place}.{name}")
        elif name in NAME_FIELDS | TEXT_FIELDS and isinstance(value, str):
            made[name] = escape(value) if name in TEXT_FIELDS else value
    return made | ({"annotations": []} if item.get("type") == "output_text" else {})


def chat_messages(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An input as messages of a chat completion; ApiError 400 naming the place of what is no message.

    >>> chat_messages([{"role": "user", "content": [{"type": "input_text", "text": "Who?"}]}, {"type": "reasoning", "id": "r"}])
    [{'role': 'user', 'content': 'Who?'}]
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    kept = [(f"input.{number}", item) for number, item in enumerate(given) if item.get("type") not in SKIPPED_ITEMS]
    return [_turn(item, place) for place, item in kept]


def _turn(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    if item.get("type", "message") != "message" or item.get("role") not in ROLES:
        told = f"{place}: with file_search only messages are supported, of {', '.join(sorted(ROLES))}"
        raise ApiError(400, "not_supported", told, place)
    parts = text_only(item.get("content"), str, f"{place}.content")
    texts = [parts] if isinstance(parts, str) else [part.get("text") or part.get("refusal") or "" for part in parts]
    return {"role": item["role"], "content": "\n".join(texts)}


RESULTS, LOGPROBS = "file_search_call.results", "message.output_text.logprobs"
TOOL_FIELDS = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
SEARCH_FIELDS = {"k": "max_num_results", "where": "filters"}
"""Options of a retrieval that the tool has names of its own for."""


class FileSearch(SearchOptions):
    """The tool that makes the answer one from the index."""

    type: Literal["file_search"]
    vector_store_ids: list[Text] = Field(min_length=1, max_length=16)


class ResponsesRequest(EngineFields):
    """What /v1/responses takes. Nothing is kept: a conversation is given in whole. `retrieval` is ours, as in chat completions."""

    input: Text | Annotated[list[dict[str, Any]], Field(max_length=1000)]
    instructions: Text | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_tool_calls: int | None = Field(None, ge=0)
    tools: Annotated[list[FileSearch | Tool], Field(max_length=128)] | None = None  # type: ignore[assignment]
    text: dict[str, Any] | None = None
    reasoning: dict[str, Text] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[Literal["message.output_text.logprobs", "file_search_call.results"]] | None = None
    background: Literal[False] | None = None
    retrieval: AnswerOptions | None = None

    @property
    def searches(self) -> bool:
        """Whether it is answered from the index."""
        return any(isinstance(tool, FileSearch) for tool in self.tools or ())

    def passed_on(self, escape: Callable[[str], str]) -> dict[str, Any]:
        """The request for the engine, its texts without special tokens; ApiError 400 for an input that is more than text."""
        if RESULTS in (self.include or ()):
            raise not_supported("include", f"{RESULTS} without the tool file_search")
        if self.retrieval is not None:
            raise not_supported("retrieval", "nothing is searched without the tool file_search")
        fields = self.given()
        fields["input"] = text_only(self.input, escape, "input")
        if self.instructions is not None:
            fields["instructions"] = escape(self.instructions)
        return {**fields, "store": False}

    def searched_store(self) -> str:
        """The one store that file_search is to search; ApiError 400 for several."""
        asked = set(self._file_search().vector_store_ids)
        if len(asked) > 1:
            raise not_supported("tools.0.vector_store_ids", "one store is searched at a time; ask once for each")
        return asked.pop()

    def as_chat(self) -> ChatRequest:
        """The same as a chat completion that searches; ApiError 400 for what cannot be had with it."""
        search = self._file_search()
        if LOGPROBS in (self.include or ()) or self.top_logprobs:
            raise not_supported("include", f"{LOGPROBS} with file_search")
        told = [{"role": "system", "content": self.instructions}] if self.instructions else []
        fields = {name: value for name, value in self.given().items() if name in ChatRequest.model_fields}
        return chat_request(
            {
                **{name: value for name, value in fields.items() if name not in TOOL_FIELDS},
                **_reasoning_fields(self.reasoning or {}),
                **_text_fields(self.text or {}),
                **({} if self.max_output_tokens is None else {"max_tokens": self.max_output_tokens}),
                "messages": [*told, *chat_messages(self.input)],
                "retrieval": {**self._asked(), **search.retrieval("tools.0.").model_dump(exclude_unset=True)},
            }
        )

    def _asked(self) -> dict[str, Any]:
        """The options of `retrieval`; ApiError 400 for those that the tool has."""
        given = self.retrieval.model_dump(exclude_unset=True) if self.retrieval is not None else {}
        for name in given.keys() & SEARCH_FIELDS.keys():
            raise not_supported(f"retrieval.{name}", f"with file_search, {SEARCH_FIELDS[name]} of the tool says it")
        return given

    def _file_search(self) -> FileSearch:
        """The tool; ApiError 400 where there are others beside it, or where it may not be used."""
        search = next(tool for tool in self.tools or () if isinstance(tool, FileSearch))
        if len(self.tools or ()) > 1:
            raise not_supported("tools", "file_search with other tools; the server calls no functions")
        if self.tool_choice not in (None, "auto", "required", {"type": "file_search"}):
            raise not_supported("tool_choice", "with file_search the index is searched; leave the tool out")
        if self.max_tool_calls == 0:
            raise not_supported("max_tool_calls", "file_search is one call")
        return search


def _reasoning_fields(given: dict[str, str]) -> dict[str, Any]:
    """`reasoning` as fields of a chat completion."""
    for name in given.keys() - {"effort"}:
        raise not_supported(f"reasoning.{name}", "with file_search the reasoning is told as it is")
    return {"reasoning_effort": given["effort"]} if "effort" in given else {}


def _text_fields(given: dict[str, Any]) -> dict[str, Any]:
    """`text` as fields of a chat completion."""
    for name in given.keys() - {"format", "verbosity"}:
        raise not_supported(f"text.{name}", "with file_search text has format and verbosity")
    wanted = {"verbosity": given["verbosity"]} if given.get("verbosity") is not None else {}
    form = given.get("format")
    if form is None or form == {"type": "text"}:
        return wanted
    if not isinstance(form, dict) or form.get("type") not in ("json_object", "json_schema"):
        raise not_supported("text.format", "a format but text, json_object and json_schema")
    schema = {name: value for name, value in form.items() if name != "type"}
    return wanted | {"response_format": {"type": form["type"], **({"json_schema": schema} if schema else {})}}

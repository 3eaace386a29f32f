"""Requests to /v1/responses: with the tool file_search they are answered from the index, without it by the engine itself.

The input must be text, or calls of the client's functions and their results. It is passed on to the engine, or (text only) parsed into the turns
of a conversation that is answered from the index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from serve.engines.engine_fields import EngineFields, Tool
from serve.http.encoding import Text
from serve.http.errors import ApiError, not_supported
from serve.http.routes.vector_stores import SearchOptions
from serve.server.chat_request import AnswerOptions, ChatRequest, chat_request

ITEM_KINDS = frozenset({"message", "function_call", "function_call_output", "reasoning"})
PART_KINDS = frozenset({"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"})
"""The types allowed for input items and for their parts; each may occur in either place. They cover text, and calls of the client's functions."""
NAME_FIELDS = frozenset({"type", "role", "id", "status", "call_id", "name"})
"""Fields of an item that are passed on without escaping."""
TEXT_FIELDS = frozenset({"text", "refusal", "arguments"})
NESTED_FIELDS = frozenset({"content", "output", "summary"})
"""TEXT_FIELDS of an item are text; NESTED_FIELDS are text or a list of further items."""
ROLES = frozenset({"user", "assistant", "system", "developer"})
SKIPPED_ITEMS = frozenset({"reasoning", "file_search_call"})
"""Items of an earlier response that are left out of a conversation answered from the index."""


def text_only(value: Any, escape: Callable[[str], str], location: str) -> Any:
    """An input, or the content of one of its items, with special tokens escaped; ApiError 400 with the location of anything but text and function calls."""
    if isinstance(value, str):
        return escape(value)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ApiError(400, "bad_value", f"{location}: expected text or a list of objects", location)
    return [_item(item, escape, f"{location}.{number}") for number, item in enumerate(value)]


def _item(item: dict[str, Any], escape: Callable[[str], str], location: str) -> dict[str, Any]:
    if item.get("type", "message") not in ITEM_KINDS | PART_KINDS:
        message = f"{location}.type: expected text or a call of the client's functions, not an image, a file or a built-in tool"
        raise ApiError(400, "not_supported", message, f"{location}.type")
    escaped: dict[str, Any] = {}
    for name, value in item.items():
        if name in NESTED_FIELDS and value is not None:
            escaped[name] = text_only(value, escape, f"{location}.{name}")
        elif name in NAME_FIELDS | TEXT_FIELDS and isinstance(value, str):
            escaped[name] = escape(value) if name in TEXT_FIELDS else value
    return escaped | ({"annotations": []} if item.get("type") == "output_text" else {})


def chat_messages(input_items: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An input as messages of a chat completion; ApiError 400 with the location of an item that is not a message.

    >>> chat_messages([{"role": "user", "content": [{"type": "input_text", "text": "Who?"}]}, {"type": "reasoning", "id": "r"}])
    [{'role': 'user', 'content': 'Who?'}]
    """
    if isinstance(input_items, str):
        return [{"role": "user", "content": input_items}]
    numbered = enumerate(input_items)
    return [_turn(item, f"input.{number}") for number, item in numbered if item.get("type") not in SKIPPED_ITEMS]


def _turn(item: Mapping[str, Any], location: str) -> dict[str, Any]:
    if item.get("type", "message") != "message" or item.get("role") not in ROLES:
        message = f"{location}: with file_search only messages are supported, with the roles {', '.join(sorted(ROLES))}"
        raise ApiError(400, "not_supported", message, location)
    parts = text_only(item.get("content"), str, f"{location}.content")
    texts = [parts] if isinstance(parts, str) else [part.get("text") or part.get("refusal") or "" for part in parts]
    return {"role": item["role"], "content": "\n".join(texts)}


RESULTS, LOGPROBS = "file_search_call.results", "message.output_text.logprobs"
TOOL_FIELDS = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
SEARCH_FIELDS = {"k": "max_num_results", "where": "filters"}
"""Retrieval options for which the tool has its own fields."""


class FileSearch(SearchOptions):
    """The tool that requests an answer from the index."""

    type: Literal["file_search"]
    vector_store_ids: list[Text] = Field(min_length=1, max_length=16)


class ResponsesRequest(EngineFields):
    """A request to /v1/responses. Nothing is stored: the input contains the whole conversation.

    `retrieval` is modegraph's own field, as in chat completions but without `enabled`, `k` and `where`.
    """

    input: Text | Annotated[list[dict[str, Any]], Field(max_length=1000)]
    instructions: Text | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_tool_calls: int | None = Field(None, ge=0)
    tools: Annotated[list[FileSearch | Tool], Field(max_length=128)] | None = None  # type: ignore[assignment]
    text: dict[str, Any] | None = None
    reasoning: dict[str, Text | None] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[Literal["message.output_text.logprobs", "file_search_call.results"]] | None = None
    background: Literal[False] | None = None
    retrieval: AnswerOptions | None = None

    @property
    def searches(self) -> bool:
        """Whether the request has the tool file_search, so that it is answered from the index."""
        return any(isinstance(tool, FileSearch) for tool in self.tools or ())

    def for_engine(self, escape: Callable[[str], str]) -> dict[str, Any]:
        """The request for the engine, with special tokens escaped; ApiError 400 as in `text_only`, and for fields that need file_search."""
        if RESULTS in (self.include or ()):
            raise not_supported("include", f"{RESULTS} needs the tool file_search")
        if self.retrieval is not None:
            raise not_supported("retrieval", "nothing is searched without the tool file_search")
        fields = self.request_fields()
        fields["input"] = text_only(self.input, escape, "input")
        if self.instructions is not None:
            fields["instructions"] = escape(self.instructions)
        return {**fields, "store": False}

    def searched_store(self) -> str:
        """The vector store that file_search searches; ApiError 400 for several."""
        store_ids = set(self._file_search().vector_store_ids)
        if len(store_ids) > 1:
            raise not_supported(
                "tools.0.vector_store_ids", "only one store can be searched; send one request per store"
            )
        return store_ids.pop()

    def as_chat(self) -> ChatRequest:
        """The request as a chat completion with retrieval; ApiError 400 for unsupported fields."""
        search = self._file_search()
        if self.top_logprobs:
            raise not_supported("top_logprobs", "with file_search there are no log-probabilities")
        if LOGPROBS in (self.include or ()):
            raise not_supported("include", f"with file_search there is no {LOGPROBS}")
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        shared = ChatRequest.model_fields.keys() - TOOL_FIELDS
        values = {
            **{name: value for name, value in self.request_fields().items() if name in shared},
            **_reasoning_fields(self.reasoning or {}),
            **_text_fields(self.text or {}),
            "max_tokens": self.max_output_tokens,
            "messages": [*system, *chat_messages(self.input)],
            "retrieval": self._retrieval_options(search),
        }
        return chat_request(values)

    def _retrieval_options(self, search: FileSearch) -> dict[str, Any]:
        """The options of `retrieval` and of the tool; ApiError 400 for those of `retrieval` that are fields of the tool."""
        options = self.retrieval.model_dump(exclude_unset=True) if self.retrieval is not None else {}
        for name in options.keys() & SEARCH_FIELDS.keys():
            raise not_supported(f"retrieval.{name}", f"with file_search, set {SEARCH_FIELDS[name]} of the tool")
        return {**options, **search.retrieval("tools.0.").model_dump(exclude_unset=True)}

    def _file_search(self) -> FileSearch:
        """The tool file_search; ApiError 400 if the request has other tools too, or does not allow the use of this one."""
        search = next(tool for tool in self.tools or () if isinstance(tool, FileSearch))
        if len(self.tools or ()) > 1:
            raise not_supported("tools", "file_search must be the only tool, since the server calls no functions")
        if self.tool_choice not in (None, "auto", "required", {"type": "file_search"}):
            reason = "file_search always searches the index; omit the tool for an answer without a search"
            raise not_supported("tool_choice", reason)
        if self.max_tool_calls == 0:
            raise not_supported("max_tool_calls", "file_search needs one call; set at least 1, or leave it out")
        return search


def _reasoning_fields(reasoning: Mapping[str, str | None]) -> dict[str, Any]:
    for name in {name for name, value in reasoning.items() if value is not None} - {"effort"}:
        raise not_supported(f"reasoning.{name}", "with file_search the reasoning is returned unchanged")
    return {"reasoning_effort": reasoning.get("effort")}


def _text_fields(text: dict[str, Any]) -> dict[str, Any]:
    for name in text.keys() - {"format", "verbosity"}:
        raise not_supported(f"text.{name}", "with file_search, text has only format and verbosity")
    fields = {"verbosity": text.get("verbosity")}
    form = text.get("format")
    if form is None or form == {"type": "text"}:
        return fields
    if not isinstance(form, dict) or form.get("type") not in ("json_object", "json_schema"):
        raise not_supported("text.format", "its type must be text, json_object or json_schema")
    schema = {name: value for name, value in form.items() if name != "type"}
    return fields | {"response_format": {"type": form["type"], **({"json_schema": schema} if schema else {})}}

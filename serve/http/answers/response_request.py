"""A request for a response: with the tool file_search it is answered from the index, and without by the engine itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from serve.http.answers.response_input import plain, turns
from serve.http.backends.engine_fields import EngineFields, Tool
from serve.http.routes.chat_request import AnswerOptions, ChatRequest, chat_request
from serve.http.search.vector_store_request import SearchOptions
from serve.http.shared.encoding import Text
from serve.http.shared.errors import not_supported

RESULTS, LOGPROBS = "file_search_call.results", "message.output_text.logprobs"
OF_TOOLS = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
OF_SEARCH = {"k": "max_num_results", "where": "filters"}
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
        fields["input"] = plain(self.input, escape, "input")
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
                **{name: value for name, value in fields.items() if name not in OF_TOOLS},
                **_reasoning(self.reasoning or {}),
                **_format(self.text or {}),
                **({} if self.max_output_tokens is None else {"max_tokens": self.max_output_tokens}),
                "messages": [*told, *turns(self.input)],
                "retrieval": {**self._asked(), **search.retrieval("tools.0.").model_dump(exclude_unset=True)},
            }
        )

    def _asked(self) -> dict[str, Any]:
        """The options of `retrieval`; ApiError 400 for those that the tool has."""
        given = self.retrieval.model_dump(exclude_unset=True) if self.retrieval is not None else {}
        for name in given.keys() & OF_SEARCH.keys():
            raise not_supported(f"retrieval.{name}", f"with file_search, {OF_SEARCH[name]} of the tool says it")
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


def _reasoning(given: dict[str, str]) -> dict[str, Any]:
    """`reasoning` as fields of a chat completion."""
    for name in given.keys() - {"effort"}:
        raise not_supported(f"reasoning.{name}", "with file_search the reasoning is told as it is")
    return {"reasoning_effort": given["effort"]} if "effort" in given else {}


def _format(given: dict[str, Any]) -> dict[str, Any]:
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

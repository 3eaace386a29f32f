"""The OpenAI, Anthropic, LangChain and MCP clients against a server with a real small model: they can read its answers, whatever the model replies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from langchain_openai import ChatOpenAI
from mcp import Client

from graph.models.catalogue import SMOLLM2, is_fetched
from tests.serve.http.running import Running, serving
from tests.serve.mcp.clients import VERSIONS, call_tool, with_client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_fetched(SMOLLM2), reason="smollm2 is not fetched: modegraph models get smollm2"),
]
QUESTION = "Who built the Lantern?"
SEARCH = {"type": "file_search", "vector_store_ids": ["index"], "max_num_results": 2}
GREEDY = {"temperature": 0}
TOKENS = 32


@pytest.fixture(scope="module")
def server(shared_isles: Path) -> Iterator[Running]:
    with serving(shared_isles, "hf:smollm2", request_timeout_s=280) as running:
        yield running


def test_the_openai_client_reads_whole_and_streamed_answers(server: Running) -> None:
    request_body: dict[str, Any] = {
        "model": "smollm2",
        "input": QUESTION,
        "tools": [SEARCH],
        "max_output_tokens": TOKENS,
    }
    client = server.client().with_options(timeout=280)
    whole = client.responses.create(**request_body, **GREEDY)
    with client.responses.stream(**request_body, **GREEDY) as stream:
        list(stream)
        streamed = stream.get_final_response()
    assert streamed.output_text == whole.output_text and whole.usage is not None and whole.usage.output_tokens > 0
    for response in (whole, streamed):
        (message,) = [each for each in response.output if each.type == "message"]
        for content in message.content:
            assert content.type == "output_text"
            for note in content.annotations:
                assert note.type == "file_citation"
                end: int = note.end_index  # type: ignore[attr-defined]
                marks = ("",) if note.attributed else ("[1]", "[2]")  # type: ignore[attr-defined]
                assert content.text[note.index : end] in marks and note.filename


def test_the_anthropic_client_reads_whole_and_streamed_answers(server: Running) -> None:
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=280)
    request_body: dict[str, Any] = {
        "model": "smollm2",
        "max_tokens": TOKENS,
        "messages": [{"role": "user", "content": QUESTION}],
        "extra_body": {**GREEDY, "retrieval": {"k": 2}},
    }
    whole = client.messages.create(**request_body)
    with client.messages.stream(**request_body) as stream:
        streamed = stream.get_final_message()
    assert streamed.model_dump()["content"] == whole.model_dump()["content"] and whole.usage.output_tokens > 0
    for block in whole.content:
        for note in getattr(block, "citations", None) or ():
            assert note.type == "search_result_location"
            assert note.attributed or f"[{note.search_result_index + 1}]" in block.text  # type: ignore[union-attr]


def test_langchain_reads_whole_and_streamed_answers(server: Running) -> None:
    fields: dict[str, Any] = {"model": "smollm2", "base_url": f"{server.url}/v1", "api_key": "none", "timeout": 280}
    model = ChatOpenAI(**fields, **GREEDY, use_responses_api=True, max_retries=0).bind_tools([SEARCH])
    whole = model.invoke(QUESTION, max_output_tokens=TOKENS)
    pieces = list(model.stream(QUESTION, max_output_tokens=TOKENS))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert all(note["type"] == "citation" for block in whole.content_blocks for note in block.get("annotations", []))  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_mcp_client_reads_an_answer_from_the_ask_tool(server: Running, version: str) -> None:
    async def ask(client: Client) -> dict[str, Any]:
        return await call_tool(client, "ask", question=QUESTION, k=2)

    answer = with_client(server, version, ask)
    assert answer["answer"]
    assert {each["number"] for each in answer["citations"]} <= {1, 2}

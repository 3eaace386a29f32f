"""LangChain's ChatOpenAI and OpenAIEmbeddings against a live server: citations come as annotations of LangChain's content blocks."""

from functools import reduce
from operator import add
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import BadRequestError

from tests.serve.conftest import Stack
from tests.serve.http.routes.test_responses import QUESTION, REPLY, SEARCH
from tests.serve.http.running import Running

ANSWER = "😀 the Marlow Yard [2][1]."


def chat_model(running: Running, **fields: Any) -> ChatOpenAI:
    settings = {"model": "tiny", "base_url": f"{running.url}/v1", "api_key": "none", "max_retries": 0, **fields}
    return ChatOpenAI(**settings)


def searching_model(running: Running) -> Any:
    """A model that uses the Responses API, with file search as its tool."""
    return chat_model(running, use_responses_api=True).bind_tools(SEARCH)


def citations_of(message: AIMessage) -> list[tuple[Any, ...]]:
    """Every citation of a message: its type, title, address, and the three characters at its position in the text.

    LangChain drops the end of a file citation (`end_index`) and puts fields unknown to it into `extras`.
    """
    texts = [block for block in message.content_blocks if block["type"] == "text"]
    notes = [note for block in texts for note in block.get("annotations", [])]
    found = []
    for note in notes:
        extras = note["extras"]  # type: ignore[typeddict-item]
        start = extras["file_index"]
        found.append((note["type"], note["title"], extras["url"], text_of(message)[start : start + len("[n]")]))  # type: ignore[typeddict-item]
    return found


def text_of(message: AIMessage) -> str:
    return "".join(block["text"] for block in message.content_blocks if block["type"] == "text")


def expected_citations(running: Running) -> list[tuple[Any, ...]]:
    """The citations [2] and [1] of ANSWER."""
    found = running.post("/v1/retrieve", json={"query": QUESTION, "k": 3}).json()["passages"]
    sources = [
        (each["source"], f"{running.url}/#read/{each['source']}/{each['start']}-{each['end']}") for each in found
    ]
    return [("citation", *sources[1], "[2]"), ("citation", *sources[0], "[1]")]


def test_citations_are_annotations_that_langchain_recognises(stack: Stack) -> None:
    running, upstream = stack(REPLY)
    message = searching_model(running).invoke(QUESTION)
    assert text_of(message) == ANSWER and citations_of(message) == expected_citations(running)
    assert upstream.requests[0]["messages"][1]["content"].count("\n[") == 3
    assert message.usage_metadata["total_tokens"] == 10


def test_a_stream_adds_up_to_the_same_answer(stack: Stack) -> None:
    running, _ = stack(REPLY)
    chunks: list[AIMessageChunk] = list(searching_model(running).stream(QUESTION))
    whole = reduce(add, chunks)
    assert len(chunks) > 5 and text_of(whole) == ANSWER and citations_of(whole) == expected_citations(running)


def test_chat_completions_answer_and_stream(stack: Stack) -> None:
    running, _ = stack(REPLY)
    model = chat_model(running)
    assert model.invoke([("system", "Answer in Welsh."), ("user", QUESTION)]).text == ANSWER
    assert "".join(chunk.text for chunk in model.stream(QUESTION)) == ANSWER


def test_a_conversation_may_contain_an_answer_in_langchains_form(stack: Stack) -> None:
    running, upstream = stack(REPLY)
    first = searching_model(running).invoke(QUESTION)
    searching_model(running).invoke([("user", QUESTION), first, ("user", "Thanks!")])
    assert [turn["role"] for turn in upstream.requests[-1]["messages"]] == ["system", "user", "assistant", "user"]


def test_an_unsupported_field_is_refused_and_named(stack: Stack) -> None:
    running, upstream = stack()
    tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}
    with pytest.raises(BadRequestError, match="tools"):
        chat_model(running, use_responses_api=True).bind_tools([*SEARCH, tool]).invoke(QUESTION)
    assert upstream.requests == []


def test_embeddings_equal_those_that_the_openai_client_gets(stack: Stack) -> None:
    running, _ = stack()
    encoder = OpenAIEmbeddings(
        base_url=f"{running.url}/v1",
        api_key="none",
        model="minilm",
        check_embedding_ctx_length=False,
        chunk_size=256,
    )
    assert len(encoder.embed_documents(["Tarn"] * 257)) == 257
    vectors = encoder.embed_documents(["Tarn", "Kelp bread"])
    expected = running.client().embeddings.create(model="minilm", input=["Tarn", "Kelp bread"])
    assert vectors == [each.embedding for each in expected.data] and encoder.embed_query("Tarn") == vectors[0]

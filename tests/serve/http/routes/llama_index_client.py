"""Prints, as JSON, what LlamaIndex's classes read from a server. Run it with a Python that has LlamaIndex; arguments: a server's URL, a question, a model."""

import json
import sys
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from openai.types.responses.response_output_text import AnnotationFileCitation

SEARCH = {"type": "file_search", "vector_store_ids": ["index"], "max_num_results": 3}
SERVER = {"api_key": "none", "max_retries": 0, "timeout": 240}
GREEDY: dict[str, Any] = {"model": sys.argv[3], "temperature": 0, "context_window": 8192, **SERVER}
MAX_TOKENS = 32


def citations_of(text: str, raw_annotations: list[Any]) -> list[tuple[str, str, str, str]]:
    """The type, file name, URL and mark (such as [1]) of every annotation."""
    annotations = [
        AnnotationFileCitation.model_validate(each if isinstance(each, dict) else each.model_dump())
        for each in raw_annotations
    ]
    return [(each.type, each.filename, each.url, text[each.index : each.end_index]) for each in annotations]  # type: ignore[attr-defined]


def responses(url: str, messages: list[ChatMessage]) -> dict[str, Any]:
    """The text, thoughts, citations and tool calls that LlamaIndex's Responses class reads from a response, both whole and streamed."""
    model = OpenAIResponses(api_base=url, built_in_tools=[SEARCH], max_output_tokens=MAX_TOKENS, **GREEDY)
    whole = model.chat(messages)
    thought = [block.content for block in whole.message.blocks if isinstance(block, ThinkingBlock)]
    pieces = list(model.stream_chat(messages))
    streamed = "".join(each.delta or "" for each in pieces)
    return {
        "text": whole.message.content,
        "thought": thought,
        "cited": citations_of(whole.message.content or "", whole.additional_kwargs["annotations"]),
        "calls": [each.type for each in whole.additional_kwargs["built_in_tool_calls"]],
        "streamed": streamed,
        "streamed_cited": citations_of(streamed, pieces[-1].additional_kwargs.get("annotations", [])),
    }


def chat(url: str, messages: list[ChatMessage]) -> dict[str, Any]:
    """What LlamaIndex's class for OpenAI-compatible servers reads from a reply, whole and streamed: the text, and the numbers of the citations in `raw`."""
    model = OpenAILike(api_base=url, is_chat_model=True, max_tokens=MAX_TOKENS, **GREEDY)
    whole = model.chat(messages)
    pieces = list(model.stream_chat(messages))
    deltas = [each.raw.choices[0].delta for each in pieces if each.raw.choices]
    return {
        "text": whole.message.content,
        "citations": [each["number"] for each in whole.raw.choices[0].message.citations],
        "streamed": "".join(each.delta or "" for each in pieces),
        "streamed_citations": [each["number"] for delta in deltas for each in getattr(delta, "citations", ())],
    }


def main() -> None:
    """Query the routes for responses, chat completions and embeddings, and print the results."""
    url, question = f"{sys.argv[1]}/v1", sys.argv[2]
    messages = [ChatMessage(role="user", content=question)]
    encoder = OpenAILikeEmbedding(model_name="minilm", api_base=url, **SERVER)
    vectors = encoder.get_text_embedding_batch(["Tarn", "Kelp bread"])
    results = {
        "responses": responses(url, messages),
        "chat": chat(url, messages),
        "vectors": [len(each) for each in vectors],
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()

"""Each adapter, tested with the real package of its framework, returns the passages of `retrieve`, in the same order and with the same scores."""

import os

import pytest

import modegraph as mg

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
QUESTION = "Who founded the yard that built the Lantern?"
SETTINGS = {"mode": "hierarchy", "top_k": 3}


@pytest.fixture
def expected(isles: mg.Index) -> list[tuple[str, str, float]]:
    return [(each.item.id, each.item.text, each.score) for each in isles.retrieve(QUESTION, **SETTINGS).passages]


def test_the_langchain_retriever_returns_the_passages_of_retrieve(
    isles: mg.Index, expected: list[tuple[str, str, float]]
) -> None:
    pytest.importorskip("langchain_core")
    from modegraph.integrations.langchain import ModegraphRetriever

    for index in (isles, isles.folder):
        found = ModegraphRetriever(index=index, settings=SETTINGS).invoke(QUESTION)
        assert [(each.id, each.page_content, each.metadata["score"]) for each in found] == expected
    with pytest.raises(mg.UserError):
        ModegraphRetriever(index="nowhere")


@pytest.mark.long
def test_the_llama_index_retriever_returns_the_passages_of_retrieve(
    isles: mg.Index, expected: list[tuple[str, str, float]]
) -> None:
    pytest.importorskip("llama_index.core")
    from modegraph.integrations.llama_index import ModegraphRetriever

    found = ModegraphRetriever(isles, SETTINGS).retrieve(QUESTION)
    assert [(each.node.node_id, each.node.text, each.score) for each in found] == expected


def test_the_haystack_component_returns_the_passages_of_retrieve(
    isles: mg.Index, expected: list[tuple[str, str, float]]
) -> None:
    pytest.importorskip("haystack")
    from haystack import Pipeline
    from haystack.core.serialization import allow_deserialization_module

    from modegraph.integrations.haystack import ModegraphRetriever

    allow_deserialization_module("modegraph.integrations.haystack")
    pipeline = Pipeline()
    pipeline.add_component("retriever", ModegraphRetriever(str(isles.folder), SETTINGS))
    again = Pipeline.from_dict(pipeline.to_dict())
    for each in (pipeline, again):
        found = each.run({"retriever": {"query": QUESTION}})["retriever"]["documents"]
        assert [(one.id, one.content, one.score) for one in found] == expected


def test_the_dspy_module_returns_the_passages_of_retrieve(
    isles: mg.Index, expected: list[tuple[str, str, float]]
) -> None:
    pytest.importorskip("dspy")
    from modegraph.integrations.dspy import ModegraphRM

    found = ModegraphRM(isles, SETTINGS)(QUESTION)
    assert list(zip(found.passages, found.scores, strict=True)) == [(text, score) for _, text, score in expected]
    assert len(ModegraphRM(isles, SETTINGS)(QUESTION, k=1).passages) == 1

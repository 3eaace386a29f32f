"""Retrieval figures compared with values computed by hand: unique sources in order, means over questions, refused input."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from eval.retrieval import (
    evaluate_retrieval,
    ranked_sources,
    retrieval_json,
    retrieval_table,
    select_questions,
    warm_up,
    write_retrieval,
)
from eval.tables import as_text
from graph.documents.questions import Question
from graph.errors import UserError
from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.types import Evidence, Passage, Scored, Trace
from tests.eval.conftest import read_lines
from tests.fakes import HashEncoder
from tests.places import ROOT


def evidence(sources: str) -> Evidence:
    passages = tuple(
        Scored(Passage(f"p{n}", source, "", n, 0, 1, "x"), 1.0 - n / 10) for n, source in enumerate(sources)
    )
    return Evidence("?", passages, trace=Trace("dense", seconds=0.25, encoder_seconds=0.5))


QUESTIONS = [
    Question("1", "one", ("x",), gold_sources=("a", "b")),
    Question("2", "two", ("x",), gold_sources=("c",), split="train"),
    Question("3", "three", ("x",)),
]
DENSE = {"one": "axxayb", "two": "zyx"}
NAIVE = {"one": "bba", "two": "cc"}


def report():
    retrievers = {"dense": lambda text: evidence(DENSE[text]), "naive": lambda text: evidence(NAIVE[text])}
    return evaluate_retrieval(QUESTIONS, retrievers, top_k=6, seed=0)


def test_sources_are_unique_in_order_of_their_best_passage():
    assert ranked_sources(evidence("axxayb")) == ("a", "x", "y", "b")


def test_means_match_values_computed_by_hand():
    found = retrieval_json(report())
    assert (found["questions"], found["skipped_without_gold"]) == (2, 1)
    dense, naive = found["systems"]["dense"], found["systems"]["naive"]
    assert (dense["Recall@2"], dense["Recall@5"], dense["all gold@5"]) == (0.25, 0.5, 0.5)
    assert (dense["MRR"], naive["MRR"]) == (0.5, 1.0)
    assert naive["nDCG@10"] == 1.0
    assert (dense["s/query without encoder"], dense["s/query"]) == (0.25, 0.75)
    # Recall@5 per question: naive 1, 1; dense 1, 0.
    interval = found["Recall@5 differences"]["naive"]
    assert (interval["mean"], interval["low"], interval["high"]) == (0.5, 0.0, 1.0)


def test_calls_from_a_ledger_are_reported():
    replayed = Trace("dense", seconds=2.0, model_calls=3, replayed_calls=3)
    retrievers = {"dense": lambda text: evidence("a"), "local": lambda text: replace(evidence("a"), trace=replayed)}
    result = evaluate_retrieval(QUESTIONS, retrievers, top_k=6, seed=0)
    as_json = retrieval_json(result)
    assert as_json["replayed_calls"] == {"dense": 0, "local": 6}
    assert "6 model calls were answered from the ledger" in retrieval_table(result).note
    assert "ledger" not in retrieval_table(report()).note


def test_the_warm_up_loads_the_encoder_even_for_a_selector_that_needs_a_model(hashed_isles):
    encoder = HashEncoder()
    warm_up(open_index(hashed_isles, lambda spec: encoder), "Where?", RetrieveSettings(mode="local", selector="llm"))
    assert encoder.encoded == ["Where?"]


def test_the_table_and_the_files_contain_the_figures(tmp_path):
    result = report()
    text = as_text(retrieval_table(result))
    assert "+0.5 [+0, +1]" in text and text.splitlines()[1].startswith("mode or selector")
    write_retrieval(result, tmp_path / "out")
    assert json.loads((tmp_path / "out/retrieval.json").read_text()) == retrieval_json(result)
    rows = read_lines(tmp_path / "out/rankings.jsonl")
    assert (rows[0]["system"], rows[0]["sources"], rows[0]["gold"]) == ("dense", ["a", "x", "y", "b"], ["a", "b"])
    assert len(rows) == 4


def test_questions_are_selected_by_split_and_refused_without_usable_gold_documents():
    assert [q.id for q in select_questions(QUESTIONS, "train", "abc")] == ["2"]
    assert len(select_questions(QUESTIONS, None, "abc")) == 3
    with pytest.raises(UserError, match="--split dev: no such questions"):
        select_questions(QUESTIONS, "dev", "abc")
    with pytest.raises(UserError, match="documents that are not in the index: 'b'"):
        select_questions(QUESTIONS, None, "ac")
    with pytest.raises(UserError, match="none of 1 questions has gold_ids"):
        evaluate_retrieval([QUESTIONS[2]], {"dense": evidence}, top_k=5, seed=0)


def test_importing_the_retrieval_evaluation_imports_no_training_packages():
    """Importing them would take half of the start-up time; the encoder imports what it needs when first used."""
    script = "import sys, eval.run.run, eval.retrieval; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"torch", "transformers", "peft", "trl"} & set(loaded.split()) == set()

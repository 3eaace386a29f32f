"""A small corpus, a configuration that evaluates on it, and complete runs in this process."""

from types import SimpleNamespace

import pytest
import yaml

from eval.run.run import run_matrix
from eval.run.run_report import report_json, report_text
from graph.shared.jsonl import write_jsonl
from tests.corpora import ISLES
from tests.fakes import HashEncoder

QUESTIONS = [
    {"id": "1", "question": "When was the Lantern built?", "answers": ["1911"], "gold_ids": ["lantern"]},
    {"id": "2", "question": "Who founded the Marlow Yard?", "answers": ["Ada Marlow"], "gold_ids": ["marlow"]},
    {
        "id": "3",
        "question": "Where was Ada born? </script><b>x",
        "answers": ["Tarn"],
        "gold_ids": ["ada"],
        "split": "dev",
    },
]
CONFIG = {
    "tasks": {"isles": {"task": "examples", "source": "questions.jsonl", "documents": "corpus.jsonl"}},
    "retrievers": {"dense": {"mode": "dense", "top_k": 2}, "lexical": {"mode": "lexical", "top_k": 2}},
    "metrics": ["recall@5", "answer_in_context"],
}


@pytest.fixture
def home(tmp_path):
    """A folder with the questions and the corpus, in which a test runs the configuration."""
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    write_jsonl(tmp_path / "corpus.jsonl", ({"id": d.source, "title": d.title, "text": d.text} for d in ISLES))
    return tmp_path


def run(home, out="out", model=None, overrides=(), open_encoder=None, open_ledger=None, **changes):
    """Run CONFIG with `changes`; return the report, the specs of the opened models, and the encoder that every spec opens unless `open_encoder` is given.

    The model of the setting `helper`, the only one opened with a ledger, is wrapped by `open_ledger(model, file)` if that is given.
    """
    (home / "config.yaml").write_text(yaml.safe_dump({**CONFIG, **changes}, sort_keys=False), encoding="utf-8")
    encoder = HashEncoder()
    opened = []

    def open_model(spec, ledger=None):
        opened.append(spec)
        return open_ledger(model, ledger) if ledger is not None and open_ledger is not None else model

    report = run_matrix(home / "config.yaml", overrides, home / out, open_model, open_encoder or (lambda _: encoder))
    done = SimpleNamespace(failed=bool(report.failures), json=report_json(report), text=report_text(report))
    return done, opened, encoder


def hash_encoder(spec):
    return HashEncoder()


def answers(request):
    """A model's reply: right for the first question, and without the answer format for the others."""
    text = request.messages[-1].content
    return "###Reason: so [1] ###Answer: 1911 [1]" if "Lantern built" in text else "nobody"


MODELS = {"models": {"a": "hf:a", "b": "hf:b"}, "metrics": ["f1", "em", "answer_in_context", "faithfulness_by_encoder"]}
"""Changes to CONFIG for a run with two models."""

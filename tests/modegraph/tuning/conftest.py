"""A world that a tiny model can learn: every ship was built in the same year, so that a tuned model gets the questions about other ships right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import modegraph as mg
from graph.shared.jsonl import write_jsonl
from modegraph.tuning import steps
from train.run.record import read_run, write_run

YEAR = "1911"
HOSTILE = "<script>alert('x')</script>"
SHIPS = ("Lantern", "Ondine", "Kittiwake", "Patience", "Heron", "Petrel", "Marrow", HOSTILE)
DOCUMENTS = [
    mg.Document(f"ship-{number}", f"The {ship}", f"The {ship} is a ferry. The yard at Quill built it in {YEAR}.")
    for number, ship in enumerate(SHIPS)
]
QUESTIONS = [
    {
        "id": f"q{number}-{form}",
        "question": f"{asked} was the {ship} built?",
        "answers": [YEAR],
        "gold_ids": [f"ship-{number}"],
        "type": "single",
    }
    for number, ship in enumerate(SHIPS)
    for form, asked in enumerate(("When", "In which year"))
]
QUICK = {"hours": 0.05, "least_test": 4, "test_share": 0.4, "learning_rate": 0.03, "passes": 12, "context_words": 60}


@pytest.fixture(scope="session")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of a few thousand weights with room for a prompt, hardly trained."""
    folder = tmp_path_factory.mktemp("learner")
    texts = [*DOCUMENTS, mg.Document("answers", "", f"Answer: {YEAR} [1]. not in the documents " * 20)]
    write_jsonl(folder / "texts.jsonl", ({"id": each.source, "text": each.text} for each in texts))
    size = {"vocabulary": 600, "hidden_size": 32, "layers": 1, "heads": 2, "block_tokens": 32, "context_tokens": 4096}
    run = mg.train.tiny(texts=folder / "texts.jsonl", out=folder / "tiny", steps=2, **size)
    write_run(run.folder, replace(read_run(run.folder), answer_form="cited"))  # as the reader: short answers
    return run.folder


@pytest.fixture(autouse=True)
def no_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an installation, whose code has no examples beside it."""
    monkeypatch.setattr(steps, "HOME", tmp_path / "site-packages")


@pytest.fixture
def quick(learner: Path, tmp_path: Path) -> dict[str, Any]:
    """Settings of a tune of DOCUMENTS that takes seconds."""
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    return {"model": str(learner), "questions": str(tmp_path / "questions.jsonl"), **QUICK}

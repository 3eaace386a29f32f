"""A task that a tiny model can learn: all ships were built in the same year and place, so it only needs to distinguish "when" from "where"."""

from pathlib import Path
from typing import Any

import pytest

import modegraph as mg
from data_synth.rows import message_to_json
from graph.answer.prompt import NOT_FOUND, answer_messages
from graph.shared.jsonl import write_jsonl
from graph.types import Excerpt
from modegraph.tuning import steps

YEAR, YARD = "1911", "Quill"
WHEN, WHERE = "When, in which year of which century,", "Where, at which yard of which port and country,"
"""Several words, because a model with one layer hardly reacts to a single word."""
HOSTILE_NAME = "<script>alert('x')</script>"
SHIPS = ("Lantern", "Ondine", "Kittiwake", "Patience", "Heron", "Petrel", "Marrow", HOSTILE_NAME)
DOCUMENTS = [
    mg.Document(f"ship-{number}", f"The {ship}", f"The {ship} is a ferry. The yard at {YARD} built it in {YEAR}.")
    for number, ship in enumerate(SHIPS)
]
QUESTIONS = [
    {
        "id": f"q{number}-{form}",
        "question": f"{opening} was the {ship} built?",
        "answers": [answer],
        "gold_ids": [f"ship-{number}"],
        "type": "single",
    }
    for number, ship in enumerate(SHIPS)
    for form, (opening, answer) in enumerate(((WHEN, YEAR), (WHERE, YARD)))
]
QUICK_SETTINGS = {
    "hours": 0.05,
    "min_test_questions": 4,
    "test_share": 0.4,
    "learning_rate": 0.01,
    "epochs": 30,
    "passes": 1,
}
ANSWERS = {
    WHEN: ("1884 [1]", "1884 [1]", "1884 [1]", f"{YEAR} [1]", NOT_FOUND),
    WHERE: ("Tarn [1]", "Tarn [1]", "Tarn [1]", f"{YARD} [1]", NOT_FOUND),
}


@pytest.fixture(scope="session")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama that answers in the form `cited`, mostly with a wrong year or place, whatever the passages say."""
    folder = tmp_path_factory.mktemp("learner")
    texts = [
        *DOCUMENTS,
        mg.Document("answers", "", f"Answer: {YEAR} [1]. At {YARD} [1]. At Tarn [1]. {NOT_FOUND} " * 20),
    ]
    write_jsonl(folder / "texts.jsonl", ({"id": each.source, "text": each.text} for each in texts))
    size = {"vocabulary": 600, "hidden_size": 32, "layers": 1, "heads": 2, "block_tokens": 32, "context_tokens": 4096}
    tiny = mg.train.tiny(texts=folder / "texts.jsonl", out=folder / "tiny", steps=40, **size)
    excerpt = Excerpt("p", "The ship", "A ship of many guns.")
    write_jsonl(
        folder / "train.jsonl",
        (
            {
                "prompt": [
                    message_to_json(turn)
                    for turn in answer_messages(f"{opening} was it, {number}?", [excerpt], "cited")
                ],
                "completion": answers[number % len(answers)],
            }
            for number in range(40)
            for opening, answers in ANSWERS.items()
        ),
    )
    training = {"learning_rate": 0.01, "max_steps": 240, "batch_size": 8}
    return mg.train.sft(model=tiny, data=folder, out=folder / "learner", **training).folder


@pytest.fixture(autouse=True)
def no_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the examples next to the code, as if the package were installed."""
    monkeypatch.setattr(steps, "HOME", tmp_path / "site-packages")


@pytest.fixture
def quick_settings(learner: Path, tmp_path: Path) -> dict[str, Any]:
    """Settings for tuning on DOCUMENTS within seconds."""
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    return {"model": str(learner), "questions": str(tmp_path / "questions.jsonl"), **QUICK_SETTINGS}

"""A repository with what the demo looks for, a model in the cache, and a stand-in for the command line."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eval.demo import demo, demo_steps
from eval.demo.demo_steps import BASES, CONFIGS

STAGES = ("sft", "ms", "dpo")
QUESTION_IDS = ("q1", "q2", "q3")
REPORT = {
    "questions": 8,
    "policies": [{"name": "ms"}, {"name": "untuned"}],
    "measures": {
        name: {"ms": 0.25, "untuned": 0.5}
        for name in ("exact match", "contains a gold answer", "cites a passage that exists")
    },
}


@dataclass
class FakeCommands:
    """Stands in for the command line: makes the files that a command should make, and records the commands in `ran`."""

    ran: list[tuple[str, ...]] = field(default_factory=list)
    fails: str = ""

    def __call__(self, words: Sequence[str]) -> int:
        self.ran.append(tuple(words))
        if self.fails and self.fails in " ".join(words):
            print("some output")
            return 1
        for place in (word for n, word in enumerate(words) if n and words[n - 1] == "--out"):
            self.make(Path(place), words)
        for place in (word.removeprefix("output=") for word in words if word.startswith("output=")):
            assert not Path(place).exists(), "training never overwrites a run"
            self.make(Path(place), words)
        if words[0] == "ask":
            cited = {"2": {"title": "Title", "source": "halmaren-isles.md"}} if words[4].endswith("/ms") else {}
            reply = {"answer": f"by {words[4]}", "reason": "So it is [2]." if cited else "", "citations": cited}
            print(json.dumps(reply))
        else:
            print(f"output of {words[0]} {words[1]}")
        return 0

    def make(self, place: Path, words: Sequence[str]) -> None:
        place.mkdir(parents=True, exist_ok=True)
        (place / "made.txt").write_text(" ".join(words))
        if words[0] == "compare":
            (place / "report.json").write_text(json.dumps(REPORT))


@pytest.fixture
def commands() -> FakeCommands:
    return FakeCommands()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with what the demo looks for, and no model fetched (see `fetched`)."""
    home = tmp_path / "repository"
    (home / "examples/documents").mkdir(parents=True)
    (home / "examples/documents/isles.md").write_text("# Isles")
    (home / CONFIGS).mkdir(parents=True)
    for name in ("tiny", *STAGES, *(f"{stage}-{model.name}" for stage in STAGES for model in BASES)):
        (home / CONFIGS / f"{name}.yaml").write_text(f"output: {name}")
    rows = [{"id": "t1", "question": "What's trained?", "answers": ["so"], "split": "train"}]
    rows += [
        {"id": name, "question": f"What's {name}?", "answers": ["so"], "split": "test"}
        for name in (*QUESTION_IDS, "q4")
    ]
    (home / "examples/questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (home / "eval").mkdir()
    (home / "eval/code.py").write_text("VERSION = 1")
    for module in (demo_steps, demo):
        monkeypatch.setattr(module, "HOME", home)
    monkeypatch.setattr(demo_steps, "is_fetched", lambda model: False)
    return home


@pytest.fixture
def fetched(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """The first of BASES as if it were in the cache; a call replaces it and returns its record file."""
    folder = home.parent / "cache"
    folder.mkdir()
    monkeypatch.setattr(demo_steps, "is_fetched", lambda model: True)
    monkeypatch.setattr(demo_steps, "folder_of", lambda model: folder)

    def put(content: str) -> Path:
        (folder / demo_steps.RECORD).write_text(content)
        return folder / demo_steps.RECORD

    put("{}")
    return put

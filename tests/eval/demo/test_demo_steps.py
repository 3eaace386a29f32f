"""The steps of the demo as command lines: in order, each uses only files that earlier steps made, and each is an existing command."""

from pathlib import Path

import typer

from eval.demo import demo_steps as steps
from eval.demo.demo_steps import BASES, Base, base_of, demo_steps
from modegraph.cli import build_app
from tests.places import ROOT


def test_every_command_names_and_needs_only_what_an_earlier_command_made(home, fetched, tmp_path):
    out, available = tmp_path / "run", {fetched("{}")}
    for planned in demo_steps(out, base_of(out), ["Why?"]):
        words = [word.removeprefix("hf:").rpartition("=")[2] for word in planned.words]
        named = {Path(word) for word in words if word.startswith(str(out))}
        assert named - {planned.makes} <= available, planned.line
        if not planned.live:
            assert named - {planned.makes} == {path for path in planned.needs if out in path.parents}, planned.line
        assert all(path in available or home in path.parents for path in planned.needs), planned.line
        available |= {planned.makes} if planned.makes else set()


def test_every_command_exists(tmp_path):
    """Parsed by the real command line on the real examples: unknown commands and options would be refused."""
    app = typer.main.get_command(build_app())
    for base in (base_of(tmp_path), Base("tiny", "hf:tiny", "", tmp_path / "tiny")):
        for planned in demo_steps(tmp_path, base, ["Why?"]):
            command, words = app, list(planned.words)
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context(command.name, words)
            assert all(path.exists() for path in planned.needs if ROOT in path.parents), planned.line


def test_without_a_fetched_model_a_tiny_model_is_trained_and_used(home, tmp_path):
    out = tmp_path / "run"
    lines = [planned.line for planned in demo_steps(out, base_of(out), ["Why?"])]
    tiny = next(n for n, line in enumerate(lines) if line.startswith("modegraph train tiny"))
    assert f"model={out}/tiny" in lines[tiny + 1] and "sft.yaml" in lines[tiny + 1]
    assert any(f"ask {out}/index 'Why?' --model hf:{out}/tiny" in line for line in lines)
    assert not any(model.name in line for line in lines for model in BASES)


def test_the_largest_model_that_was_fetched_is_tuned(home, tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "folder_of", lambda model: home / model.name)
    for fetched in (BASES, BASES[1:]):
        monkeypatch.setattr(steps, "is_fetched", lambda model, fetched=fetched: model in fetched)
        assert base_of(tmp_path).model == fetched[0].name

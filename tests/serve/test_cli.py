import json
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import graph.index
from graph.build import build_index
from graph.errors import UserError
from graph.settings import IndexSettings
from graph.types import LanguageModel
from serve.cli import register
from tests.corpora import ISLES
from tests.fakes import HashEncoder, ScriptedModel

QUESTION = "Who was born in Tarn and died on 4 May 1931?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ask") / "index"
    build_index(folder, ISLES, IndexSettings(), lambda spec: HashEncoder())
    return folder


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = partial(graph.index.open_index, open_by_spec=lambda spec: HashEncoder())
    monkeypatch.setattr(graph.index, "open_index", opened)


def run(*arguments: object, text: str = "###Reason: She died then [1]. ###Answer: Ada Marlow") -> str:
    def open_model(spec: str, ledger: Path | None = None) -> LanguageModel:
        return ScriptedModel(lambda request: text, name=spec)

    app = typer.Typer()
    app.callback()(lambda: None)
    register(app, open_model)
    done = CliRunner().invoke(app, ["ask", *map(str, arguments)])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.parametrize("mode", ["dense", "naive", "hierarchy"])
def test_the_evidence_is_one_json_object_whose_offsets_slice_the_documents(index: Path, mode: str) -> None:
    shown = json.loads(run(index, QUESTION, "--mode", mode, "--top-k", 3, "--retrieve-only", "--model", "m", "--json"))
    assert shown["query"] == QUESTION and shown["trace"]["mode"] == mode
    texts = {document.source: document.text for document in ISLES}
    assert shown["passages"]
    for found in shown["passages"]:
        passage = found["item"]
        assert texts[passage["source"]][passage["start"] : passage["end"]] == passage["text"]


def test_without_a_model_the_evidence_is_printed(index: Path) -> None:
    shown = run(index, QUESTION, "--top-k", 2)
    assert shown.startswith("1. ") and "\n2. " in shown and "\n3. " not in shown
    assert "Ada Marlow · ada 0–" in shown


def test_with_a_model_the_answer_is_cited(index: Path) -> None:
    shown = run(index, QUESTION, "--model", "scripted")
    assert shown.startswith("Ada Marlow\n") and "Reason: She died then [1]." in shown
    full = json.loads(run(index, QUESTION, "--model", "scripted", "--json"))
    assert (full["answer"], full["model"], full["removed"]) == ("Ada Marlow", "scripted", [])
    assert full["citations"]["1"]["source"] in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((" ",), "empty"), (("q", "--top-k", "0"), "top_k = 0"), (("q", "--mode", "magic"), "magic")],
)
def test_bad_input_is_one_line(index: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message) as problem:
        run(index, *arguments)
    assert "\n" not in str(problem.value)


def test_a_missing_index_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        run(tmp_path / "nowhere", QUESTION)

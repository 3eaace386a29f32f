import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

import graph.index.index
import graph.retrieve.retrieve
from graph.answer.prompt import NOT_FOUND
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.shared.modes import MODES
from graph.types import Evidence, LanguageModel, OpenModel
from modegraph.cli import build_app
from serve import engines
from serve.cli import check_trace_file, register
from tests.corpora import ISLES
from tests.disks import mounted_disk
from tests.fakes import ScriptedModel

QUESTION = "Who was born in Tarn and died on 4 May 1931?"
pytestmark = pytest.mark.usefixtures("open_hashed")


def run(*arguments: object, text: str = "###Reason: She died then [1]. ###Answer: Ada Marlow") -> str:
    done = invoke(*arguments, model=ScriptedModel(lambda request: text, name="scripted"))
    if done.exception is not None:
        raise done.exception
    return done.stdout


def invoke(*arguments: object, model: LanguageModel) -> Result:
    return invoke_with(lambda spec, ledger=None: model, *arguments)


def invoke_with(open_model: OpenModel, *arguments: object) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app, open_model)
    return CliRunner().invoke(app, ["ask", *map(str, arguments)])


@pytest.mark.parametrize("mode", ["dense", "naive", "hierarchy"])
def test_the_evidence_is_one_json_object_whose_offsets_slice_the_documents(hashed_isles: Path, mode: str) -> None:
    shown = json.loads(
        run(hashed_isles, QUESTION, "--mode", mode, "--top-k", 3, "--retrieve-only", "--model", "m", "--json")
    )
    assert shown["query"] == QUESTION and shown["trace"]["mode"] == mode
    texts = {document.source: document.text for document in ISLES}
    assert shown["passages"]
    for found in shown["passages"]:
        passage = found["item"]
        assert texts[passage["source"]][passage["start"] : passage["end"]] == passage["text"]


def test_without_a_model_the_evidence_is_printed(hashed_isles: Path) -> None:
    shown = run(hashed_isles, QUESTION, "--top-k", 2)
    assert shown.startswith("1. ") and "\n2. " in shown and "\n3. " not in shown
    assert "Ada Marlow · ada 0–" in shown


def test_with_a_model_the_answer_and_its_citations_are_printed(hashed_isles: Path) -> None:
    shown = run(hashed_isles, QUESTION, "--model", "scripted")
    assert shown.startswith("Ada Marlow\n") and "Reason: She died then [1]." in shown
    full = json.loads(run(hashed_isles, QUESTION, "--model", "scripted", "--json"))
    assert (full["answer"], full["model"], full["removed"]) == ("Ada Marlow", "scripted", [])
    assert full["citations"]["1"]["source"] in shown


def test_if_the_model_cites_nothing_a_passage_is_shown_as_attributed(hashed_isles: Path) -> None:
    arguments = (hashed_isles, "Where was Ada Marlow born?", "--model", "scripted")
    text = "###Reason: It is known. ###Answer: Tarn"
    shown = " ".join(run(*arguments, text=text).split())
    assert shown.count("attributed, not cited by the model") == 1
    assert "Closest: “She was born in Tarn and died on 4 May 1931.”" in shown
    [cited] = json.loads(run(*arguments, "--json", text=text))["citations"].values()
    [quote] = cited["quotes"]
    assert (cited["source"], cited["attributed"], quote["statement"]) == ("ada", True, "Tarn")
    assert cited["text"][quote["start"] : quote["end"]] == quote["text"]
    assert "Not checked: “Yes” says too little." in run(*arguments, text="###Reason: It is known. ###Answer: Yes")


def test_unsupported_sentences_are_marked_dropped_or_ignored(hashed_isles: Path) -> None:
    text = "###Reason: Ada Marlow was born in Tarn. Casimir Thole never saw it in 1742 [1]. ###Answer: Ada Marlow"
    arguments = (hashed_isles, QUESTION, "--model", "scripted")
    marked = run(*arguments, text=text)
    [found] = json.loads(run(*arguments, "--json", text=text))["unsupported"]
    assert found["missing"] == ["Thole", "1742"] and 0.7 < found["probability"] < 1
    line = f"Not supported by [1] (probability {found['probability']:.2f}; missing: Thole, 1742): “Casimir Thole"
    assert line in " ".join(marked.split())
    assert "Not supported" not in run(*arguments, "--unsupported", "ignore", text=text)
    dropped = json.loads(run(*arguments, "--unsupported", "drop", "--json", text=text))
    assert dropped["reason"] == "Ada Marlow was born in Tarn." and len(dropped["unsupported"]) == 1


def test_with_abstain_a_question_that_the_documents_do_not_cover_is_refused_without_a_call(hashed_isles: Path) -> None:
    model = ScriptedModel(lambda request: "###Reason: so [1]. ###Answer: yes", name="scripted")
    arguments = (hashed_isles, "Do statins lower mortality after strokes?", "--model", "scripted")
    shown = invoke(*arguments, "--abstain", 0.5, model=model).stdout
    assert shown.startswith(f"{NOT_FOUND}\n") and "; the model was not called." in shown and model.requests == []
    assert "Not in these documents: probability 0.7" in run(*arguments, "--abstain", 0.5, "--retrieve-only")
    answered = run(hashed_isles, QUESTION, "--model", "scripted", "--abstain", 0.5)
    assert answered.startswith("Ada Marlow\n") and "Not in these documents" not in answered
    by_default = run(*arguments)
    assert "Not in these documents: probability 0.7" in by_default and "not called" not in by_default
    full = json.loads(run(*arguments, "--abstain", 1, "--json"))
    assert full["answer"] == "Ada Marlow" and full["evidence"]["absence"]["abstained"] is False


ARGUMENTS_THAT_ABSTAIN = ("Do statins lower mortality after strokes?", "--abstain", 0.5)


def test_an_answer_without_a_call_does_not_wait_for_the_model(hashed_isles: Path) -> None:
    def open_model(spec: str, ledger: Path | None = None) -> LanguageModel:
        shown, ends = sys.stdout.buffer, time.monotonic() + 20
        while NOT_FOUND.encode() not in shown.getvalue():  # type: ignore[attr-defined]
            assert time.monotonic() < ends, "the answer should be printed before the model is open"
            time.sleep(0.01)
        return ScriptedModel(lambda request: "never")

    done = invoke_with(open_model, hashed_isles, *ARGUMENTS_THAT_ABSTAIN, "--model", "slow")
    assert done.exception is None and done.stdout.startswith(f"{NOT_FOUND}\n")


def test_an_unknown_model_is_an_error_even_if_no_call_was_needed(hashed_isles: Path) -> None:
    done = invoke_with(engines.open_model, hashed_isles, *ARGUMENTS_THAT_ABSTAIN, "--model", "gpt9")
    assert isinstance(done.exception, UserError) and "model 'gpt9': no such model" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((" ",), "empty"),
        (("q", "--top-k", "0"), "top_k = 0"),
        (("q", "--mode", "hosp"), "Did you mean 'hops'?"),
        (("q", "--mode", "walk"), "mode = 'walk'. Expected 'dense', .*'hierarchy', 'hops'"),
        (("q", "--mode", "graph"), "mode = 'graph'. Expected 'dense', .*'hierarchy', 'hops'"),
        (("q", "--unsupported", "hide"), "--unsupported hide"),
        (("q", "--verifier", "no/verifier"), "no/verifier"),
        (("q", "--abstain", "2"), "abstain = 2"),
        (("q", "--trace", "no/such/file"), "--trace no/such/file"),
    ],
)
def test_bad_input_is_reported_in_one_line(hashed_isles: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message) as problem:
        run(hashed_isles, *arguments)
    assert "\n" not in str(problem.value)


def test_a_missing_folder_or_a_file_instead_of_an_index_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        run(tmp_path / "nowhere", QUESTION)
    (tmp_path / "notes.md").write_text("High at noon.")
    with pytest.raises(
        UserError, match=r"notes\.md: a file\. Expected the folder of an index\. Create one: modegraph index"
    ):
        run(tmp_path / "notes.md", QUESTION)


def test_the_help_names_every_mode() -> None:
    shown = CliRunner().invoke(build_app(), ["ask", "--help"]).output
    assert all(re.search(rf"\b{mode}\b", shown) for mode in MODES)


def test_filters_are_applied_to_the_retrieval(hashed_isles: Path) -> None:
    found = json.loads(run(hashed_isles, QUESTION, "--where", "source!=a*", "--where", "title=*r*n*", "--json"))
    assert {each["item"]["source"] for each in found["passages"]} == {"lantern", "tarn"}


def test_an_explanation_follows_the_evidence(hashed_isles: Path) -> None:
    shown = run(hashed_isles, "Who founded the Marlow Yard?", "--mode", "hops", "--explain")
    evidence, _, how = shown.partition("How it was found (hops)")
    assert "1. " in evidence and "question → the question names “Marlow Yard”" in how
    assert "How it was found" in run(hashed_isles, QUESTION, "--model", "scripted", "--explain")


def test_a_trace_file_contains_the_evidence_and_the_settings(hashed_isles: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    shown = json.loads(run(hashed_isles, QUESTION, "--mode", "hops", "--trace", file, "--json"))
    trace = json.loads(file.read_text(encoding="utf-8"))
    assert trace["evidence"] == shown and trace["settings"]["mode"] == "hops"
    assert list(tmp_path.iterdir()) == [file]


def test_a_trace_file_in_a_folder_that_is_not_writable_is_refused_before_any_work(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk") as disk:
        check_trace_file(disk.folder / "trace.json")
        disk.make_read_only()
        with pytest.raises(UserError, match=r"disk/trace\.json\. Expected a file in a writable folder"):
            check_trace_file(disk.folder / "trace.json")


def test_a_retrieval_that_stops_early_shows_its_evidence_and_fails(
    hashed_isles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_retrieve = graph.retrieve.retrieve.retrieve
    models: list[Any] = []

    def stop_early(
        opened_index: Index, question: str, settings: RetrieveSettings, model: LanguageModel | None
    ) -> Evidence:
        models.append(model)
        found = original_retrieve(opened_index, question, settings)
        return replace(found, trace=replace(found.trace, stopped="the server went away"))

    monkeypatch.setattr(graph.retrieve.retrieve, "retrieve", stop_early)
    model = ScriptedModel(lambda request: "never")
    done = invoke(hashed_isles, QUESTION, "--model", "m", model=model)
    assert done.exit_code == 1 and done.stdout.startswith("1. ")
    assert "stopped before it was done: the server went away" in done.stderr
    assert [each.name for each in models] == [model.name] and model.requests == []


def test_the_options_for_context_tokens_reranker_and_selector_take_effect(hashed_isles: Path) -> None:
    with pytest.raises(UserError, match="max_context_tokens = 2"):
        run(hashed_isles, QUESTION, "--model", "m", "--max-context-tokens", 2)
    with pytest.raises(UserError, match=r"reranker '[.]/none': no such folder"):
        run(hashed_isles, QUESTION, "--reranker", "./none")
    with pytest.raises(UserError, match=r"selector = 'lllm'\. Did you mean 'llm'"):
        run(hashed_isles, QUESTION, "--selector", "lllm")

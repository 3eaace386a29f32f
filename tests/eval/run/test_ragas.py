"""A finished run as rows for ragas: exact rows, one set of fields a file, and no file of a run that is not finished."""

import json

import pytest
import typer
import yaml
from typer.testing import CliRunner

from eval.cli import register
from eval.run.ragas import write_ragas
from graph.errors import UserError
from graph.models.encoder import open_encoder
from tests.eval.conftest import read_lines
from tests.eval.run.conftest import CONFIG, MODELS, QUESTIONS, answers, hashing, run
from tests.fakes import HashEncoder, ScriptedModel

FIELDS = {"user_input", "retrieved_contexts", "response", "reference"}
"""The fields of ragas's SingleTurnSample that a run can provide."""


def files(home):
    """Rows by system."""
    written = write_ragas(home / "config.yaml", [], home / "out", home / "ragas", hashing)
    assert sorted(one.file for one in written) == sorted((home / "ragas").iterdir())
    found = {one.system: read_lines(one.file) for one in written}
    assert {one.system: one.rows for one in written} == {name: len(rows) for name, rows in found.items()}
    for rows in found.values():
        assert len({tuple(row) for row in rows}) == 1 and set(rows[0]) <= FIELDS
    return found


def test_rows_of_retrieval_alone(home):
    run(home)
    found = files(home)
    assert list(found) == ["dense", "lexical"]
    assert [row["user_input"] for row in found["lexical"]] == [row["question"] for row in QUESTIONS]
    assert found["lexical"][0] | {"retrieved_contexts": []} == {
        "user_input": "When was the Lantern built?",
        "retrieved_contexts": [],
        "reference": "1911",
    }
    contexts = found["lexical"][0]["retrieved_contexts"]
    assert len(contexts) == 2
    assert contexts[0] == (
        "Lantern (ferry): The Lantern is a ferry of Port Ellery. She was built in 1911 by the Marlow Yard."
    )
    assert any(text.startswith("Marlow Yard: The Marlow Yard") for text in found["lexical"][1]["retrieved_contexts"])


def test_rows_of_answers_with_and_without_passages(home):
    retrievers = {**CONFIG["retrievers"], "closed": None}
    run(home, model=ScriptedModel(answers), retrievers=retrievers, shown_questions=2, **MODELS)
    found = files(home)
    assert len(found) == 6 and len(found["dense + a"]) == 2 and len(found["closed + a"]) == 3
    assert set(found["dense + a"][0]) == FIELDS and found["closed + a"][1] == {
        "user_input": "Who founded the Marlow Yard?",
        "response": "nobody",
        "reference": "Ada Marlow",
    }
    assert found["closed + a"][0]["response"] == "###Reason: so [1] ###Answer: 1911 [1]"


def test_ragas_reads_them(home):
    ragas = pytest.importorskip("ragas")
    run(home, model=ScriptedModel(answers), **MODELS)
    for one in write_ragas(home / "config.yaml", [], home / "out", home / "ragas", hashing):
        data = ragas.EvaluationDataset.from_jsonl(str(one.file))
        assert data.get_sample_type() is ragas.SingleTurnSample and set(data.features()) == FIELDS
        assert [sample.to_dict() for sample in data] == read_lines(one.file)


def test_what_is_no_finished_run_is_refused_and_leaves_no_file(home):
    run(home)
    config, out = home / "config.yaml", home / "ragas"
    with pytest.raises(
        UserError, match=r"nowhere: not the folder of a run, it has no cells/\. Expected what `modegraph eval run`"
    ):
        write_ragas(config, [], home / "nowhere", out)
    lost = next((home / "out/cells").iterdir())
    lost.unlink()
    with pytest.raises(
        UserError, match=r"out: 1 of 2 cells are not finished, .* on isles first\. Expected a finished run of this"
    ):
        write_ragas(config, [], home / "out", out, hashing)
    config.write_text(yaml.safe_dump({**CONFIG, "retrievers": {"hops": {"mode": "hops"}}}))
    with pytest.raises(UserError, match="1 of 1 cells are not finished, hops on isles first"):
        write_ragas(config, [], home / "out", out, hashing)
    run(home, shown_questions=0)
    with pytest.raises(
        UserError, match=r"dense on isles: no passages were stored\. Expected shown_questions of 1 or more"
    ):
        write_ragas(config, [], home / "out", out, hashing)
    assert not out.exists()


def test_the_command(home):
    run(home, open_encoder=lambda spec: HashEncoder(open_encoder(spec).fingerprint))
    app = typer.Typer()
    register(app, lambda spec, ledger=None: None)
    words = ["eval", "ragas", str(home / "config.yaml"), "--run", str(home / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and done.stdout.count("on isles, 3 of 3 questions") == 2
    report = json.loads(CliRunner().invoke(app, [*words, "--out", str(home / "there"), "--json"]).stdout)
    assert [one["system"] for one in report["files"]] == ["dense", "lexical"] and report["files"][0]["rows"] == 3
    assert {one["file"] for one in report["files"]} == {str(file) for file in (home / "there").iterdir()}
    assert len(list((home / "out/ragas").iterdir())) == 2

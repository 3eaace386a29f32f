"""The results of a run as rows for ragas: exact rows, and one set of fields per file."""

import json

import pytest

from tests.eval.conftest import read_lines
from tests.eval.run.conftest import CONFIG, MODELS, QUESTIONS, answers, run
from tests.fakes import ScriptedModel

FIELDS = {"user_input", "retrieved_contexts", "response", "reference"}
"""The fields of ragas's SingleTurnSample that a run can provide."""


def rows_by_system(home):
    """The rows in the file of each system; all rows of a file must have the same fields."""
    found = {}
    for system in system_names(home):
        (file,) = (home / "out/ragas").glob(f"isles-{system.replace(' + ', '---')}-*.jsonl")
        found[system] = read_lines(file)
    for rows in found.values():
        assert len({tuple(row) for row in rows}) == 1 and set(rows[0]) <= FIELDS
    return found


def system_names(home):
    return [one["system"] for one in json.loads((home / "out/report.json").read_text())["results"]]


def test_rows_of_systems_without_a_model_have_no_response(home):
    run(home)
    found = rows_by_system(home)
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


def test_rows_of_answers_have_contexts_if_passages_were_retrieved(home):
    retrievers = {**CONFIG["retrievers"], "closed": None}
    run(home, model=ScriptedModel(answers), retrievers=retrievers, shown_questions=2, **MODELS)
    found = rows_by_system(home)
    assert len(found) == 6 and len(found["dense + a"]) == 2 and len(found["closed + a"]) == 3
    assert set(found["dense + a"][0]) == FIELDS and found["closed + a"][1] == {
        "user_input": "Who founded the Marlow Yard?",
        "response": "nobody",
        "reference": "Ada Marlow",
    }
    assert found["closed + a"][0]["response"] == "###Reason: so [1] ###Answer: 1911 [1]"


def test_ragas_reads_the_rows(home):
    ragas = pytest.importorskip("ragas")
    run(home, model=ScriptedModel(answers), **MODELS)
    for file in (home / "out/ragas").iterdir():
        data = ragas.EvaluationDataset.from_jsonl(str(file))
        assert data.get_sample_type() is ragas.SingleTurnSample and set(data.features()) == FIELDS
        assert [sample.to_dict() for sample in data] == read_lines(file)


def test_without_stored_passages_there_are_no_rows(home):
    run(home, shown_questions=0)
    assert not (home / "out/ragas").exists()

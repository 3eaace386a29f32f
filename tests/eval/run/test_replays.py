"""Systems that share calls of a helper cost the same, whichever of them comes first."""

import json
import time

import pytest

from serve.ledger import Ledger
from tests.eval.run.conftest import run
from tests.fakes import ScriptedModel

PAUSE_S = 0.03
LOCAL = {"mode": "local", "selector": "llm"}
PAIR = {"few": {**LOCAL, "top_k": 1}, "many": {**LOCAL, "top_k": 5}}


def judge(request) -> str:
    """Selects the first three statements, always asks the same next question, and is never satisfied."""
    time.sleep(PAUSE_S)
    return json.dumps({"selected": [1, 2, 3], "answer": "", "next_questions": ["Who?"]})


def run_with_helper(home, **changes):
    ended, _, _ = run(home, model=ScriptedModel(judge), helper="hf:helper", open_ledger=Ledger, **changes)
    assert not ended.failed
    return ended, {one["system"]: one for one in ended.json["results"]}


@pytest.mark.long
def test_two_retrievers_that_differ_in_top_k_alone_take_the_same_time(home):
    _, found = run_with_helper(home, retrievers=PAIR)
    few, many = found["few"], found["many"]
    assert few["calls"] == many["calls"] > 3 and few["tokens"] == many["tokens"]
    assert min(few["seconds"], many["seconds"]) > few["calls"] * PAUSE_S
    assert many["replayed"] == 3 * many["calls"] and 0 < few["replayed"] < 3 * few["calls"]
    assert "answered from the ledger; their cost is that of the original calls" in (home / "out/report.md").read_text()

"""Systems that share calls to a helper model cost the same, whichever comes first."""

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
    """A reply that selects the first three statements, asks the same next question each time, and gives no answer."""
    time.sleep(PAUSE_S)
    return json.dumps({"selected": [1, 2, 3], "answer": "", "next_questions": ["Who?"]})


def run_with_helper(home, **changes):
    done, _, _ = run(home, model=ScriptedModel(judge), helper="hf:helper", open_ledger=Ledger, **changes)
    assert not done.failed
    return done, {one["system"]: one for one in done.json["results"]}


@pytest.mark.long
def test_replayed_calls_count_with_their_original_tokens_and_time(home):
    _, found = run_with_helper(home, retrievers=PAIR)
    few, many = found["few"], found["many"]
    assert few["calls"] == many["calls"] > 3 and few["tokens"] == many["tokens"]
    assert min(few["seconds"], many["seconds"]) > few["calls"] * PAUSE_S
    assert many["replayed"] == 3 * many["calls"]
    assert 0 < few["replayed"] < few["calls"], "the first system should replay only calls that its questions share"
    assert "answered from the ledger; their cost is that of the original calls" in (home / "out/report.md").read_text()

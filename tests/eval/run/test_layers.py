"""Which layers evidence came from: counts and bins computed by hand, and a run whose table agrees with retrieval."""

import json

import pytest

from eval.run.config import QuestionResult
from eval.run.run_report import count_layers, layers_table, mean_layer_shares
from graph.index.index import open_index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.types import Evidence, Passage, Scored, Summary
from tests.eval.run.conftest import QUESTIONS, run
from tests.fakes import HashEncoder


def evidence_of(passages: int, *layers: int) -> Evidence:
    return Evidence(
        "?",
        passages=tuple(Scored(Passage(str(n), "d", "", "", n, 0, 0), 1.0) for n in range(passages)),
        summaries=tuple(Scored(Summary(str(n), layer, "", ()), 1.0) for n, layer in enumerate(layers)),
    )


def results(*layers: tuple[int, ...]) -> list[QuestionResult]:
    return [
        QuestionResult(str(n), (), None, None, {}, 0, 0, 0, 0, 0, 0, layers=counts) for n, counts in enumerate(layers)
    ]


def test_passages_count_as_layer_0():
    assert count_layers(evidence_of(3, 0, 2, 2)) == (4, 0, 2)
    assert count_layers(evidence_of(0, 1)) == (0, 1)
    assert count_layers(evidence_of(2)) == (2,) and count_layers(evidence_of(0)) == ()


def test_the_shares_of_layers_match_values_computed_by_hand():
    """Passages and summaries: 10 and 0, 8 and 2, 5 and 5, 4 and 6; a question without results has no share."""
    table = layers_table("b", {"s": results((10,), (8, 2), (5, 5), (4, 6), ())})
    assert mean_layer_shares(results((10,), (8, 2), (5, 5), (4, 6), ())) == pytest.approx((0.675, 0.325))
    assert table is not None and table.header[3:] == ("0–20 %", "20–50 %", "50–80 %", "80–100 %")
    assert table.rows == (
        ("s", "0", "67.5 %", "0.0 %", "50.0 %", "25.0 %", "25.0 %"),
        ("s", "1", "32.5 %", "50.0 %", "25.0 %", "25.0 %", "0.0 %"),
    )


def test_every_count_out_of_ten_is_in_the_bin_of_the_paper():
    bins = {"0–20 %": range(3), "20–50 %": range(3, 6), "50–80 %": range(6, 9), "80–100 %": range(9, 11)}
    for count in range(11):
        table = layers_table("b", {"s": results((10 - count, count), (9, 1))})
        assert table is not None
        values = dict(zip(table.header, table.rows[1], strict=True))
        inside = [name for name, counts in bins.items() if count in counts]
        assert all((values[name] != "0.0 %") == (name in inside or name == "0–20 %") for name in bins)


def test_without_summaries_there_is_no_table():
    assert layers_table("b", {"s": results((5,), (3,))}) is None
    assert mean_layer_shares([]) == () == mean_layer_shares(results(()))


def test_a_run_reports_the_layers_that_retrieval_found(home):
    retrievers = {
        "both": {"mode": "hierarchy", "top_k": 4},
        "only 1": {"mode": "hierarchy", "top_k": 4, "layers": [1]},
        "dense": {"mode": "dense"},
        "only 7": {"mode": "hierarchy", "layers": [7]},
    }
    done, _, _ = run(home, retrievers=retrievers, indexes={"": {"min_similarity": 0.1}})
    (failure,) = done.json["failures"]
    assert failure["system"] == "only 7" and "layer 7 has no nodes in this index" in failure["problem"]
    layers = {one["system"]: one["layers"] for one in done.json["results"]}
    assert layers["dense"] == [1.0] and layers["only 1"] == [0.0, 1.0]
    index = open_index(
        next(each for each in (home / "out/indexes").iterdir() if each.is_dir()), lambda spec: HashEncoder()
    )
    settings = RetrieveSettings.model_validate(retrievers["both"])
    high = [len(retrieve(index, row["question"], settings).summaries) / 4 for row in QUESTIONS]
    assert 0 < sum(high) < 3 and layers["both"][1] == pytest.approx(sum(high) / 3)
    report = (home / "out/report.md").read_text()
    assert "isles: layers of the results" in report and "isles: layers of the results" in done.text
    assert "| both | 1 |" in report and "| dense | 0 |" not in report
    again, _, _ = run(home, retrievers=retrievers, indexes={"": {"min_similarity": 0.1}})
    assert again.json["results"] == json.loads((home / "out/report.json").read_text())["results"]
    assert [one["layers"] for one in again.json["results"]] == list(layers.values())


@pytest.mark.parametrize(
    ("walk", "filled"),
    [({}, 0), ({"damping": 0.85, "structure_weight": 0.5}, 0), ({"damping": 0.5}, 1), ({"structure_weight": 1}, 1)],
)
def test_changed_walk_settings_give_another_cell(home, walk, filled):
    local = {"mode": "local", "top_k": 2}
    run(home, retrievers={"local": local})
    assert run(home, retrievers={"local": {**local, "suggestions": walk}})[0].json["cells"]["filled"] == filled

"""`modegraph eval router` on a small world whose figures are known, its files, and what is refused."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from eval import cli_measure as cli_router
from eval.router import ORACLE, ROUTER, RULE, evaluate_router, router_verdict
from graph.errors import UserError
from graph.retrieve.learned.router import QUERY_FEATURES
from tests.train.labelled import write_rows
from tests.train.router.rows import small_world
from train.router.router import train_router
from train.run.settings import RouterSettings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("route") / "world", small_world())


@pytest.fixture(scope="module")
def router(data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("router") / "run")
    train_router(RouterSettings(data=(str(data),), output=out, trees=20))
    return out


def evaluate(*arguments: object) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    cli_router.add_router(app)
    return CliRunner().invoke(app, ["router", *map(str, arguments)])


def test_the_figures_of_every_way(data: Path, router: str) -> None:
    report = evaluate_router([data], router, "test", 0)
    points = {each.name: each for each in report.points}
    assert list(points) == ["dense", "hierarchy", "hops", RULE, ROUTER, ORACLE] and report.best == "hops"
    hops, dense = points["hops"].milliseconds, points["dense"].milliseconds
    assert points[RULE].milliseconds == hops and points[ORACLE].milliseconds == pytest.approx((hops + dense) / 2)
    assert points[ROUTER].milliseconds == pytest.approx((hops + dense) / 2 + report.routing_ms)
    assert points[ROUTER].recall == 1 and report.routing_ms > 0.5, "made features took .5 ms"
    assert report.differences["dense"].mean == pytest.approx(-0.25) and report.differences[ROUTER].mean == 0
    assert report.as_good_share == 0.5 and "hops" not in report.differences
    assert [(each.name, each.questions, each.router.recall) for each in report.kinds] == [
        ("easy", 30, 1),
        ("hard", 30, 1),
    ]
    assert {mode for each in report.kinds for mode in each.router.chosen} == {"dense", "hops"}


def test_the_curve_goes_from_cheap_to_good(data: Path, router: str) -> None:
    curve = evaluate_router([data], router, "test", 0).curve
    assert list(curve) == sorted(curve) and curve[0][1] == 0.75 and max(recall for _, recall in curve) == 1


def test_the_verdict_says_what_stands_in_the_way(data: Path, router: str) -> None:
    told = router_verdict(evaluate_router([data], router, "test", 0))
    share = "missed. A cheaper mode does as well on 50% of the questions, so that an oracle comes to 55%"
    assert "0.0 points" in told and share in told


def test_files_and_json(data: Path, router: str, tmp_path: Path) -> None:
    result = evaluate("--data", data, "--router", router, "--out", tmp_path / "report", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["questions"] == 60 and told["points"][-1]["name"] == ORACLE
    assert sorted(file.name for file in (tmp_path / "report").iterdir()) == ["frontier.png", "report.json", "report.md"]
    assert (tmp_path / "report" / "frontier.png").read_bytes()[:4] == b"\x89PNG"
    assert "| auto, by router |" in (tmp_path / "report" / "report.md").read_text()
    assert "By kind of question" in evaluate("--data", data, "--router", router).stdout


def refused(*arguments: object) -> str:
    problem = evaluate(*arguments).exception
    assert isinstance(problem, UserError)
    return str(problem)


def test_questions_that_the_router_has_learned_from_are_refused_by_id(data: Path, router: str, tmp_path: Path) -> None:
    told = refused("--data", data, "--router", router, "--split", "train")
    assert "has learned from 160 of these questions: a-train-0, a-train-1" in told
    rows = small_world("bb")
    rows[-1]["question"] = "WHAT is a train 5?"
    told = refused("--data", write_rows(tmp_path / "b", rows), "--router", router)
    assert "has learned from 1 of these questions: bb-test-59" in told


def test_other_rows_may_be_taken_whole(router: str, tmp_path: Path) -> None:
    other = write_rows(tmp_path / "b", small_world("bb"))
    assert evaluate_router([other], router, "all", 0).questions == 260


def test_rows_that_do_not_fit_are_refused(data: Path, router: str, tmp_path: Path) -> None:
    other = write_rows(tmp_path / "encoder", small_world("bb"), "another-encoder")
    assert "the rows are of another-enco" in refused("--data", other, "--router", router)
    rows = small_world("bb")
    for row in rows:
        del row["runs"]["dense"]
        row["best_mode"] = "hops"
    told = refused("--data", write_rows(tmp_path / "modes", rows), "--router", router)
    assert "no runs of dense" in told
    assert "--split tset: no such split" in refused("--data", data, "--router", router, "--split", "tset")


def test_the_small_world_has_a_row_of_each_feature() -> None:
    assert list(small_world()[0]["query_features"]) == list(QUERY_FEATURES)

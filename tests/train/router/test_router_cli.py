"""`modegraph train router` from end to end on a small world: what it learns, keeps, tells and refuses."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from graph.errors import UserError
from graph.retrieve.learned.router import ROUTER_FILE, find_route, open_router
from tests.train.labelled import ENCODER, write_rows
from tests.train.router.rows import small_world
from train import cli as cli_router
from train.router.route_data import fingerprint, questions_of, read_datasets, shared_modes


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("route") / "world", small_world())


def train(*arguments: object) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    cli_router.register_router(app)
    return CliRunner().invoke(app, ["router", *map(str, arguments)])


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("router") / "run"
    assert train("--data", data, "--out", out).exit_code == 0
    return out


def test_the_router_learns_which_questions_a_cheap_mode_is_enough_for(run: Path, data: Path) -> None:
    router = open_router(str(run))
    assert router.encoder == ENCODER and [each.mode for each in router.modes] == ["hops", "dense"]
    datasets = read_datasets([data])
    test = questions_of(datasets, ("test",), shared_modes(datasets))
    chosen = [find_route(router, features_F, has_model=False).mode for features_F in test.features_QF]
    assert chosen == ["dense", "hops"] * 30


def test_the_record_tells_quality_and_cost_of_every_way(run: Path) -> None:
    record = json.loads((run / "router.json").read_text())
    points = {each["name"]: each for each in record["test"]}
    assert list(points) == ["dense", "hierarchy", "hops", "router", "oracle"]
    assert points["router"]["recall"] == points["hops"]["recall"] == 1 and points["dense"]["recall"] == 0.75
    assert points["router"]["milliseconds"] < 0.75 * points["hops"]["milliseconds"]
    assert points["router"]["milliseconds"] > points["oracle"]["milliseconds"] + 0.5, "features are paid for"
    assert record["default"] == "hops" and record["questions"] == {"train": 160, "dev": 40, "test": 60}
    assert fingerprint("What is a dev 3?") in record["learned_from"]
    assert fingerprint("What is a test 3?") not in record["learned_from"]


def test_the_card_tells_what_it_is_and_how_to_use_it(run: Path) -> None:
    card = (run / "README.md").read_text()
    assert "--mode auto --router" in card and "| default | hops |" in card and "| oracle | 1.000 |" in card


def test_equal_data_make_equal_bytes(run: Path, data: Path, tmp_path: Path) -> None:
    assert train("--data", data, "--out", tmp_path / "again").exit_code == 0
    assert (run / ROUTER_FILE).read_bytes() == (tmp_path / "again" / ROUTER_FILE).read_bytes()


def test_a_wide_tolerance_buys_a_cheap_router(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "cheap"
    result = train("--data", data, "--out", out, "--tolerance", "0.3", "--json")
    points = {each["name"]: each for each in json.loads(result.stdout)["test"]}
    assert points["router"]["chosen"] == {"dense": 60}


def test_a_place_that_is_taken_is_refused_and_a_failed_run_leaves_nothing(
    run: Path, data: Path, tmp_path: Path
) -> None:
    told = train("--data", data, "--out", run).exception
    assert isinstance(told, UserError) and "already there" in str(told)
    bad = write_rows(tmp_path / "bad", [row | {"best_mode": "hops"} for row in small_world()])
    told = train("--data", bad, "--out", tmp_path / "new").exception
    assert isinstance(told, UserError) and "Use --mode hops" in str(told)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bad"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [((), "'data' is missing"), (("--data", "a", "--data", "a"), "each dataset once"), (("--set", "tres=3"), "trees")],
)
def test_settings_that_say_nothing_useful_are_told(arguments: tuple[str, ...], told: str) -> None:
    problem = train("--out", "x", *arguments).exception
    assert isinstance(problem, UserError) and told in str(problem)

"""Training runs on the page: curves, the best checkpoint, figures before and after tuning; only with the operator's key."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graph.shared.jsonl import write_json, write_jsonl
from graph.shared.progress import note_progress, report_progress
from serve.http.keys import change_keys, make_key
from tests.serve.http.running import Running, serving
from tests.serve.page.conftest import KEY, HeldRequests, Visits, axe_violations

OPERATOR_HEADERS = {"Authorization": f"Bearer {KEY}"}
LOSSES = {5: 2.0, 10: 1.5, 15: 1.0, 20: 0.75}
DEV_FIGURES = {10: {"eval_f1": 0.8, "eval_loss": 1.4}, 20: {"eval_f1": 0.6, "eval_loss": 1.6}}
RECORD = {"stage": "sft", "settings": {"model": "smollm2"}, "metrics": {"train_loss": 1.25}, "train_seconds": 90.0}
FIGURES = {"f1": {"mean": 0.5, "low": 0.4, "high": 0.6}, "refused_answerable": 0.25, "cites_gold": None}
TUNING_RECORD = {"settings": {}, "metrics": {"f1_tuned": 0.75}, "train_seconds": 60.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of four runs: a finished `train sft` with dev rows, a finished `tune`, a stopped run, and one whose log links to a file outside the folder."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("deep/sft", "tuned", "half.partial", "linked"):
        (folder / name).mkdir(parents=True)
    rows = [{"step": step, "loss": loss, "grad_norm": 1.0} for step, loss in LOSSES.items()]
    rows += [{"step": step, "eval_runtime": 3.0, **figures} for step, figures in DEV_FIGURES.items()]
    write_json(folder / "deep/sft/run.json", RECORD)
    write_jsonl(folder / "deep/sft/log.jsonl", sorted(rows, key=lambda row: row["step"]))
    answers = {"held-out": {"untuned": {"all": FIGURES}, "tuned": {"all": {**FIGURES, "f1": {"mean": 0.75}}}}}
    write_json(folder / "tuned/recommended.json", {**TUNING_RECORD, "answers": answers})
    with pytest.raises(KeyboardInterrupt), report_progress(folder / "half.partial", {"stage": "ms", "settings": {}}):
        note_progress(folder / "half.partial", 1, 4, {"loss": 3.0})
        note_progress(folder / "half.partial", 2, 4, {"loss": 2.5})
        raise KeyboardInterrupt
    outside = tmp_path_factory.mktemp("outside") / "log.jsonl"
    write_jsonl(outside, [{"step": 1, "loss": 9.0}])
    write_json(folder / "linked/run.json", RECORD)
    (folder / "linked/log.jsonl").symlink_to(outside)
    return folder


@pytest.fixture(scope="module")
def operator_server(isles_and_hostile: Path, runs: Path) -> Iterator[Running]:
    """A server that shows the runs to callers with the operator's key."""
    with serving(isles_and_hostile, None, api_key=KEY, show_runs=str(runs)) as running:
        yield running


def test_a_run_is_returned_with_its_state_curves_best_step_and_changes(operator_server: Running) -> None:
    listed = operator_server.get("/v1/runs", headers=OPERATOR_HEADERS).json()
    states = {each["name"]: (each["stage"], each["state"], each["step"], each["steps"]) for each in listed["runs"]}
    assert states == {
        "deep/sft": ("sft", "finished", None, None),
        "tuned": ("tune", "finished", None, None),
        "half": ("ms", "stopped", 2, 4),
        "linked": ("sft", "finished", None, None),
    }
    assert listed["total"] == 4

    def course(name: str) -> dict:  # type: ignore[type-arg]
        return operator_server.get("/v1/runs/course", params={"name": name}, headers=OPERATOR_HEADERS).json()  # type: ignore[no-any-return]

    sft = course("deep/sft")
    assert sft["curves"] == {
        "loss": [[step, loss] for step, loss in LOSSES.items()],
        "eval_f1": [[10, 0.8], [20, 0.6]],
        "eval_loss": [[10, 1.4], [20, 1.6]],
    }
    assert sft["best_step"] == 10 and sft["settings"] == {"model": "smollm2"} and sft["changes"] == []
    assert course("half")["curves"] == {"loss": [[1, 3.0], [2, 2.5]]}
    changes = {each["figure"]: (each["of"], each["before"], each["after"]) for each in course("tuned")["changes"]}
    assert changes == {"f1": ("held-out", 0.5, 0.75), "refused_answerable": ("held-out", 0.25, 0.25)}


def test_no_name_gives_access_to_files_outside_the_folder(operator_server: Running, runs: Path) -> None:
    linked = operator_server.get("/v1/runs/course?name=linked", headers=OPERATOR_HEADERS).json()
    assert linked["curves"] == {}, "a log that links to a file outside the folder should not be read"
    for name in ("..", "../runs", "deep/../deep/sft", str(runs / "deep/sft"), "/etc"):
        refused = operator_server.get("/v1/runs/course", params={"name": name}, headers=OPERATOR_HEADERS)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_such_run"), name


@pytest.mark.long
def test_only_the_operator_can_see_runs(isles_and_hostile: Path, runs: Path, tmp_path: Path) -> None:
    key, text = make_key("reader", scopes=("read", "write", "metrics"))
    change_keys(tmp_path / "keys.json", lambda keys: [*keys, key])
    with serving(
        isles_and_hostile, None, api_key=KEY, keys=str(tmp_path / "keys.json"), show_runs=str(runs)
    ) as running:
        reader = {"Authorization": f"Bearer {text}"}
        for path in ("/v1/runs", "/v1/runs/course?name=tuned"):
            refused = running.get(path, headers=reader)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")
        assert [running.get("/ready", headers=each).json()["runs"] for each in (reader, OPERATOR_HEADERS)] == [
            False,
            True,
        ]
    with serving(isles_and_hostile, None) as running:
        assert running.get("/v1/runs").json()["error"]["code"] == "no_runs" and not running.get("/ready").json()["runs"]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_operator_opens_and_reads_a_run(operator_server: Running, visit: Visits, scheme: str, width: int) -> None:
    session = visit(operator_server, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = session.page
    page.wait_for_selector("#key-dialog[open]")
    page.fill("#key-field", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("#runs-link:not([hidden])")
    session.problems.clear()  # Chromium logs the 401.
    page.focus("#runs-link")
    page.keyboard.press("Enter")
    page.wait_for_selector("#view-runs .documents")
    assert "stopped at step 2 of 4" in page.inner_text("#view-runs")
    courses = HeldRequests(page, "**/v1/runs/course?*")
    page.focus("text=deep/sft")
    page.keyboard.press("Enter")
    courses.wait_for(1)
    page.evaluate("location.hash = '#runs'")
    page.wait_for_selector("#view-runs .documents")
    courses.answer(0)
    assert page.is_visible("#view-runs .documents"), "the run should not be shown in place of the list"
    courses.end()
    page.focus("text=deep/sft")
    page.keyboard.press("Enter")
    page.wait_for_selector(".charts svg polyline")
    assert page.locator(".charts figcaption li").all_inner_texts() == [
        "loss: from 2 to 0.75 at step 20",
        "eval_loss: from 1.4 to 1.6 at step 20",
        "eval_f1: from 0.8 to 0.6 at step 20",
    ]
    assert "checkpoint of step 10, by F1 on dev rows" in page.inner_text("#view-runs")
    page.click(".back")
    page.click("text=tuned")
    page.wait_for_selector(".changes")
    assert page.locator(".changes tbody tr").first.inner_text().split("\t") == ["f1, held-out", "0.5", "0.75"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [each["id"] for each in axe_violations(page)] == []

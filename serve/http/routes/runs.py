"""/v1/runs: training and evaluation runs below the folder given with --show-runs, only for the operator. A run is looked up by name:
no path is built from a request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from graph.errors import UserError
from graph.shared.runs import BeforeAfter, FoundRun, before_and_after, course_of, find_runs
from serve.http.errors import ApiError
from serve.http.keys import FULL_ACCESS, Access
from serve.server.services import Caller, Services

MAX_RUNS = 1000


class RunInfo(BaseModel):
    """A run: its name (the path below the folder), its `stage` (the kind of work: sft, tune, eval, …), its state and its latest figures.

    `ended` is when its record or its progress was last written (seconds since 1970). `step` of `steps` is the progress of an unfinished run,
    `seconds` the duration of a finished one.
    """

    name: str
    stage: str
    state: Literal["finished", "running", "stopped"]
    ended: float
    figures: dict[str, float]
    seconds: float | None
    step: int | None
    steps: int | None
    seconds_left: float | None


class Runs(BaseModel):
    """The runs, the latest first; `total` counts all runs below the folder."""

    total: int
    runs: list[RunInfo]


class Course(BaseModel):
    """The course of a run: its settings, its losses and dev figures as (step, value), the best checkpoint's step, and the figures before and after `tune`."""

    run: RunInfo
    settings: dict[str, Any]
    curves: dict[str, list[tuple[int, float]]]
    best_step: int | None
    changes: list[BeforeAfter]


def runs_router(services: Services) -> APIRouter:
    """The router of /v1/runs; its routes answer 403 to anyone but the operator, and if no folder of runs is set. UserError if the folder does not exist."""
    root = services.settings.show_runs
    if root is not None and not root.is_dir():
        raise UserError(f"{root}: no such folder", "a folder of runs", "check --show-runs")
    router = APIRouter(prefix="/v1/runs", tags=["runs"])

    def visible_runs(access: Access) -> list[FoundRun]:
        if access != FULL_ACCESS:
            raise ApiError(403, "not_allowed", "runs are shown to the operator's key only")
        if root is None:
            raise ApiError(403, "no_runs", "this server shows no runs: start it with --show-runs FOLDER")
        return sorted(find_runs(root), key=lambda run: -run.ended)

    @router.get("")
    def runs(access: Caller) -> Runs:
        """The runs below the server's folder of runs, with their state and figures."""
        listed = visible_runs(access)
        return Runs(total=len(listed), runs=[run_info(run) for run in listed[:MAX_RUNS]])

    @router.get("/course")
    def course(access: Caller, name: Annotated[str, Query(min_length=1, max_length=1000)]) -> Course:
        """One run by name: its settings, its curves, its best checkpoint, and its figures before and after `tune`."""
        run = next((each for each in visible_runs(access) if each.name == name), None)
        if run is None or root is None:
            raise ApiError(404, "no_such_run", f"there is no run {name[:80]!r}; GET /v1/runs lists the runs", "name")
        history = course_of(root, run)
        changes = before_and_after(root, run)
        curves = {each: list(points) for each, points in history.curves.items()}
        return Course(
            run=run_info(run), settings=dict(run.settings), curves=curves, best_step=history.best_step, changes=changes
        )

    return router


def run_info(run: FoundRun) -> RunInfo:
    """A run in the API's form."""
    return RunInfo.model_validate(run, from_attributes=True)

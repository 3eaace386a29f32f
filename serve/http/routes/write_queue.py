"""Those who change the index wait for one turn and have it together: however many come, the index is derived anew once a turn.

The turn is fair among servers and commands on the same index (graph/store/lock.py). It is waited for in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from graph.build.edit import Edit, Edited, edit_index
from graph.store.lock import IndexBusy
from serve.engines import open_model
from serve.http.shared.errors import ApiError
from serve.live_index import LiveIndex

RETRY_AFTER_S = 10


@dataclass(frozen=True)
class _Job:
    edit: Edit
    done: Future[Edited] = field(default_factory=Future)


class WriteQueue:
    """The line of those who want to change the index of `live`; who has waited for `wait_s` in vain is sent away."""

    def __init__(self, live: LiveIndex, wait_s: float) -> None:
        self._live, self._wait_s = live, wait_s
        self._waiting: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, "writing")

    async def write(self, edit: Edit) -> Edited:
        """Do the edit, and take the changed index into use; ApiError 409 when its turn did not come in time.

        One that is cancelled before its turn is not done.
        """
        job = _Job(edit)
        self._waiting.append(job)
        self._thread.submit(self._take_turn)
        done = asyncio.wrap_future(job.done)
        try:
            await asyncio.wait({done}, timeout=self._wait_s)
            if not done.done() and job.done.cancel():
                raise ApiError(
                    409,
                    "being_written",
                    f"the index has been written by others for {self._wait_s:g} s; try again when that is done",
                    headers={"Retry-After": str(RETRY_AFTER_S)},
                )
            edited = await done
        finally:
            job.done.cancel()
        await self._live.refresh()
        return edited

    def _take_turn(self) -> None:
        """Wait for the turn, and do what waits when it comes."""
        jobs: list[_Job] = []

        def take() -> Sequence[Edit]:
            while self._waiting:
                job = self._waiting.popleft()
                if job.done.set_running_or_notify_cancel():
                    jobs.append(job)
            return [job.edit for job in jobs]

        if self._nobody_waits():
            return
        try:
            live = self._live
            done = edit_index(live.folder, take, live.open_encoder, open_model, give_up=self._nobody_waits)
        except IndexBusy:
            return
        except Exception as problem:  # noqa: BLE001  (it is theirs who wait for it)
            take()
            for job in jobs:
                job.done.set_exception(problem)
        else:
            for job, edited in zip(jobs, done, strict=True):
                job.done.set_result(edited)

    def _nobody_waits(self) -> bool:
        return all(job.done.cancelled() for job in self._waiting.copy())

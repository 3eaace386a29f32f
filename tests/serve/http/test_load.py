"""Far more requests than the server accepts: all are answered or refused. If MODEGRAPH_TIMES is set, answers must be in time, and refusals immediate."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes import chat_server
from tests.serve.http.running import serving

CAPACITY, QUEUE, CONCURRENT = 8, 4, 400
TIMED = bool(os.environ.get("MODEGRAPH_TIMES"))
MIN_REPLY_S, MAX_REPLY_S = (0.4, 1.2) if TIMED else (0.1, 0.3)
CLIENT = Path(__file__).with_name("load_client.py")


def p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def ask(url: str, concurrent: int) -> list[tuple[int, float]]:
    """Status and seconds of `concurrent` simultaneous requests, sent by a client in a separate process."""
    client = subprocess.run(
        [sys.executable, str(CLIENT), url, str(concurrent)], capture_output=True, text=True, timeout=120, check=True
    )
    return [(int(status), float(seconds)) for status, seconds in json.loads(client.stdout)]


@pytest.mark.slow
def test_of_400_requests_at_a_capacity_of_8_all_are_answered_or_refused(shared_isles: Path) -> None:
    def reply(body: dict, number: int) -> str:  # type: ignore[type-arg]
        time.sleep(MIN_REPLY_S + (MAX_REPLY_S - MIN_REPLY_S) * (number % CAPACITY) / (CAPACITY - 1))
        return "So [1]."

    with (
        chat_server(reply) as upstream,
        serving(shared_isles, f"openai:tiny@{upstream.url}", capacity=CAPACITY, queue=QUEUE) as running,
    ):
        ask(running.url, CAPACITY)
        at_capacity = [seconds for _ in range(3) for _, seconds in ask(running.url, CAPACITY)] if TIMED else []
        found = ask(running.url, CONCURRENT)
        assert upstream.max_running <= CAPACITY
    served = [seconds for status, seconds in found if status == 200]
    refused = [seconds for status, seconds in found if status in (429, 503)]
    assert len(served) + len(refused) == CONCURRENT and len(served) >= CAPACITY + QUEUE
    if TIMED:
        print(
            f"served {len(served)}, p95 {p95(served):.3f} s (at capacity {p95(at_capacity):.3f} s); "
            f"refused {len(refused)}, slowest {1000 * max(refused):.0f} ms"
        )
        assert p95(served) <= 2 * p95(at_capacity) and max(refused) < 0.1

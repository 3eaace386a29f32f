"""A check of how processor time grows with the size of the input."""

import gc
import time
from collections.abc import Callable

ROUNDS = 3
MIN_SECONDS = 0.01
"""A call is repeated until the repeats together take this long, so that the inaccuracy of the clock does not hide growth."""


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Check that eight times `size` takes less than twenty times the processor time.

    `prepare` makes an input of the given size and returns the call to be timed. The fastest of three rounds counts; the garbage collector is off.
    """
    gc.disable()
    try:
        call = prepare(size)
        once = min(_seconds(call, 1) for _ in range(ROUNDS))  # the first call also warms up caches
        repeats = 1 + int(MIN_SECONDS / max(once, 1e-6))
        small = min(_seconds(call, repeats) for _ in range(ROUNDS))
        large_call, rounds = prepare(8 * size), []
        while len(rounds) < ROUNDS:
            rounds.append(_seconds(large_call, repeats))
            if rounds[-1] < 20 * small:
                return
    finally:
        gc.enable()
    times = f"size {size}: {small:.4f} s, size {8 * size}: {min(rounds):.4f} s"
    raise AssertionError(f"{repeats} calls each, {times}; expected less than 20 times as long")


def _seconds(call: Callable[[], object], repeats: int) -> float:
    start_s = time.process_time()
    for _ in range(repeats):
        call()
    return time.process_time() - start_s

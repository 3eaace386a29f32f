"""A check of how processor time grows with the size of the input."""

import gc
import time
from collections.abc import Callable

LEAST_S = 0.01
"""A call is repeated until it takes this long, so that the clock's own error does not hide growth."""


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Check that eight times `size` takes less than twenty times the processor time.

    `prepare` makes an input of the given size and returns the call to be timed. The fastest of three rounds counts, without the garbage collector.
    """
    call = prepare(size)
    repeats = 1 + int(LEAST_S / max(_seconds(call, 1), 1e-6))
    small, large = _seconds(call, repeats), _seconds(prepare(8 * size), repeats)
    assert large < 20 * small, f"{repeats} × {size}: {small:.4f} s, {8 * size}: {large:.4f} s"


def _seconds(call: Callable[[], object], repeats: int) -> float:
    rounds = []
    for _ in range(3):
        gc.collect()
        gc.disable()
        try:
            start_s = time.process_time()
            for _ in range(repeats):
                call()
            rounds.append(time.process_time() - start_s)
        finally:
            gc.enable()
    return min(rounds)

"""How work grows with its input."""

import gc
import time
from collections.abc import Callable


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Eight times `size` takes less than twenty times the processor's time.

    `prepare` makes the input of a size and returns the call to be timed. The least of three rounds counts, without the garbage collector.
    """

    def seconds(of_size: int) -> float:
        call = prepare(of_size)
        rounds = []
        for _ in range(3):
            gc.collect()
            gc.disable()
            try:
                began = time.process_time()
                call()
                rounds.append(time.process_time() - began)
            finally:
                gc.enable()
        return min(rounds)

    small, large = seconds(size), seconds(8 * size)
    assert large < 20 * small + 0.05, f"{size}: {small:.4f} s, {8 * size}: {large:.4f} s"

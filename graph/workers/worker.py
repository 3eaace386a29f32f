"""What lives in a worker of a Ray cluster: functions by their hash, kept from batch to batch, with the models that they opened.

Ray carries this file's class by value, so it imports nothing of ours before its search path is in order.
"""

import errno
import pickle
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says when a disk, somebody's share of it or a file takes no more."""


class Worker:
    """One process. `unwanted` are folders that Ray put on its search path and the command's own process does not have there."""

    def __init__(self, unwanted: Collection[str]) -> None:
        sys.path[:] = [folder for folder in sys.path if folder not in unwanted]
        self._functions: dict[str, Callable[[Any], Any]] = {}

    def greet(self) -> tuple[str, str]:
        """The name of this machine and the hash of our code on it."""
        from graph.workers.code import code_hash

        return socket.gethostname(), code_hash()

    def run(self, key: str, function: Sequence[Any], batch: Any) -> Any:
        """The function of that hash, on a batch; `function` holds a reference to its bytes, which are fetched once. UserError where the disk is full."""
        import ray

        from graph.shared.errors import UserError

        if key not in self._functions:
            self._functions[key] = pickle.loads(ray.get(function[0]))
        try:
            return self._functions[key](batch)
        except OSError as problem:
            if problem.errno not in FULL:
                raise
            remedy = "make room there; nothing that came back is lost"
            raise UserError(f"worker on {socket.gethostname()}: {problem}", "a disk with room", remedy) from None

"""The actor of a Ray cluster, which caches functions by their hash, with the models that they opened, from one batch to the next.

Ray pickles this file's class by value, so the class imports modegraph's modules only after it has set the process's search path.
"""

import pickle
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import Any


class Worker:
    """One process, whose threads run batches. `unwanted` are folders that Ray added to its search path but that the command's process does not search."""

    def __init__(self, unwanted: Collection[str]) -> None:
        sys.path[:] = [folder for folder in sys.path if folder not in unwanted]
        self._functions: dict[str, Callable[[Any], Any]] = {}
        self._fetching = Lock()

    def greet(self) -> tuple[str, str]:
        """The name of this machine and the hash of modegraph's code on it."""
        from graph.shared.home import code_hash

        return socket.gethostname(), code_hash()

    def run(self, key: str, function: Sequence[Any], batch: Any) -> Any:
        """Apply the function with hash `key` to a batch; `function` contains a reference to its bytes, which are fetched once.

        DiskFull if this machine's disk is full.
        """
        import ray

        from graph.shared.disk import report_full_disk

        with self._fetching:
            if key not in self._functions:
                self._functions[key] = pickle.loads(ray.get(function[0]))
        with report_full_disk(f"worker on {socket.gethostname()}"):
            return self._functions[key](batch)

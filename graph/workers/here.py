"""The plainest place to work: this process."""

from collections.abc import Callable, Iterable, Iterator

from graph.shared.types import Needs, R, T


class ThisProcess:
    """The Workers of one process: one batch after the other, each when its result is asked for."""

    models = 1

    def map(self, function: Callable[[T], R], batches: Iterable[T], needs: Needs = "code") -> Iterator[R]:
        """The builtin."""
        del needs
        return map(function, batches)


THIS_PROCESS = ThisProcess()

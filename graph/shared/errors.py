"""The one error that a user can fix; every folder raises it, the command line prints it as a single line."""

import copyreg
from typing import Any

from graph.shared.redact import redact


class UserError(Exception):
    """Bad input, told as: what was found (with the value, unless it is a secret), what was expected, what to do.

    >>> str(UserError("corpus.jsonl line 3: 'text' is missing", "every row needs an id and a text", "add the field"))
    "corpus.jsonl line 3: 'text' is missing; every row needs an id and a text; add the field"
    """

    def __init__(self, found: str, expected: str, remedy: str) -> None:
        super().__init__(redact("; ".join(part.rstrip(".; ") for part in (found, expected, remedy) if part)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it says, since an error may come from another process."""
        return copyreg.__newobj__, (type(self), str(self))  # type: ignore[attr-defined]


class Unavailable(UserError):
    """What the operator's machines do not give now, whoever asks: a database that is away or refuses. A server tells its clients no more of it."""


class DiskFull(Unavailable):
    """A disk takes no more: that of an index, or of a worker that makes one."""

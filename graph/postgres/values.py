"""Values as PostgreSQL takes them: texts without NUL, which it cannot hold, and vectors in halves.

Legend: N rows, D dimensions.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from psycopg.adapt import Dumper
from psycopg.pq import Format

from graph.store.vectors.matrix import Rows

ROWS_AT_ONCE = 8_192
_NULL_IN_JSON = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_INSTEAD = "\ufffd"


def storable(text: str) -> str:
    """The text with U+FFFD for NUL, which PostgreSQL cannot hold."""
    return text.replace("\0", _INSTEAD)


def storable_key(key: str) -> str:
    """The same of a key, with a number, so that different keys stay different.

    >>> storable_key("a\\x00b")
    'a\ufffd0;b'
    """
    return key.replace("\0", f"{_INSTEAD}0;")


def storable_json(text: str) -> Any:
    """The value of a JSON text, as jsonb can hold it.

    >>> storable_json('{"a": "x\\\\u0000", "b": "\\\\\\\\u0000"}')
    {'a': 'x\ufffd', 'b': '\\\\u0000'}
    """
    return json.loads(_NULL_IN_JSON.sub(rf"\1{_INSTEAD}", text))


def halfvecs(vectors_ND: Rows) -> Iterator[bytes]:
    """Each vector as pgvector's halfvec goes over the wire: D and 0 in 16 bits each, then D halves, all big-endian."""
    head = np.array([vectors_ND.shape[1], 0], ">u2").tobytes()
    for start in range(0, len(vectors_ND), ROWS_AT_ONCE):
        for half_D in np.asarray(vectors_ND[start : start + ROWS_AT_ONCE]).astype(">f2"):
            yield head + half_D.tobytes()


def halfvec_dumper(number: int) -> type[Dumper]:
    """What `halfvecs` made, handed on as it is; `number` is the type's in this database."""

    class HalfvecDumper(Dumper):
        oid = number
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    return HalfvecDumper

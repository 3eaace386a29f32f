"""Who changed what: one line of JSON for each attempt to add or delete documents, on disk before its caller is answered."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from graph.shared.errors import UserError


class AuditLog:
    """Appends to a file; to none where there is no file."""

    def __init__(self, file: Path | None) -> None:
        try:
            self._file = file.open("a", encoding="ascii") if file is not None else None
        except OSError as problem:
            raise UserError(f"{file}: {problem.strerror}", "a file that can be written", "check --audit-log") from None

    def close(self) -> None:
        """Nothing more is written."""
        if self._file is not None:
            self._file.close()

    def record(self, key: str, key_id: str, collection: str, action: str, sources: Sequence[str], outcome: str) -> None:
        """Say what a key did, or tried to: `outcome` is "done" or the code of what it was told."""
        if self._file is None:
            return
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "key": key,
            "key_id": key_id,
            "collection": collection,
            "action": action,
            "sources": list(sources),
            "outcome": outcome,
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

"""What several `train` commands do: settings from file and options, the record of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph.shared.console import print_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from graph.shared.config import S


def settings_of(kind: type[S], config: Path | None, overrides: list[str] | None, **given: Any) -> S:
    """The settings in `config`, under those of `--set`, under the command's own options that were given (paths as text)."""
    from graph.shared.config import load_settings

    named = [
        f"{key}={json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in given.items()
        if value is not None
    ]
    return load_settings(kind, config, [*(overrides or []), *named])


def print_record(output: str, record: DataclassInstance) -> None:
    """A finished run as one JSON object."""
    from dataclasses import asdict

    print_json({"output": output, **asdict(record)})

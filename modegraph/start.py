"""Runs before any of modegraph's packages is imported: checks that Python finds modegraph's own folders, and quiets libraries."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

FOLDERS = ("graph", "serve", "data_synth", "train", "eval")
QUIET = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


def hidden_folder_message() -> str:
    """An error message about the file that hides one of modegraph's folders (such as a user's own train.py); "" if no folder is hidden."""
    home = Path(__file__).resolve().parents[1]
    for name in FOLDERS:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found != home / name / "__init__.py":
            return (
                f"modegraph: 'import {name}' finds {found}; expected modegraph's own folder {home / name}; "
                f"rename that file, or start from another folder or with `python -P`"
            )
    return ""


def quiet_libraries() -> None:
    """Turn off libraries' telemetry and unhelpful hints; variables set in the environment take precedence."""
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)

    from graph.shared.hub import quiet_bitsandbytes

    quiet_bitsandbytes()

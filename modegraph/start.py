"""What must hold before anything of ours is imported: our folders are the ones that Python finds, and libraries are quiet."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

FOLDERS = ("graph", "serve", "data_synth", "train", "eval")
QUIET = {"HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


def hidden_folder() -> str:
    """A line naming the file that hides one of our folders (a user's own train.py, say); "" when none does."""
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
    """No telemetry of the libraries, and no hints that tell a user nothing; what the environment says goes before."""
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)

    from graph.shared.hub import quiet_bitsandbytes

    quiet_bitsandbytes()

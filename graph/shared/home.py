"""Where the packages lie, and where the user's cache is."""

import os
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]


def user_cache() -> Path:
    """The user's cache for modegraph: below XDG_CACHE_HOME, or ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(given) if Path(given).is_absolute() else Path("~/.cache").expanduser()
    return root / "modegraph"

"""Folders that tests use."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
DATA = Path(os.environ.get("MODEGRAPH_DATA", ROOT.parent / "shared" / "data"))
"""Folder of public data sets; tests that need a set are skipped if it is missing."""

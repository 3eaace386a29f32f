"""Folders that tests use."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
DATA = Path(os.environ.get("MODEGRAPH_DATA", ROOT.parent / "shared" / "data"))
"""Folder of public datasets; tests that need a missing dataset are skipped."""

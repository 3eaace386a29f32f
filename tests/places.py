"""Where things are."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
DATA = Path(os.environ.get("MODEGRAPH_DATA", ROOT.parent / "shared" / "data"))
"""Public data sets, if somebody has put them there: tests that need one are skipped without it."""

"""Writes labelled rows to a folder in the layout of `synth relevance`."""

import json
from pathlib import Path
from typing import Any

from graph.documents.questions import SPLITS

ENCODER = "encoder-of-the-small-world"


def write_rows(folder: Path, rows: list[dict[str, Any]], encoder: str | None = ENCODER, **origin: str) -> Path:
    """Create a folder with a file for each split that has rows, and a summary with the `origin` and, unless it is None, the encoder."""
    folder.mkdir(parents=True)
    for split in SPLITS:
        lines = [json.dumps(row) for row in rows if row["split"] == split]
        if lines:
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    facts = {"Index": "world", **origin} | ({"Encoder": encoder} if encoder is not None else {})
    (folder / "summary.json").write_text(json.dumps({"made_by": "modegraph", "origin": facts}))
    return folder

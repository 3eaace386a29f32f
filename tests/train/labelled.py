"""Labelled rows on disk, as `synth relevance` lays them out."""

import json
from pathlib import Path
from typing import Any

from graph.documents.questions import SPLITS

ENCODER = "encoder-of-the-small-world"


def write_rows(folder: Path, rows: list[dict[str, Any]], encoder: str | None = ENCODER, **origin: str) -> Path:
    """A new folder with a file for each split that has rows, and a summary that names the encoder, if there is one, and the `origin`."""
    folder.mkdir(parents=True)
    for split in SPLITS:
        lines = [json.dumps(row) for row in rows if row["split"] == split]
        if lines:
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    facts = {"Index": "world", **origin} | ({"Encoder": encoder} if encoder is not None else {})
    (folder / "summary.json").write_text(json.dumps({"made_by": "modegraph", "origin": facts}))
    return folder

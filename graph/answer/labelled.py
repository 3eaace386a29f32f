"""Labelled sentences, as in public datasets of supported and unsupported sentences: each row has passages, a sentence, and whether the passages support it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graph.answer.support import claim_of
from graph.errors import UserError

ROW = '"passages" (a list of strings), "sentence" (a string) and "supported" (true or false); "question", "kind", "split" and "id" are optional'


@dataclass(frozen=True)
class SupportRow:
    """Passages, a claim, and whether the passages support the claim."""

    passages: tuple[str, ...]
    claim: str
    supported: bool
    kind: str = ""
    split: str = ""
    id: str = ""


def support_row(row: Mapping[str, Any], where: str) -> SupportRow:
    """Parse a row; a short sentence is joined to its question (`claim_of`). UserError naming `where` for a malformed row."""
    passages, sentence, question = row.get("passages"), row.get("sentence"), row.get("question")
    texts = [text for text in passages if isinstance(text, str)] if isinstance(passages, list) else []
    if texts != passages or not isinstance(sentence, str) or not isinstance(row.get("supported"), bool):
        raise UserError(f"{where}: not a labelled sentence", ROW, "fix the row")
    claim = claim_of(sentence, question if isinstance(question, str) else "")
    kind, split, row_id = (str(row.get(name) or "") for name in ("kind", "split", "id"))
    return SupportRow(tuple(texts), claim, row["supported"], kind, split, row_id)

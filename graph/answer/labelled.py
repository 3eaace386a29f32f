"""Labelled sentences: rows of passages, a sentence and whether the passages say it, as public sets of support have
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graph.answer.support import claim_of
from graph.errors import UserError

ROW = '"passages" (texts), "sentence" (a text) and "supported" (true or false); "question", "kind" and "split" where there are any'


@dataclass(frozen=True)
class SupportRow:
    """A claim over passages, and whether these say it."""

    passages: tuple[str, ...]
    claim: str
    supported: bool
    kind: str = ""
    split: str = ""
    id: str = ""


def support_row(row: Mapping[str, Any], where: str) -> SupportRow:
    """A row as a file holds it, a short sentence behind its question (`claim_of`); UserError, naming `where`, for one
    of another form.
    """
    passages, sentence, question = row.get("passages"), row.get("sentence"), row.get("question")
    texts = [one for one in passages if isinstance(one, str)] if isinstance(passages, list) else []
    if texts != passages or not isinstance(sentence, str) or not isinstance(row.get("supported"), bool):
        raise UserError(f"{where}: no row of a labelled sentence", ROW, "fix the row")
    claim = claim_of(sentence, question if isinstance(question, str) else "")
    kind, split, own = (str(row.get(name) or "") for name in ("kind", "split", "id"))
    return SupportRow(tuple(texts), claim, row["supported"], kind, split, own)

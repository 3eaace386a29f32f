"""The noun of claims: a sentence, the passage that it is held against, and whether the passage says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from data_synth.forms import Form
from graph.documents.questions import SPLITS

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ClaimRow:
    """One claim. `kind` says how it was made: of a supported one the way it was restated, of another what was broken in it."""

    id: str
    title: str
    passage: str
    claim: str
    supported: bool
    kind: str
    split: str


def claim_from_json(row: Mapping[str, Any]) -> ClaimRow:
    """A row as a file holds it; KeyError for a missing key, TypeError for a value of another kind."""
    texts = {name: row[name] for name in ("id", "title", "passage", "claim", "kind", "split")}
    if not all(isinstance(value, str) for value in texts.values()) or not isinstance(row["supported"], bool):
        raise TypeError("texts, and `supported` true or false")
    return ClaimRow(**texts, supported=row["supported"])


def claim_schema() -> pa.Schema:
    """The columns, typed."""
    import pyarrow as pa

    columns = [(name, pa.string()) for name in ("id", "title", "passage", "claim")]
    return pa.schema([*columns, ("supported", pa.bool_()), ("kind", pa.string()), ("split", pa.string())])


def claim_problems(row: ClaimRow) -> list[str]:
    """What keeps a row from being learned from, in words; none for a good one."""
    problems = [f"the {name} is empty" for name in ("passage", "claim") if not getattr(row, name).strip()]
    if row.split not in SPLITS:
        problems.append(f"split is {row.split!r}, expected one of {', '.join(SPLITS)}")
    return problems


FORM: Form[ClaimRow] = Form(
    name="claims",
    title="Sentences that a passage supports, and broken ones",
    about=(
        "Each sentence of a passage, said otherwise (`supported`: true; `kind` says in which way), and the same with one thing changed so "
        "that the passage no longer says it (`supported`: false; `kind`: a name, a number, a negation, two roles swapped, an opposite). "
        "Rules made both; no model. All claims of a document are in one split. Train a verifier on them: `modegraph train verifier`."
    ),
    to_json=asdict,
    from_json=claim_from_json,
    schema=claim_schema,
    problems=claim_problems,
    counts=lambda row: {"claim": f"{'supported' if row.supported else 'broken'}, {row.kind}"},
    lengths=lambda row: {"claim": len(row.claim.split()), "passage": len(row.passage.split())},
    texts=lambda row: (row.passage, row.claim),
)

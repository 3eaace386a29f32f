"""Preference rows as a form: their columns, what is counted, and what is wrong with a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from data_synth.forms import Form
from data_synth.preferences.hard_negatives import INVENTED, REFUSED, UNSUPPORTED, WORSE, WRONG
from data_synth.preferences.reasons import normalise_answer
from data_synth.preferences.separation import measure_separation
from data_synth.types import PreferenceRow, plain_preference_to_json, preference_from_json, preference_to_json
from graph.documents.questions import SPLITS
from graph.prompt.answer import parse_answer
from graph.prompt.citations import check_citations
from graph.text.prompting import quote

if TYPE_CHECKING:
    import pyarrow as pa

ABOUT = """\
Pairs (prompt, chosen, rejected) over growing contexts, after GraphMPA §3.2.
Chosen: `###Reason: … ###Answer: …` with the gold answer, citing only passages that its prompt shows. Rejected: the gold answer
alone, or, in rows with a `hard_negative`, a reasoned answer: wrong or not supported by the context and of about the same length, a refusal, the answer that no
passage holds (chosen is "not in the documents" then), or one that readers found worse (of feedback; what is chosen there is what they found better,
and the only gold answer). The passages of a prompt are shuffled.
Gold passages that retrieval missed are not added; `gold_in_context` is the share of gold documents that a context quotes.
A reasoning written by a model is kept only if it has the form, ends in the gold answer (case and outer punctuation aside), is
supported by its context, does not copy the question and does not tell that the answer was given."""


def preference_problems(row: PreferenceRow) -> list[str]:
    """What keeps a pair from being learned from, in words; none for a good one."""
    problems = []
    if not row.prompt or row.prompt[-1].role != "user":
        problems.append("the prompt does not end with a user's turn")
    problems += [f"{side} is empty" for side, text in sides_of(row) if not text.strip()]
    if row.chosen == row.rejected:
        problems.append("chosen and rejected are the same text")
    if row.split not in SPLITS:
        problems.append(f"split is {row.split!r}, expected one of {', '.join(SPLITS)}")
    parsed = parse_answer(row.chosen)
    if not parsed.well_formed:
        problems.append("chosen is not of the form ###Reason: … ###Answer: …")
    if normalise_answer(parsed.answer) not in {normalise_answer(quote(answer)) for answer in row.answers}:
        problems.append(f"chosen answers {parsed.answer!r}, which is no gold answer")
    if (
        normalise_answer(parse_answer(row.rejected).answer) == normalise_answer(parsed.answer)
        and row.hard_negative == WRONG
    ):
        problems.append("the wrong answer of a hard negative is the chosen one")
    for side, text in sides_of(row):
        if missing := check_citations(text, row.context_size).removed:
            problems.append(f"{side} cites [{missing[0]}] of {row.context_size} passages")
        if "<|" in text:
            problems.append(f"{side} holds a special token")
    if len(row.context_ids) != row.context_size:
        problems.append(f"context_size is {row.context_size}, with {len(row.context_ids)} context_ids")
    if row.hard_negative not in ("", UNSUPPORTED, WRONG, REFUSED, WORSE, INVENTED):
        problems.append(f"unknown hard negative {row.hard_negative!r}")
    return problems


def sides_of(row: PreferenceRow) -> tuple[tuple[str, str], tuple[str, str]]:
    """Both sides with their names."""
    return ("chosen", row.chosen), ("rejected", row.rejected)


def preference_schema() -> pa.Schema:
    """The columns of `preference_to_json`, typed, so that an empty list in one file is still a list of strings."""
    import pyarrow as pa

    turns = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    return _schema(turns)


def plain_schema() -> pa.Schema:
    """The columns of `plain_preference_to_json`."""
    import pyarrow as pa

    return _schema(pa.string())


def _schema(text_kind: pa.DataType) -> pa.Schema:
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    kinds = {"prompt": text_kind, "chosen": text_kind, "rejected": text_kind, "answers": texts, "context_ids": texts}
    kinds |= {"context_size": pa.int32(), "gold_in_context": pa.float32(), "support": pa.float32()}
    names = [
        *("id", "prompt", "chosen", "rejected", "question_id", "question", "answers", "kind", "split"),
        *("context_size", "context_ids", "gold_in_context", "reasoner", "hard_negative", "support"),
    ]
    return pa.schema([(name, kinds.get(name, text)) for name in names])


def _counts(row: PreferenceRow) -> dict[str, str]:
    return {
        "kind of question": row.kind or "unspecified",
        "context size": str(row.context_size),
        "rejected side": row.hard_negative or "answer alone",
        "reasoner": row.reasoner,
    }


def _texts(row: PreferenceRow) -> Sequence[str]:
    return [*(turn.content for turn in row.prompt), row.chosen, row.rejected]


PREFERENCES: Form[PreferenceRow] = Form(
    name="preferences",
    title="Preference pairs",
    about=ABOUT,
    to_json=preference_to_json,
    from_json=preference_from_json,
    schema=preference_schema,
    problems=preference_problems,
    counts=_counts,
    lengths=lambda row: {side: len(text.split()) for side, text in sides_of(row)},
    texts=_texts,
    measures=measure_separation,
)
PLAIN_PREFERENCES = replace(PREFERENCES, to_json=plain_preference_to_json, schema=plain_schema)

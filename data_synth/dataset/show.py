"""Rows and summaries as a person at a terminal reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_synth.dataset.summary import Summary
from data_synth.dataset.write import CARD
from data_synth.forms import Form, R
from data_synth.types import Dropped


def show_rows(rows: Sequence[R | Dropped], form: Form[R]) -> str:
    """Each row's fields, one a line; a dropped one by its reason."""
    return "\n\n".join(f"dropped: {row.why}" if isinstance(row, Dropped) else _show_row(row, form) for row in rows)


def rows_to_json(rows: Sequence[R | Dropped], form: Form[R]) -> dict[str, Any]:
    """One object: the rows as a file holds them, and the reasons of what was dropped on the way."""
    return {
        "rows": [form.to_json(row) for row in rows if not isinstance(row, Dropped)],
        "dropped": [row.why for row in rows if isinstance(row, Dropped)],
    }


def show_summary(summary: Summary, out: Path) -> str:
    """A few lines: how many rows, where, how long, and what was lost."""
    lines = [f"{summary.rows:,} rows in {out} ({_counts(summary.by_split)})"]
    lines += [f"by {table}: {_counts(counts)}" for table, counts in summary.counts.items()]
    if summary.lengths:
        lines.append("mean words: " + ", ".join(f"{part} {words.mean}" for part, words in summary.lengths.items()))
    lines += [f"{what}: {value:g}" for what, value in summary.measures.items()]
    if summary.drops or summary.duplicates:
        lost = {**summary.drops, "exact duplicate": summary.duplicates}
        lines.append(f"left out: {_counts({why: count for why, count in lost.items() if count})}")
    return "\n".join([*lines, f"dataset card: {out / CARD}"])


def _show_row(row: R, form: Form[R]) -> str:
    """Texts that go over several lines (a prompt, say) stand under their name, the rest beside it."""
    lines = []
    for name, value in form.to_json(row).items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and "content" in value[0]:
            lines += [f"{name}:", *(f"  {turn['role']}: {turn['content']}" for turn in value)]
        elif isinstance(value, list) and any(isinstance(item, str) and " " in item for item in value):
            lines += [f"{name}:", *(f"  - {item}" for item in value)]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"

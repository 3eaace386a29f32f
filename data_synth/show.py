"""Rows and summaries as a person at a terminal reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_synth.summary import Summary
from data_synth.types import Dropped, PreferenceRow, preference_to_json
from data_synth.write import CARD


def show_rows(rows: Sequence[PreferenceRow | Dropped]) -> str:
    """Each row's prompt, chosen and rejected side; a dropped one by its reason."""
    return "\n\n".join(f"dropped: {row.why}" if isinstance(row, Dropped) else _show_row(row) for row in rows)


def rows_to_json(rows: Sequence[PreferenceRow | Dropped]) -> dict[str, Any]:
    """One object: the rows as a file holds them, and the reasons of what was dropped on the way."""
    return {
        "rows": [preference_to_json(row) for row in rows if isinstance(row, PreferenceRow)],
        "dropped": [row.why for row in rows if isinstance(row, Dropped)],
    }


def show_summary(summary: Summary, out: Path) -> str:
    """A few lines: how many rows, where, how long, and what was lost."""
    lines = [
        f"{summary.rows:,} pairs in {out} ({_counts(summary.by_split)})",
        f"by context size: {_counts(summary.by_context_size)}",
        f"mean words: chosen {summary.chosen_words.mean}, rejected {summary.rejected_words.mean}",
    ]
    if summary.drops or summary.duplicates:
        lost = {**summary.drops, "exact duplicate": summary.duplicates}
        lines.append(f"left out: {_counts({why: count for why, count in lost.items() if count})}")
    return "\n".join([*lines, f"dataset card: {out / CARD}"])


def _show_row(row: PreferenceRow) -> str:
    head = f"{row.id}  {row.split}  {row.context_size} excerpts  {row.gold_in_context:.0%} of the gold documents"
    return "\n".join([head, row.prompt[-1].content, f"chosen:   {row.chosen}", f"rejected: {row.rejected}"])


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"

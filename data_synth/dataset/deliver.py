"""The last step of every `synth` command: rows shown as a preview, or written, described and summed up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from data_synth.dataset.show import rows_to_json, show_rows, show_summary
from data_synth.dataset.summary import Summary
from data_synth.dataset.write import LEDGER, check_folder, write_dataset
from data_synth.forms import Form, R
from data_synth.types import Dropped
from graph.shared.console import print_json, say
from graph.shared.errors import UserError


def ledger_of(out: Path | None, preview: int | None) -> Path | None:
    """Where the calls of a run are kept: in the folder to write; a preview keeps none. UserError for no folder or a foreign one."""
    if preview is not None:
        return None
    if out is None:
        raise UserError("no --out", "a folder to write to", "give --out DIR, or --preview N to look at rows first")
    check_folder(out)
    return out / LEDGER


def deliver(
    rows: Iterable[R | Dropped],
    form: Form[R],
    origin: Mapping[str, str],
    out: Path | None,
    preview: int | None,
    as_json: bool,
    warnings_of: Callable[[Summary], Sequence[str]] = lambda summary: (),
    strict: bool = False,
) -> bool:
    """Show the first `preview` rows, or write all into `out`; False when more than half of the rows were lost.

    What `warnings_of` finds in the summary is shown; if it must be `strict`, it is a failure, too.
    """
    if preview is not None or out is None:
        first = list(islice(rows, preview))
        print_json(rows_to_json(first, form)) if as_json else print(show_rows(first, form))
        return True
    summary = write_dataset(out, rows, form, origin)
    print_json({"out": str(out), **asdict(summary)}) if as_json else print(show_summary(summary, out))
    if summary.mostly_lost:
        say(f"modegraph: {sum(summary.drops.values()):,} rows were dropped, only {summary.rows:,} kept; see {out}")
    warnings = warnings_of(summary)
    for warning in warnings:
        say(f"modegraph: warning: {warning}")
    return not summary.mostly_lost and not (strict and warnings)

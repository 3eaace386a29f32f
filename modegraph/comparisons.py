"""Comparison of runs on held-out data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eval.comparison
from eval.compare.compare import compare_runs
from eval.report import write_comparison
from eval.tables import Table, as_text, measure_table, tables_of
from graph.errors import UserError
from modegraph.arguments import FrameKind, frames_of, public_call
from modegraph.notebook import comparison_html
from modegraph.runs import Run
from serve.engines import open_model as open_engine


@dataclass(frozen=True, repr=False)
class Comparison(eval.comparison.Comparison):
    """Policies side by side: `measures` by policy, `differences` of the others from the first with their intervals, answers in `results`."""

    def tables(self) -> list[Table]:
        """The tables of the report."""
        return tables_of(self)

    def to_frames(self, kind: FrameKind = "pandas") -> dict[str, Any]:
        """Two tables: `measures` (one row per measure, one column per policy) and `differences` (each policy minus the first, with its interval)."""
        import pyarrow as pa

        means = [{"measure": m.name, **{name: m.mean(name) for name in m.values}} for m in self.measures]
        differences = [
            {"measure": measure, "policy": name, "mean": interval.mean, "low": interval.low, "high": interval.high}
            for measure, intervals in self.differences.items()
            for name, interval in intervals.items()
        ]
        policies = [result.policy.name for result in self.results]
        columns = pa.schema([("measure", pa.string()), *((name, pa.float64()) for name in policies)])
        tables = {
            "measures": pa.Table.from_pylist(means, columns),
            "differences": pa.Table.from_pylist(differences),
        }
        return frames_of(tables, kind)

    def write(self, out: str | Path) -> None:
        """Write the report of `modegraph compare` (HTML, Markdown, JSON, answers) into a folder, replacing its files."""
        write_comparison(self, Path(out))

    def __str__(self) -> str:
        return as_text(measure_table(self))

    def __repr__(self) -> str:
        names = ", ".join(result.policy.name for result in self.results)
        return f"Comparison({names}; {len(self.prompts)} prompts of {self.data!r}, {self.split})"

    def _repr_html_(self) -> str:
        return comparison_html(self.tables())


def compare(
    runs: Sequence[Run | str | Path],
    data: str | Path,
    *,
    split: str = "test",
    base: Run | str | None = None,
    context_sizes: Collection[int] = (),
    max_answer_tokens: int = 256,
    limit: int | None = None,
    seed: int = 0,
    answers_only: bool = False,
    out: str | Path | None = None,
    progress: bool = False,
) -> Comparison:
    """Compare runs, and the untuned model that they started from (`base`), on the held-out rows of the preference data in `data`.

    The options are those of `modegraph compare` with the same names; the report is only written if `out` is given. UserError for no runs, for a folder
    that is not a finished run, for a model given twice, for data without rows of this split or of these sizes, for rows that a run was trained on
    (unless the split is train), and if systems that are compared by seed have different seeds or more than 20.
    """
    if not runs:
        raise UserError("compare: no runs", "the folder of at least one run", "name the runs to compare")
    with public_call(progress):
        compared = compare_runs(
            [Path(str(run)) for run in runs],
            Path(data),
            open_engine,
            split=split,
            base=None if base is None else str(base),
            context_sizes=context_sizes,
            max_answer_tokens=max_answer_tokens,
            limit=limit,
            seed=seed,
            answers_only=answers_only,
        )
    comparison = Comparison(**vars(compared))
    if out is not None:
        comparison.write(out)
    return comparison

"""A comparison from run folders to its tables: what `modegraph compare` and Python's `compare` both call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from eval.alignment.report import align_runs, as_appendix
from eval.alignment.sample import SamplingSettings
from eval.compare.compare import compare
from eval.compare.policies import policies_of
from eval.compare.report import Appendix
from eval.shared.rows import read_rows, select_rows
from eval.shared.types import Comparison
from graph.shared.errors import UserError
from graph.shared.types import OpenModel
from train.model.models import load_policy
from train.shared.types import read_run


def compare_runs(
    runs: Sequence[Path],
    data: Path,
    open_model: OpenModel,
    *,
    split: str = "test",
    base: str | None = None,
    context_sizes: Collection[int] = (),
    max_answer_tokens: int = 256,
    limit: int | None = None,
    responses: Path | None = None,
    samples: int = 16,
    seed: int = 0,
    answers_only: bool = False,
) -> tuple[Comparison, Appendix | None]:
    """The runs and the model they grew from on held-out rows; with `responses`, reward, KL and entropy of the preference runs, too.

    `context_sizes` keeps only rows over so many excerpts; `answers_only` scores no pairs. UserError for what is no finished run and for data without such rows.
    """
    policies = policies_of(runs, base)
    rows = select_rows(read_rows(data, split), context_sizes, limit, seed)
    train_rows = read_rows(data, "train")
    comparison = compare(
        policies,
        rows,
        train_rows,
        open_model,
        load_policy,
        data=data,
        split=split,
        max_answer_tokens=max_answer_tokens,
        seed=seed,
        answers_only=answers_only,
    )
    if responses is None:
        return comparison, None
    drawing = SamplingSettings(samples, max_answer_tokens, seed)
    return comparison, as_appendix(align_runs(preference_runs(runs), responses, split, limit, drawing, load_policy))


def preference_runs(runs: Sequence[Path]) -> list[Path]:
    """Those of the runs that have a reference to be measured against; UserError when none has."""
    found = [run for run in runs if read_run(run).beta is not None]
    if not found:
        raise UserError("--responses without a preference run among --runs", "a run of train ms or dpo", "add one")
    return found

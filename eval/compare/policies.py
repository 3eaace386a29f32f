"""Which models a comparison holds: the runs as named by their folders, and the untuned model they grew from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eval.shared.types import Policy
from graph.shared.errors import UserError
from train.shared.types import RECORD, read_run

TUNED = ("sft", "ms", "dpo")


def policies_of(runs: Sequence[Path], base: str | None) -> list[Policy]:
    """The runs in the order given, then the untuned model: `base`, or else what the first run's chain started from.

    Raises UserError for a folder that is not a finished run, and for a model given twice.
    """
    policies = [_run_policy(folder, name) for folder, name in zip(runs, short_names(runs), strict=True)]
    untuned = base if base is not None else untuned_model(runs[0])
    sources = [*(Path(policy.source).resolve() for policy in policies), Path(untuned).resolve()]
    for source in sources:
        if sources.count(source) > 1:
            raise UserError(f"{source}: given twice", "runs and base that differ", "name each model once")
    return [*policies, Policy("untuned", untuned, record=None, reference="")]


def _run_policy(folder: Path, name: str) -> Policy:
    record = read_run(folder)
    return Policy(name, str(folder), record, record.base_model if record.beta is not None else "")


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, with as many parents as tell the folders apart; "untuned" is kept for the base.

    >>> short_names([Path("a/ms"), Path("b/ms")])
    ['a/ms', 'b/ms']
    """
    resolved = [folder.resolve() for folder in folders]
    deepest = max(len(folder.parts) for folder in resolved)
    for depth in range(1, deepest):
        names = ["/".join(folder.parts[-depth:]) for folder in resolved]
        if len(set(names)) == len(names) and "untuned" not in names:
            return names
    return [str(folder) for folder in resolved]


def untuned_model(run: Path) -> str:
    """Follow `base_model` back to the first model that is no fine-tuned run of ours: a hub name or a pretrained folder."""
    model, seen = str(run), set[Path]()
    while (Path(model) / RECORD).is_file() and (record := read_run(Path(model))).stage in TUNED:
        if Path(model).resolve() in seen:
            raise UserError(f"{model}: its base models run in a circle", "a chain of runs", "give --base")
        seen.add(Path(model).resolve())
        model = record.base_model
    return model

"""Finished training runs: a folder and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graph.shared.jsonl import read_jsonl
from graph.shared.runs import LOG
from modegraph.notebook import run_html
from train.run.record import RunRecord, read_run

if TYPE_CHECKING:
    from train.selector.hop import HopRecord
    from train.selector.selector_data import SelectorRecord
    from train.verifier import VerifierRecord

Record: TypeAlias = "RunRecord | SelectorRecord | HopRecord | VerifierRecord"


@dataclass(frozen=True, repr=False)
class Run:
    """The result of a training function: `folder`, and `record`, which describes the training (a JSON file in the folder)."""

    folder: Path
    record: Record
    stage: str

    @property
    def settings(self) -> Mapping[str, Any]:
        """All settings of the run."""
        return self.record.settings

    @property
    def metrics(self) -> Mapping[str, float]:
        """The figures of the run by name."""
        return self.record.metrics if isinstance(self.record, RunRecord) else self.record.figures

    def log(self) -> list[dict[str, Any]]:
        """The training log, one row per logged step and, with `eval_steps`, one per measurement; empty for runs without steps."""
        file = self.folder / LOG
        return [row for _, row in read_jsonl(file)] if file.exists() else []

    def __str__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.stage}, {self.record.train_seconds:.1f} s)"

    def _repr_html_(self) -> str:
        return run_html(str(self.folder), self.stage, self.settings, self.metrics, self.record.train_seconds)


def open_run(folder: str | Path) -> Run:
    """The finished training run of a language model in `folder`; UserError when there is none."""
    record = read_run(Path(folder))
    return Run(Path(folder), record, record.stage)

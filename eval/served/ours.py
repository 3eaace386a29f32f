"""The run's own side: what it says along given tokens, as trained, without its adapter, and with its adapter twice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from eval.served.types import How
from graph.checkpoints.adapter import is_adapter
from train.export.conversations import Along, along
from train.model.logps import TokenizedRow
from train.model.models import device, load_model, load_tokenizer
from train.shared.types import RunRecord


class Policy:
    """The model of a run; what it said of a row is kept."""

    def __init__(self, run: Path, record: RunRecord) -> None:
        settings = record.settings
        precision, quantisation = settings.get("precision", "float32"), settings.get("quantise", "none")
        self.has_adapter = is_adapter(str(run))
        self.tokenizer = load_tokenizer(str(run))
        self._model = load_model(str(run), precision, quantisation=quantisation).to(device()).eval()
        self._said: dict[tuple[TokenizedRow, How], Along] = {}

    def along(self, rows: Sequence[TokenizedRow], how: How) -> list[Along]:
        """What the model says of each row's completion; without an adapter, `how` makes no difference."""
        for row in rows:
            if (row, how) not in self._said:
                with self._as(how):
                    self._said[row, how] = along(self._model, row)
        return [self._said[row, how] for row in rows]

    def _as(self, how: How) -> Any:
        if how == "trained" or not self.has_adapter:
            return nullcontext()
        if how == "bare":
            return self._model.disable_adapter()
        from peft.helpers import rescale_adapter_scale

        return rescale_adapter_scale(self._model, 2.0)

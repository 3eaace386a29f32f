"""The nouns of training: what a finished run leaves behind, for serving, comparing and publishing.

A run folder holds the adapter or the model and its tokenizer as transformers saves them, `run.json` (this record),
`settings.yaml` (the resolved settings), `log.jsonl` (one row a logged step) and `README.md` (the model card).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from graph.shared.errors import UserError
from graph.shared.types import AnswerForm

Stage = Literal["tiny", "sft", "ms", "dpo", "reward"]
RECORD = "run.json"


@dataclass(frozen=True)
class Alignment:
    """What a claim about preference training must name: β_π, K, and β_r of scored responses or ε of mode-seeking pairs.

    All None for a stage without preferences.
    """

    beta: float | None = None
    responses_per_prompt: int | None = None
    beta_reward: float | None = None
    label_smoothing: float | None = None


@dataclass(frozen=True)
class RunRecord:
    """How a run came to be. `base_model` is what its weights or adapter started from; `data` the folder it learned from.

    `base_weights` is the fingerprint of the whole model below the adapter, or that the run started from ("" for none);
    `data_fingerprint` is that of the rows it learned from ("" for documents, and in records from before it was taken); `answer_form` that of the
    answers that its prompts ask for.

    The fields of `Alignment` are None for stages without preferences, or where they do not apply.
    """

    stage: Stage
    base_model: str
    base_weights: str
    data: str
    beta: float | None
    beta_reward: float | None
    label_smoothing: float | None
    responses_per_prompt: int | None
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    train_seconds: float
    device: str
    versions: Mapping[str, str]
    data_fingerprint: str = ""
    answer_form: AnswerForm = "reasoned"


def write_run(folder: Path, record: RunRecord) -> None:
    """Save the record as the last file of a run: a folder without it is not a finished run."""
    partial = folder / (RECORD + ".partial")
    partial.write_text(json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(folder / RECORD)


def read_run(folder: Path) -> RunRecord:
    """The record of a finished run; UserError when `folder` is not one."""
    try:
        return RunRecord(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder}: no {RECORD}", "the folder of a finished training run", "check the path") from None
    except (ValueError, TypeError) as problem:
        raise UserError(
            f"{folder / RECORD}: not a run record ({problem})", "the file as saved", "train again"
        ) from None

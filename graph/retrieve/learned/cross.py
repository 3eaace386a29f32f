"""A cross selector at query time: a light one first, then a cross-encoder reads the question beside the propositions it ranks best.

`modegraph train selector --size cross` writes the folder: the light selector's file, the cross-encoder's folder, and the blend of
their logits. `open_trained` tells the two sizes apart by these files; what retrieval asks of either is `judge`.

Legend: n candidates, r of them read by the cross-encoder, F features.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graph.errors import UserError
from graph.index.index import Index
from graph.models.encoder import find_model
from graph.retrieve.learned.light import Classifier, QuestionView, check_same_encoder, measure, open_selector
from graph.retrieve.learned.rerank import BATCH_SIZE, ScoreTexts
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.ranking import top_rows
from graph.shared.jsonl import write_json
from graph.trees import forest_logits, probabilities
from graph.types import Floats, Ints

CROSS_FILE, CROSS_FOLDER, WEIGHTS = "cross.json", "cross", "model.safetensors"
FORMAT = "modegraph selector, cross, 1"
Doubles = NDArray[np.float64]
_loading = Lock()


@dataclass(frozen=True)
class Blend:
    """The logit of a proposition that was read is light + weight · cross + base. `depth` propositions of a question are read.

    A proposition is relevant where its probability, read or not, reaches `threshold`.
    """

    weight: float
    base: float
    temperature: float
    threshold: float
    depth: int


@dataclass(frozen=True)
class Cross:
    """A light selector, the cross-encoder's logits of (question, texts), and their blend."""

    light: Classifier
    score: ScoreTexts
    blend: Blend


TrainedSelector = Classifier | Cross
"""What `--selector FOLDER` opens."""


class _BlendFile(BaseModel):
    """CROSS_FILE as it must be."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    format: Literal["modegraph selector, cross, 1"]
    weight: float
    base: float
    temperature: float = Field(gt=0)
    threshold: float = Field(ge=0, le=1)
    depth: int = Field(ge=1)


def judge(selector: TrainedSelector, index: Index, query: Query, view: QuestionView, rows_n: Ints) -> Doubles:
    """The probability of each proposition to be relevant: [n]. UserError for an index of another encoder."""
    light = selector if isinstance(selector, Classifier) else selector.light
    check_same_encoder(light, index)
    light_n = forest_logits(light.forest, measure(index, query, view, rows_n))
    if isinstance(selector, Classifier):
        return probabilities(light_n, light.temperature)
    read_r = most_promising(light_n, selector.blend.depth)
    texts = [index.data.proposition_texts[row] for row in rows_n[read_r]]
    cross_r = selector.score(query.text, texts) if texts else np.zeros(0, np.float32)
    odds_n = blended_log_odds(light_n, light.temperature, read_r, cross_r.astype(np.float64), selector.blend)
    return probabilities(odds_n, 1.0)


def threshold_of(selector: TrainedSelector) -> float:
    """The probability from which on a proposition is relevant."""
    return selector.threshold if isinstance(selector, Classifier) else selector.blend.threshold


def most_promising(light_n: Doubles, depth: int) -> Ints:
    """The places that are read: the `depth` highest logits, best first, ties by place."""
    return top_rows(light_n.astype(np.float32), depth)


def blended_log_odds(
    light_n: Doubles, light_temperature: float, read_r: Ints, cross_r: Doubles, blend: Blend
) -> Doubles:
    """(light + weight · cross + base) / temperature where the cross-encoder has read, the light selector's own elsewhere: [n].

    >>> blend = Blend(weight=2.0, base=-1.0, temperature=0.5, threshold=0.5, depth=1)
    >>> blended_log_odds(np.array([1.0, 1.0]), 4.0, np.array([1]), np.array([3.0]), blend).tolist()
    [0.25, 12.0]
    """
    odds_n = light_n / light_temperature
    odds_n[read_r] = (light_n[read_r] + blend.weight * cross_r + blend.base) / blend.temperature
    return odds_n


def open_trained_selector(spec: str) -> TrainedSelector:
    """The selector in a folder or on the hub, of either size; UserError for anything else."""
    folder = find_model(spec, "selector")
    light = open_selector(str(folder))
    if not (folder / CROSS_FILE).is_file():
        return light
    return Cross(light, open_cross_encoder(folder), read_blend(folder / CROSS_FILE))


def save_blend(folder: Path, blend: Blend) -> None:
    """Write CROSS_FILE into `folder`."""
    write_json(folder / CROSS_FILE, {"format": FORMAT, **asdict(blend)})


def read_blend(file: Path) -> Blend:
    """The inverse of `save_blend`; UserError for a file that is not what it writes."""
    try:
        read = _BlendFile.model_validate_json(file.read_bytes())
    except ValidationError as problems:
        problem = problems.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise UserError(
            f"{file}: {where}: {problem['msg']}", "the file as it was saved", "train the selector again"
        ) from None
    return Blend(read.weight, read.base, read.temperature, read.threshold, read.depth)


def open_cross_encoder(folder: Path) -> ScoreTexts:
    """The cross-encoder of a selector's folder, loaded once as long as its weights stay the same. UserError when it is broken."""
    weights = folder / CROSS_FOLDER / WEIGHTS
    if not weights.is_file():
        raise UserError(
            f"{folder}: no {CROSS_FOLDER}/{WEIGHTS}", "the folder as it was saved", "train the selector again"
        )
    with _loading:
        return _load_cross_encoder(folder / CROSS_FOLDER, weights.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _load_cross_encoder(folder: Path, changed_ns: int) -> ScoreTexts:
    del changed_ns
    import torch
    from safetensors import SafetensorError

    from graph.retrieve.learned.maxsim import load_model

    try:
        model = load_model(folder, "cuda" if torch.cuda.is_available() else "cpu")
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as problem:
        found = f"{folder}: no cross-encoder ({str(problem).splitlines()[0]})"
        raise UserError(found, "the folder as it was saved", "train the selector again") from None

    def score(question: str, texts: Sequence[str]) -> Floats:
        pairs = [(question, text) for text in texts]
        return np.asarray(model.predict(pairs, batch_size=BATCH_SIZE, show_progress_bar=False), np.float32)

    return score

"""A trained router at query time: which mode a question goes to, by what each is expected to find and what it costs.

For every mode boosted trees expect its Recall@5 from QUERY_FEATURES (cheap on purpose: nearest passages and look-ups). What a mode is worth is
that less the price of its milliseconds and tokens; the question goes to the mode worth most where it is surely worth more than the default.
`modegraph train router` makes routers.

Legend: Q questions, M modes, P passages, K nearest passages, X propositions in them, F features."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from graph.errors import UserError
from graph.extract.entities import find_entities
from graph.index.index import Index
from graph.retrieve.parts.mentions import broad_sign, keywords_of
from graph.retrieve.parts.query import Query
from graph.retrieve.parts.ranking import expand_rows, top_rows
from graph.shared.modes import DIRECT_MODES, Mode
from graph.trees import Forest, check_encoder, forest_arrays, forest_from, forest_logits, read_forests, trained_file
from graph.types import Floats, Ints

QUESTION_WORDS = ("who", "what", "which", "when", "where", "how", "why")
QUERY_FEATURES = (
    "words",
    "entities",
    "known_entities",
    "documents_named",
    "links",
    "broad",
    "yes_no",
    "compares",
    *(f"asks_{word}" for word in QUESTION_WORDS),
    "best_passage",
    "passage_gap",
    "passage_spread",
    "best_proposition",
    "proposition_gap",
    "documents_near",
    "named_near",
    "entities_near",
)
"""The columns, in order: counts, truth values as 0 or 1 (`asks_…` for the first question word), cosines, and two shares: of the
documents that the question calls by name, those that one of the nearest passages is of; of its entities, those that one mentions."""
NEAREST = 10
_YES_NO = re.compile(r"\W*(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b", re.IGNORECASE)
_COMPARES = re.compile(
    r"\b(?:both|same|or|than|first|earlier|later|older|younger|more|less|between|common|compared?|differ\w*)\b",
    re.IGNORECASE,
)
_LINKS = re.compile(r"\b(?:of|that|which|who|whose|whom|where|when|by)\b|['’]s\b", re.IGNORECASE)
"""Words by which a question hangs one thing on another: "the mother of the director of …"."""


def query_features(index: Index, query: Query) -> Floats:
    """The QUERY_FEATURES of one question: float32[F], all finite; zeros where the index has nothing to compare with."""
    data = index.data
    cosines_P = np.asarray(data.passage_vectors_PD) @ query.vector_D
    near_K = top_rows(cosines_P, NEAREST)
    cosines_K = cosines_P[near_K]
    stated_X = expand_rows(data.passage_proposition_PN, near_K)[1]
    cosines_X = np.sort(np.asarray(data.proposition_vectors_ND)[stated_X] @ query.vector_D)[::-1][:NEAREST]
    entities = set(keywords_of(index, query.text).tolist())
    mentioned = set(expand_rows(data.proposition_entity_NE, stated_X)[1].tolist())
    named = set(expand_rows(data.entity_document_EU, np.array(sorted(entities), np.int64))[1].tolist())
    near = set(np.asarray(data.passage_document_P)[near_K].tolist())
    words = re.findall(r"\w+", query.text.casefold())
    asks = next((word for word in words if word in QUESTION_WORDS), "")
    columns = {
        "words": len(query.text.split()),
        "entities": len(find_entities(query.text)),
        "known_entities": len(entities),
        "documents_named": len(named),
        "links": len(_LINKS.findall(query.text)),
        "broad": bool(broad_sign(index, query.text)),
        "yes_no": bool(_YES_NO.match(query.text)),
        "compares": bool(_COMPARES.search(query.text)),
        **{f"asks_{word}": word == asks for word in QUESTION_WORDS},
        "best_passage": cosines_K.max(initial=0),
        "passage_gap": gap(cosines_K),
        "passage_spread": cosines_K.std() if len(cosines_K) else 0,
        "best_proposition": cosines_X.max(initial=0),
        "proposition_gap": gap(cosines_X),
        "documents_near": len(near),
        "named_near": share_in(named, near),
        "entities_near": share_in(entities, mentioned),
    }
    return np.array([float(columns[name]) for name in QUERY_FEATURES], np.float32)


def gap(best: Floats) -> np.float32:
    """How far the last of the best scores lies below the first; 0 for none.

    >>> float(gap(np.array([1.0, 0.75, 0.5])))
    0.5
    """
    return np.float32(best[0] - best[-1] if len(best) else 0)


def share_in(wanted: set[int], found: set[int]) -> float:
    """The share of `wanted` that is among `found`; 0 for none wanted.

    >>> share_in({1, 2, 3, 4}, {4, 2, 9})
    0.5
    """
    return len(wanted & found) / len(wanted) if wanted else 0.0


Doubles = NDArray[np.float64]
ONE_HOP = ("dense", "lexical", "hybrid", "hierarchy")
"""Modes that look once and stop: they follow nothing from what they have found."""


@dataclass(frozen=True)
class ModeModel:
    """What a router knows of one mode: trees for its Recall@5, and its milliseconds and model tokens a question."""

    mode: Mode
    forest: Forest
    milliseconds: float
    tokens: float


@dataclass(frozen=True)
class Router:
    """The modes to choose from, the first being the default; prices are in Recall@5 a millisecond and a token.

    A question leaves the default only for a mode that is worth more by over `margin`. `encoder` is the fingerprint of that
    whose cosines the trees have learned from.
    """

    modes: tuple[ModeModel, ...]
    price_per_ms: float
    price_per_token: float
    margin: float
    encoder: str


@dataclass(frozen=True)
class Route:
    """Where a question goes, and whether the mode may ask a model there; `why` is for the trace."""

    mode: Mode
    asks_model: bool
    why: str


def expected_recall(modes: Sequence[ModeModel], features_QF: Floats) -> Doubles:
    """The Recall@5 that each mode is expected to reach, from 0 to 1: [Q, M]."""
    return np.clip(np.stack([forest_logits(each.forest, features_QF) for each in modes], axis=1), 0, 1)


def costs(modes: Sequence[ModeModel], price_per_ms: float, price_per_token: float) -> Doubles:
    """What each mode costs a question, in Recall@5: [M]."""
    return np.array([price_per_ms * each.milliseconds + price_per_token * each.tokens for each in modes], np.float64)


def choose(expected_QM: Doubles, cost_M: Doubles, margin: float) -> Ints:
    """The mode of each question: argmax of recall − cost, where that beats the default (mode 0) by over `margin`: int64[Q].

    >>> choose(np.array([[0.9, 0.8], [0.9, 0.4]]), np.array([0.3, 0.1]), 0.05).tolist()
    [1, 0]
    """
    worth_QM = expected_QM - cost_M
    best_Q = worth_QM.argmax(axis=1)
    gain_Q = worth_QM[np.arange(len(worth_QM)), best_Q] - worth_QM[:, 0]
    return np.where(gain_Q > margin, best_Q, 0).astype(np.int64)


def find_route(router: Router, features_F: Floats, has_model: bool) -> Route:
    """Where one question goes. Modes that were measured with a model are left out when there is none.

    UserError when no mode is left.
    """
    modes = [each for each in router.modes if has_model or not each.tokens]
    if not modes:
        raise UserError(
            "every mode of the router asks a model", "a model to ask", "give --model SPEC, or a router made without one"
        )
    [expected_M] = expected_recall(modes, features_F[None])
    [chosen] = choose(expected_M[None], costs(modes, router.price_per_ms, router.price_per_token), router.margin)
    return Route(modes[chosen].mode, modes[chosen].tokens > 0, describe_route(modes, expected_M, int(chosen)))


def describe_route(modes: Sequence[ModeModel], expected_M: Doubles, chosen: int) -> str:
    """The choice in words: against the default, or against the best of the others where the default was kept."""
    others = [place for place in range(len(modes)) if place != chosen]
    own = modes[chosen].mode
    hops = ", one hop is enough" if own in ONE_HOP else ""
    told = f"routed to {own}{hops}: expected recall {expected_M[chosen]:.2f}"
    if not others:
        return f"{told} at {describe_cost(modes[chosen])}; no other mode can be had"
    other = 0 if chosen else max(others, key=lambda place: expected_M[place])
    costs_told = f"at {describe_cost(modes[chosen])} instead of {describe_cost(modes[other])}"
    kept = "" if chosen else "; nothing else is surely worth more than the default"
    return f"{told} against {expected_M[other]:.2f} of {modes[other].mode}, {costs_told}{kept}"


def describe_cost(mode: ModeModel) -> str:
    """Milliseconds and, where there are any, tokens.

    >>> describe_cost(ModeModel("hops", None, 8.25, 0)), describe_cost(ModeModel("plan", None, 9, 412.4))
    ('8.2 ms', '9.0 ms and 412 tokens')
    """
    return f"{mode.milliseconds:.1f} ms" + (f" and {mode.tokens:.0f} tokens" if mode.tokens else "")


def check_same_encoder(router: Router, index: Index) -> None:
    """UserError when the index has another encoder than the one whose cosines the router learned from."""
    check_encoder("router", router.encoder, index, "`modegraph synth route`")


ROUTER_FILE = "router.safetensors"
FORMAT = "modegraph router, 2"
HEADER = "router"
"""The one key of the file's metadata; its value is JSON, so that equal routers are equal bytes."""

HEADER_NUMBERS = ("price_per_ms", "price_per_token", "margin")


def save_router(folder: Path, router: Router) -> None:
    """Write ROUTER_FILE into `folder`."""
    arrays = {
        f"{each.mode}.{name}": array for each in router.modes for name, array in forest_arrays(each.forest).items()
    }
    header = {
        "format": FORMAT,
        "features": QUERY_FEATURES,
        "encoder": router.encoder,
        **{name: getattr(router, name) for name in HEADER_NUMBERS},
        "modes": [
            {
                "mode": each.mode,
                "milliseconds": each.milliseconds,
                "tokens": each.tokens,
                "base": each.forest.base,
                "depth": each.forest.depth,
            }
            for each in router.modes
        ],
    }
    save_file(arrays, folder / ROUTER_FILE, {HEADER: json.dumps(header)})


def open_router(spec: str) -> Router:
    """The router in a folder or on the hub, read once as long as its file stays the same; UserError for anything else."""
    file = trained_file(spec, "router", ROUTER_FILE)
    return _load_router(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load_router(file: Path, changed_ns: int) -> Router:
    del changed_ns
    with read_forests(file, HEADER, FORMAT, QUERY_FEATURES) as (opened, header):
        modes = tuple(_read_mode(opened, each) for each in header["modes"])
        price_per_ms, price_per_token, margin = (float(header[name]) for name in HEADER_NUMBERS)
        if not modes or len({each.mode for each in modes} & DIRECT_MODES) < len(modes):
            raise ValueError("its modes are not those of this version, each once")
        if not all(0 <= number < math.inf for number in (price_per_ms, price_per_token, margin)):
            raise ValueError("a price or the margin is not a number of 0 or more")
        return Router(modes, price_per_ms, price_per_token, margin, str(header["encoder"]))


def _read_mode(opened: Any, each: Mapping[str, Any]) -> ModeModel:
    """One mode's trees and costs; ValueError for trees that lead nowhere and for costs that are none."""
    forest = forest_from(opened, f"{each['mode']}.", each, len(QUERY_FEATURES))
    milliseconds, tokens = float(each["milliseconds"]), float(each["tokens"])
    if not (0 <= milliseconds < math.inf and 0 <= tokens < math.inf):
        raise ValueError(f"{each['mode']} costs {milliseconds} ms and {tokens} tokens")
    return ModeModel(each["mode"], forest, milliseconds, tokens)

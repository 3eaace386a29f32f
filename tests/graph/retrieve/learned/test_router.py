"""A trained router at query time: the choice by hand-worked numbers, the file, `auto` with it, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy
from safetensors.numpy import load_file, save_file

from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.router import (
    HEADER,
    QUERY_FEATURES,
    ROUTER_FILE,
    ModeModel,
    Router,
    choose,
    expected_recall,
    find_route,
    open_router,
    save_router,
)
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve, retrieve_many
from graph.trees import Forest
from graph.types import CompletionRequest
from tests.corpora import ISLES
from tests.fakes import ScriptedModel
from tests.graph.hashed import build

COMPARES = QUERY_FEATURES.index("compares")


def stump(feature: int, low: float, high: float) -> Forest:
    """`low` where the feature is at most .5, `high` elsewhere."""
    return Forest(
        feature_V=np.array([feature, 0, 0]),
        threshold_V=np.array([0.5, 0.0, 0.0]),
        left_V=np.array([1, 1, 2]),
        right_V=np.array([2, 1, 2]),
        value_V=np.array([0.0, low, high]),
        root_T=np.array([0]),
        base=0.0,
        depth=1,
    )


def router(**changes: Any) -> Router:
    """`hops`, and for questions that do not compare `dense`, which then finds nearly as much for an eighth of the time."""
    modes = (
        ModeModel("hops", stump(COMPARES, 0.9, 0.95), 8.0, 0.0),
        ModeModel("dense", stump(COMPARES, 0.88, 0.5), 1.0, 0.0),
    )
    return replace(Router(modes, 0.01, 0.001, 0.02, "hash-encoder"), **changes)


def features(compares: float) -> Any:
    values = np.zeros(len(QUERY_FEATURES), np.float32)
    values[COMPARES] = compares
    return values


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("routed") / "index", ISLES)


@pytest.fixture
def folder(index: Index, tmp_path: Path) -> Path:
    save_router(tmp_path, router(encoder=index.encoder_source.fingerprint))
    return tmp_path


def test_the_cheap_mode_is_taken_where_it_is_nearly_as_good() -> None:
    assert find_route(router(), features(0), False).mode == "dense", ".88 − .01 against .90 − .08"
    assert find_route(router(), features(1), False).mode == "hops"


def test_the_margin_keeps_the_default_where_the_gain_is_not_sure() -> None:
    assert find_route(router(margin=0.06), features(0), False).mode == "hops", "the gain is .05"


def test_the_route_is_told() -> None:
    assert find_route(router(), features(0), False).why == (
        "routed to dense, one hop is enough: expected recall 0.88 against 0.90 of hops, at 1.0 ms instead of 8.0 ms"
    )
    assert find_route(router(), features(1), False).why == (
        "routed to hops: expected recall 0.95 against 0.50 of dense, at 8.0 ms instead of 1.0 ms; "
        "nothing else is surely worth more than the default"
    )


def test_a_mode_that_asks_a_model_is_left_out_without_one_and_its_tokens_have_a_price() -> None:
    plan = ModeModel("plan", stump(COMPARES, 1.0, 1.0), 8.0, 40.0)
    both = router(modes=(plan, router().modes[0]))
    found = find_route(both, features(1), has_model=False)
    assert (found.mode, found.asks_model) == ("hops", False) and "no other mode can be had" in found.why
    assert find_route(replace(both, price_per_token=0.0), features(1), True).asks_model
    assert find_route(replace(both, price_per_token=0.01), features(1), True).mode == "hops"
    with pytest.raises(UserError, match="every mode of the router asks a model"):
        find_route(router(modes=(plan,)), features(1), has_model=False)


def test_expected_recall_stays_between_nothing_and_all() -> None:
    wild = (ModeModel("hops", stump(COMPARES, -3.0, 7.0), 1.0, 0.0),)
    assert expected_recall(wild, np.stack([features(0), features(1)])).tolist() == [[0.0], [1.0]]


@given(
    of_numpy.arrays(np.float64, (6, 4), elements=st.floats(0, 1)),
    of_numpy.arrays(np.float64, 4, elements=st.floats(0, 1)),
    st.floats(0, 1),
)
def test_the_choice_is_the_best_by_worth_or_the_default(expected_QM: Any, cost_M: Any, margin: float) -> None:
    for row, chosen in enumerate(choose(expected_QM, cost_M, margin)):
        worth = [float(recall - cost) for recall, cost in zip(expected_QM[row], cost_M, strict=True)]
        best = max(range(4), key=lambda place: worth[place])
        assert chosen == (best if worth[best] - worth[0] > margin else 0)


def test_a_gain_of_no_more_than_the_margin_is_not_enough() -> None:
    expected_QM = np.array([[0.5, 0.75], [0.5, 0.8125]])
    assert choose(expected_QM, np.zeros(2), margin=0.25).tolist() == [0, 1]


def test_a_router_survives_its_file(folder: Path, index: Index) -> None:
    found = open_router(str(folder))
    saved = router(encoder=index.encoder_source.fingerprint)
    assert (found.price_per_ms, found.price_per_token, found.margin, found.encoder) == (
        0.01,
        0.001,
        0.02,
        saved.encoder,
    )
    for one, other in zip(found.modes, saved.modes, strict=True):
        assert (one.mode, one.milliseconds, one.tokens) == (other.mode, other.milliseconds, other.tokens)
    both = np.stack([features(0), features(1)])
    assert expected_recall(found.modes, both).tolist() == expected_recall(saved.modes, both).tolist()


QUESTIONS = ["Where was Ada Marlow born?", "Is Tarn older than Quill?"]


def test_auto_goes_where_the_router_says_and_finds_what_that_mode_finds(index: Index, folder: Path) -> None:
    settings = RetrieveSettings.model_validate({"mode": "auto", "router": str(folder), "top_k": 3})
    found = retrieve_many(index, QUESTIONS, settings)
    for evidence, mode in zip(found, ("dense", "hops"), strict=True):
        direct = retrieve(index, evidence.query, RetrieveSettings.model_validate({"mode": mode, "top_k": 3}))
        assert evidence.trace.steps[0].startswith(f"routed to {mode}") and evidence.trace.mode == "auto"
        assert evidence.passages == direct.passages and evidence.trace.steps[1:] == direct.trace.steps


def test_a_mode_that_was_measured_without_a_model_does_not_ask_one(index: Index, tmp_path: Path) -> None:
    local = ModeModel("local", stump(COMPARES, 1.0, 1.0), 1.0, 0.0)
    save_router(tmp_path, router(modes=(local,), encoder=index.encoder_source.fingerprint))

    def refuse(request: CompletionRequest) -> str:
        raise AssertionError(request)

    settings = RetrieveSettings.model_validate({"mode": "auto", "router": str(tmp_path)})
    assert retrieve(index, QUESTIONS[0], settings, ScriptedModel(refuse)).trace.model_calls == 0


def test_another_encoder_is_refused(index: Index, tmp_path: Path) -> None:
    save_router(tmp_path, router(encoder="of-another-world"))
    settings = RetrieveSettings.model_validate({"mode": "auto", "router": str(tmp_path)})
    with pytest.raises(UserError, match=r"the router was trained with encoder of-another-.*leave out --router"):
        retrieve(index, QUESTIONS[0], settings)


@pytest.mark.parametrize(
    ("header", "arrays", "told"),
    [
        ({"format": "something else"}, {}, "its format is 'something else'"),
        ({"format": "modegraph router, 1"}, {}, "Make its data again and train on it"),
        ({"features": QUERY_FEATURES[1:]}, {}, "trained on other features .without 'words'"),
        ({"margin": float("nan")}, {}, "no router .a price or the margin"),
        ({"price_per_ms": -1.0}, {}, "no router .a price or the margin"),
        ({"modes": []}, {}, "its modes are not those of this version"),
        ({}, {"hops.left_V": np.array([1, 1, 9])}, "no router .left_V points outside"),
        ({}, {"hops.feature_V": np.array([99, 0, 0])}, "no router .feature_V points outside"),
        ({}, {"hops.value_V": None}, "no router"),
    ],
)
def test_a_file_that_was_changed_is_refused(
    folder: Path, header: dict[str, Any], arrays: dict[str, Any], told: str
) -> None:
    spoil(folder, header, arrays)
    with pytest.raises(UserError, match=told):
        open_router(str(folder))


@pytest.mark.parametrize(
    "change", [{"mode": "magic"}, {"mode": "auto"}, {"milliseconds": -1}, {"tokens": float("inf")}]
)
def test_a_mode_that_makes_no_sense_is_refused(folder: Path, change: dict[str, Any]) -> None:
    modes = json.loads(read_header(folder))["modes"]
    arrays = {f"{change.get('mode', 'hops')}.{name}": array for name, array in hops_arrays(folder).items()}
    spoil(folder, {"modes": [modes[0] | change, modes[1]]}, arrays)
    with pytest.raises(UserError, match="no router"):
        open_router(str(folder))


def test_what_is_no_router_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"no {ROUTER_FILE}"):
        open_router(str(tmp_path))
    (tmp_path / ROUTER_FILE).write_bytes(b"no tensors")
    with pytest.raises(UserError, match="no router"):
        open_router(str(tmp_path))
    with pytest.raises(UserError, match="no such folder"):
        open_router(str(tmp_path / "nowhere"))


def read_header(folder: Path) -> str:
    from safetensors import safe_open

    with safe_open(folder / ROUTER_FILE, framework="numpy") as opened:
        return str(opened.metadata()[HEADER])


def hops_arrays(folder: Path) -> dict[str, Any]:
    arrays = load_file(folder / ROUTER_FILE)
    return {name.removeprefix("hops."): array for name, array in arrays.items() if name.startswith("hops.")}


def spoil(folder: Path, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write the router's file again with some of its header and arrays changed (None: left out)."""
    kept = json.loads(read_header(folder)) | header
    held = {name: array for name, array in (load_file(folder / ROUTER_FILE) | arrays).items() if array is not None}
    save_file(held, folder / ROUTER_FILE, {HEADER: json.dumps(kept)})

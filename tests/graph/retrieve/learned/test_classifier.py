"""A trained selector at query time: its trees compared with a slow reference, damaged files, and the mode `local` with a selector."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from graph.config import parse_settings
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.light import (
    FEATURES,
    HEADER,
    Classifier,
    features_of,
    open_selector,
    relevance,
    save_selector,
    view_of,
)
from graph.retrieve.learned.selectors import find_selector
from graph.retrieve.modes.local import JUDGED_GAIN, STEER
from graph.retrieve.parts.query import SELECTOR_FILE, RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.trees import Forest, forest_logits
from tests.fakes import ScriptedModel
from tests.graph.hashed import query_of
from tests.graph.retrieve.wordless import leave_words_out

SIMILARITY = FEATURES.index("similarity")
QUESTION = "Where was the shipwright of the ferry born?"


def one_stump(encoder: str = "any", threshold: float = 0.5, cut: float = 0.25) -> Classifier:
    """A selector whose probability is .9 where the feature `similarity` is above `cut`, and .1 elsewhere."""
    forest = Forest(
        feature_V=np.array([SIMILARITY, 0, 0]),
        threshold_V=np.array([cut, 0, 0]),
        left_V=np.array([1, 1, 2]),
        right_V=np.array([2, 1, 2]),
        value_V=np.array([0, -2 * np.log(9), 0]),
        root_T=np.array([0]),
        base=float(np.log(9)),
        depth=1,
    )
    return Classifier(forest, 1.0, threshold, encoder)


def test_the_probabilities_of_a_stump_equal_a_calculation_by_hand() -> None:
    features_nF = np.zeros((3, len(FEATURES)), np.float32)
    features_nF[:, SIMILARITY] = [0.24, 0.25, 0.26]
    assert relevance(one_stump(), features_nF) == pytest.approx([0.1, 0.1, 0.9])


def test_a_temperature_above_one_pulls_probabilities_towards_a_half() -> None:
    forest = one_stump().forest
    warm = Classifier(forest, 2.0, 0.5, "any")
    odds = np.exp(np.log(9) / 2)
    assert relevance(warm, np.ones((1, len(FEATURES)), np.float32)) == pytest.approx([odds / (1 + odds)])


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """One to four random trees of depth at most four."""
    columns: list[tuple[int, float, int, int, float]] = []

    def grow(depth: int) -> int:
        here = len(columns)
        columns.append((0, 0.0, here, here, draw(st.floats(-3, 3))))
        if depth and draw(st.booleans()):
            feature, cut = draw(st.integers(0, len(FEATURES) - 1)), draw(st.integers(-2, 2))
            columns[here] = (feature, float(cut), grow(depth - 1), grow(depth - 1), 0.0)
        return here

    roots = [grow(4) for _ in range(draw(st.integers(1, 4)))]
    feature, cut, left, right, value = (np.array(column) for column in zip(*columns, strict=True))
    return Forest(feature, cut, left, right, value, np.array(roots), draw(st.floats(-1, 1)), 4)


def slow_logit(forest: Forest, features_F: list[float]) -> float:
    """The logit of one example, computed by walking down one tree after another."""
    total = forest.base
    for node in forest.root_T.tolist():
        while forest.left_V[node] != node:
            lower = features_F[forest.feature_V[node]] <= forest.threshold_V[node]
            node = int(forest.left_V[node] if lower else forest.right_V[node])
        total += forest.value_V[node]
    return total


@settings(max_examples=60, deadline=None)
@given(forests(), st.integers(0, 1000))
def test_the_logits_of_a_forest_equal_those_of_walking_down_each_tree(forest: Forest, seed: int) -> None:
    features_nF = np.random.default_rng(seed).integers(-2, 3, (6, len(FEATURES))).astype(np.float32)
    slow = [slow_logit(forest, row) for row in features_nF.tolist()]
    np.testing.assert_allclose(forest_logits(forest, features_nF), slow, atol=1e-12)
    assert forest_logits(forest, features_nF[:0]).shape == (0,)


def test_a_saved_selector_is_read_back_unchanged(tmp_path: Path) -> None:
    saved = one_stump("the encoder", threshold=0.1 + 0.2)
    save_selector(tmp_path, saved)
    found = open_selector(str(tmp_path))
    assert (found.temperature, found.threshold, found.encoder) == (1.0, 0.1 + 0.2, "the encoder")
    for name, column in vars(saved.forest).items():
        assert np.array_equal(getattr(found.forest, name), column), name


def test_a_selector_that_was_trained_again_is_read_again(tmp_path: Path) -> None:
    save_selector(tmp_path, one_stump(threshold=0.5))
    first = open_selector(str(tmp_path))
    assert open_selector(str(tmp_path)) is first
    (tmp_path / SELECTOR_FILE).unlink()
    save_selector(tmp_path, one_stump(threshold=0.7))
    assert open_selector(str(tmp_path)).threshold == 0.7


def save_damaged_selector(folder: Path, header: dict[str, Any], **columns: Any) -> str:
    """Save a selector with these header entries and columns replaced (None: the column is left out); return its folder."""
    save_selector(folder, one_stump())
    file = folder / SELECTOR_FILE
    with safe_open(file, framework="numpy") as opened:
        whole = json.loads(opened.metadata()[HEADER]) | header
    arrays = {name: value for name, value in (load_file(file) | columns).items() if value is not None}
    save_file(arrays, file, {HEADER: json.dumps(whole)})
    return str(folder)


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        ({"format": "something else"}, {}, "its format is 'something else'"),
        ({"format": "modegraph selector, light, 1"}, {}, "Train it again with this version"),
        ({"features": FEATURES[1:]}, {}, "trained on other features .without 'similarity'"),
        ({"features": [*FEATURES, "colour"]}, {}, "other features .with 'colour'"),
        ({"features": FEATURES[::-1]}, {}, "other features .in another order"),
        ({"temperature": "warm"}, {}, "not a selector file .could not convert"),
        ({"depth": 1_000_000_000}, {}, r"a depth \(1000000000\) outside 0 to 64"),
        ({}, {"left_V": np.array([1, 1, 99])}, "left_V is not a list of indices"),
        ({}, {"root_T": np.array([-1])}, "root_T is not a list of indices"),
        ({}, {"feature_V": np.array([15, 0, 0])}, "feature_V is not a list of indices"),
        ({}, {"feature_V": np.array([0.0, 0, 0])}, "feature_V is not a list of indices"),
        ({}, {"threshold_V": np.array([0.5])}, "columns of different lengths"),
        ({}, {"value_V": None}, "not a selector file"),
        ({"features": 15}, {}, "not a selector file"),
    ],
)
def test_a_damaged_or_incompatible_selector_file_is_refused(
    tmp_path: Path, header: dict[str, Any], columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        open_selector(save_damaged_selector(tmp_path, header, **columns))


def test_a_folder_without_a_selector_and_a_file_with_other_contents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=f"no {SELECTOR_FILE}. Expected the folder that `modegraph train selector` made"
    ):
        open_selector(str(tmp_path))
    (tmp_path / SELECTOR_FILE).write_bytes(b"\x80\x04rubbish, or a pickle")
    with pytest.raises(UserError, match="not a selector file"):
        open_selector(str(tmp_path))
    with pytest.raises(UserError, match="no such folder"):
        open_selector(str(tmp_path / "nowhere"))
    save_file({"weights": np.zeros(3)}, tmp_path / SELECTOR_FILE)
    with pytest.raises(UserError, match=r"not a selector file .'selector'"):
        open_selector(str(tmp_path))


def save_selector_for(index: Index, folder: Path, cut: float = 0.25, threshold: float = 0.5) -> str:
    save_selector(folder, one_stump(index.encoder_source.fingerprint, threshold, cut))
    return str(folder)


def test_a_selector_returns_the_rows_that_reach_the_threshold_without_duplicates_and_most_probable_first(
    isles: Index, tmp_path: Path
) -> None:
    query, rows = query_of(isles, QUESTION), np.arange(len(isles.data.proposition_ids))
    similarity_n = features_of(isles, query, view_of(isles, query), rows)[:, SIMILARITY]
    cut = float(np.median(similarity_n))
    select = find_selector(save_selector_for(isles, tmp_path, cut), query)
    assert (
        select(isles, query, np.concatenate([rows[::-1], rows])).tolist() == np.flatnonzero(similarity_n > cut).tolist()
    )
    assert select(isles, query, rows[:0]).tolist() == []
    (tmp_path / "low").mkdir()
    select = find_selector(save_selector_for(isles, tmp_path / "low", cut, threshold=0.05), query)
    assert select(isles, query, rows).tolist() == [
        *np.flatnonzero(similarity_n > cut),
        *np.flatnonzero(similarity_n <= cut),
    ]


def test_the_cached_view_of_one_question_is_not_used_for_another(isles: Index, tmp_path: Path) -> None:
    rows, spec = np.arange(len(isles.data.proposition_ids)), save_selector_for(isles, tmp_path, cut=0.4)
    first, second = query_of(isles, QUESTION), query_of(isles, "How long does kelp bread keep?")
    select = find_selector(spec, first)
    shared = [select(isles, query, rows).tolist() for query in (first, second, first)]
    alone = [find_selector(spec, query)(isles, query, rows).tolist() for query in (first, second, first)]
    assert shared == alone and shared[0] != shared[1]


@pytest.mark.parametrize("mode", ["local", "global"])
def test_a_selector_of_another_encoder_is_refused(isles: Index, tmp_path: Path, mode: Any) -> None:
    save_selector(tmp_path, one_stump("another encoder"))
    with pytest.raises(UserError, match=r"trained with encoder another enco.*a selector for the encoder of the index"):
        retrieve(isles, QUESTION, RetrieveSettings(mode=mode, selector=str(tmp_path)))


def test_local_ranks_by_the_probabilities_of_the_selector(
    isles: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the selector finds nothing relevant, the ranking equals that of `hops` (neither scores the question's words here); otherwise the score of a
    passage rises in proportion to the highest probability of relevance of its propositions.
    """
    leave_words_out(monkeypatch)
    hops = retrieve(isles, QUESTION, RetrieveSettings(mode="hops", top_k=5))
    (tmp_path / "none").mkdir()
    (tmp_path / "some").mkdir()
    nothing = save_selector_for(isles, tmp_path / "none", cut=2.0)
    same = retrieve(isles, QUESTION, RetrieveSettings(mode="local", top_k=5, selector=nothing))
    assert [found.item.id for found in same.passages] == [found.item.id for found in hops.passages]
    some = save_selector_for(isles, tmp_path / "some", cut=0.4)
    found = retrieve(isles, QUESTION, RetrieveSettings(mode="local", top_k=5, selector=some))
    assert found.trace.model_calls == 0 and "propositions judged" in found.trace.steps[0]
    assert found.paths[0][-1] == "probability of relevance 0.90"
    gain = found.passages[0].score - same.passages[0].score
    assert gain == pytest.approx((0.9 - 0.1) * (STEER + JUDGED_GAIN), abs=0.02)
    assert retrieve(isles, QUESTION, RetrieveSettings(mode="local", top_k=5, selector=some)).passages == found.passages


def test_with_a_trained_selector_local_does_not_call_the_model_to_select(isles: Index, tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: json.dumps({"answer": "Tarn", "next_questions": []}))
    settings_ = RetrieveSettings(mode="local", selector=save_selector_for(isles, tmp_path))
    found = retrieve(isles, QUESTION, settings_, model)
    assert found.findings[0].answer == "Tarn" and len(model.requests) == 1


def test_a_filter_applies_with_a_trained_selector(isles: Index, tmp_path: Path) -> None:
    source = isles.sources()[0]
    settings_ = RetrieveSettings(mode="local", selector=save_selector_for(isles, tmp_path), where=(f"source={source}",))
    assert {found.item.source for found in retrieve(isles, QUESTION, settings_).passages} == {source}


def test_a_misspelt_selector_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"selector = 'treshold'\. Did you mean 'threshold'\?.*trained selector"):
        parse_settings(RetrieveSettings, {"selector": "treshold"}, "ask")
    assert RetrieveSettings(selector="owner/name").selector == "owner/name"
    with pytest.raises(UserError, match=r"selector = 'xxxx.*Expected 'threshold'.*trained selector"):
        parse_settings(RetrieveSettings, {"selector": "x" * 5000}, "ask")

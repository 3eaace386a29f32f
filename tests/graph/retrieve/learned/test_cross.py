"""A cross selector at query time: which propositions it reads, how both logits count, and every way its folder can be wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.cross import (
    CROSS_FILE,
    CROSS_FOLDER,
    Blend,
    Cross,
    judge,
    most_promising,
    open_trained_selector,
    read_blend,
    save_blend,
)
from graph.retrieve.learned.light import SELECTOR_FILE, Classifier, measure, relevance, save_selector, view_of
from graph.retrieve.learned.selectors import select_by_trained
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.types import Floats
from tests.graph.retrieve.learned.test_classifier import QUESTION, encoded, one_stump
from tests.train.selector.encoders import tiny_encoder

BLEND = Blend(weight=2.0, base=-1.0, temperature=0.5, threshold=0.25, depth=3)


class Reader:
    """A cross-encoder's logits: 3 for a text with `word`, else -3; it remembers what it was asked."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.asked: list[tuple[str, list[str]]] = []

    def __call__(self, question: str, texts: Any) -> Floats:
        self.asked.append((question, list(texts)))
        return np.array([3.0 if self.word in text else -3.0 for text in texts], np.float32)


def cross_for(index: Index, reader: Reader, encoder: str | None = None) -> Cross:
    return Cross(one_stump(encoder or index.encoder_source.fingerprint, cut=0.4), reader, BLEND)


def test_the_highest_logits_are_read_ties_by_place() -> None:
    assert most_promising(np.array([0.0, 2.0, -1.0, 2.0, 1.0]), 3).tolist() == [1, 3, 4]


def test_what_is_read_counts_with_both_logits_the_rest_with_the_light_ones(isles: Index) -> None:
    """By hand: σ((± ln 9 + 2 · ±3 − 1) / 0.5) for the three that are read, in one batch; .9 or .1 for the others."""
    reader = Reader("Ada")
    selector, query = cross_for(isles, reader), encoded(isles)
    rows = np.arange(len(isles.data.proposition_ids))
    found = judge(selector, isles, query, view_of(isles, query), rows)
    light = relevance(selector.light, measure(isles, query, view_of(isles, query), rows))
    [(question, texts)] = reader.asked
    read = np.argsort(-light, kind="stable")[:3]
    assert question == QUESTION and texts == [isles.data.proposition_texts[row] for row in read]
    for row in read.tolist():
        logit = (1 if light[row] > 0.5 else -1) * np.log(9) + (6 if "Ada" in isles.data.proposition_texts[row] else -6)
        assert found[row] == pytest.approx(1 / (1 + np.exp(-(logit - 1) / 0.5)))
    others = np.setdiff1d(rows, read)
    assert found[others] == pytest.approx(light[others])


def test_nothing_is_read_of_nothing(isles: Index) -> None:
    reader, query = Reader("x"), encoded(isles)
    assert len(judge(cross_for(isles, reader), isles, query, view_of(isles, query), np.zeros(0, np.int64))) == 0
    assert reader.asked == []


def test_its_selection_is_what_reaches_the_blends_threshold(isles: Index) -> None:
    query, rows = encoded(isles), np.arange(len(isles.data.proposition_ids))
    selector = cross_for(isles, Reader("no such word"))
    found = judge(selector, isles, query, view_of(isles, query), rows)
    kept = select_by_trained(selector)(isles, query, rows)
    assert set(kept.tolist()) == set(np.flatnonzero(found >= BLEND.threshold).tolist())
    assert len(set(kept.tolist()) & set(most_promising(found, 1).tolist())) == min(len(kept), 1)


def test_an_index_of_another_encoder_is_refused(isles: Index) -> None:
    query = encoded(isles)
    with pytest.raises(UserError, match="trained with encoder another enco"):
        judge(cross_for(isles, Reader("x"), "another encoder"), isles, query, view_of(isles, query), np.arange(2))


@pytest.fixture
def folder(tmp_path: Path, isles: Index) -> Path:
    """A whole cross selector, its encoder tiny and untrained."""
    from graph.retrieve.learned.maxsim import save_model, start_model

    save_selector(tmp_path, one_stump(isles.encoder_source.fingerprint, cut=0.4))
    save_model(start_model(tiny_encoder(tmp_path / "start"), 48, "cpu"), tmp_path / CROSS_FOLDER)
    save_blend(tmp_path, BLEND)
    return tmp_path


@pytest.mark.parametrize("mode", ["local", "global"])
def test_both_modes_run_with_a_folder(isles: Index, folder: Path, mode: Any) -> None:
    settings = RetrieveSettings(mode=mode, top_k=5, selector=str(folder))
    one, two = (retrieve(isles, QUESTION, settings) for _ in range(2))
    assert len(one.passages) == 5 and one.passages == two.passages and one.trace.model_calls == 0


def test_a_saved_model_gives_the_logits_it_gave_and_batches_do_not_matter(folder: Path) -> None:
    from graph.retrieve.learned.maxsim import start_model

    texts = ["it is a train 5", "no", "a test of what it is - yes ."]
    fresh = start_model(folder / "start", 48, "cpu").predict([("what is it 5 ?", text) for text in texts])
    opened = open_trained_selector(str(folder))
    assert isinstance(opened, Cross) and opened.blend == BLEND
    np.testing.assert_allclose(opened.score("what is it 5 ?", texts), fresh, atol=1e-5)
    alone = [opened.score("what is it 5 ?", [text])[0] for text in texts]
    np.testing.assert_allclose(alone, fresh, atol=1e-5)


def test_match_by_hand() -> None:
    """Two question words, a and b; the proposition holds a and something at 60 degrees to b: (w_a · 1 + w_b · ½)."""
    import torch

    from graph.retrieve.learned.maxsim import match

    half = 3**0.5 / 2
    hidden_BWD = torch.tensor([[[2.0, 0, 0], [0, 1, 0], [3, 0, 0], [0, 0.5, half], [0, 1, 0]]])
    question, proposition = torch.tensor([[1, 1, 0, 0, 0]]).bool(), torch.tensor([[0, 0, 1, 1, 0]]).bool()
    even = match(hidden_BWD, torch.zeros(1, 5), question, proposition)
    assert even.tolist() == pytest.approx([0.75])
    weighted = match(hidden_BWD, torch.tensor([[np.log(3), 0, 9, 9, 9]]), question, proposition)
    assert weighted.tolist() == pytest.approx([0.75 * 1 + 0.25 * 0.5])
    nothing = torch.zeros(1, 5).bool()
    assert match(hidden_BWD, torch.zeros(1, 5), question, nothing).tolist() == pytest.approx([-1.0])
    assert match(hidden_BWD, torch.zeros(1, 5), nothing, proposition).tolist() == [0.0]


def test_a_folder_is_of_the_size_that_its_files_say(folder: Path) -> None:
    assert isinstance(open_trained_selector(str(folder)), Cross)
    (folder / CROSS_FILE).unlink()
    assert isinstance(open_trained_selector(str(folder)), Classifier)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"temperature": 0}, "temperature: Input should be greater than 0"),
        ({"weight": "much"}, "weight: Input should be a valid number"),
        ({"weight": None}, "weight: Field required"),
        ({"threshold": 1.5}, "threshold: Input should be less than or equal to 1"),
        ({"depth": 0}, "depth: Input should be greater than or equal to 1"),
        ({"format": "modegraph selector, cross, 9"}, "format: Input should be 'modegraph selector, cross, 1'"),
        ({"colour": 1}, "colour: Extra inputs are not permitted"),
    ],
)
def test_a_blend_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    save_blend(tmp_path, BLEND)
    file = tmp_path / CROSS_FILE
    assert read_blend(file) == BLEND
    values = {key: value for key, value in (json.loads(file.read_text()) | change).items() if value is not None}
    file.write_text(json.dumps(values))
    with pytest.raises(UserError, match=told):
        read_blend(file)
    file.write_text("{rubbish")
    with pytest.raises(UserError, match=r"cross.json: the file: Invalid JSON.*Train the selector again"):
        read_blend(file)


@pytest.mark.parametrize(
    "lost", [SELECTOR_FILE, "cross/model.safetensors", "cross/config.json", "cross/tokenizer.json"]
)
def test_a_folder_with_a_file_missing_is_refused(folder: Path, lost: str) -> None:
    (folder / lost).unlink()
    with pytest.raises(UserError, match=r"as it was saved|modegraph train selector"):
        open_trained_selector(str(folder))


@pytest.mark.parametrize(
    "broken", ["cross/model.safetensors", "cross/head/model.safetensors", "cross/head/config.json"]
)
def test_a_broken_file_is_refused(folder: Path, broken: str) -> None:
    (folder / broken).write_bytes(b"\x80\x04rubbish, or a pickle")
    with pytest.raises(UserError, match=r"no cross-encoder .*the folder as it was saved"):
        open_trained_selector(str(folder))


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / CROSS_FOLDER / "head" / "model.safetensors"
    arrays = load_file(file)
    arrays["weight.weight"] = arrays["weight.weight"][:, :4].clone()
    save_file(arrays, file)
    with pytest.raises(UserError, match="no cross-encoder"):
        open_trained_selector(str(folder))


def test_code_in_the_folder_is_not_run(folder: Path, tmp_path: Path) -> None:
    (folder / CROSS_FOLDER / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
    (folder / CROSS_FOLDER / "modules.json").write_text(json.dumps(modules))
    assert isinstance(open_trained_selector(str(folder)), Cross) and not (tmp_path / "ran").exists()

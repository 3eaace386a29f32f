"""`train selector --size cross`: pairs, loss and blend by hand; a run of a tiny encoder to its folder; a run that was cut off."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from graph.errors import UserError
from graph.retrieve.learned.cross import Cross, blended_log_odds, open_trained_selector
from graph.retrieve.learned.light import open_selector
from graph.trees import forest_logits, probabilities
from tests.train.labelled import write_rows
from tests.train.selector.encoders import tiny_encoder
from tests.train.selector.rows import small_world
from train.run.settings import CrossSettings, SelectorSettings
from train.selector.cross import (
    LengthGroupedBatchSampler,
    fit_blend,
    read_rows_of,
    residual_loss,
    rows_by_question,
    texts_of,
    training_rows,
)
from train.selector.selector import train_selector
from train.selector.selector_data import Examples, SelectorRecord, examples_of, read_datasets
from train.shared.calibrate import log_loss


def examples(label: str, question: str) -> Examples:
    """Examples with the given labels and questions, a digit each."""
    n = len(label)
    return Examples(
        np.zeros((n, 15), np.float32),
        np.array(list(map(int, label))),
        np.array(list(map(int, question))),
        np.ones(n, np.bool_),
        np.zeros(n, np.int64),
    )


def test_pairs_are_the_relevant_the_light_selector_doubts_and_the_others_it_trusts() -> None:
    found = examples("11000010", "00000011")
    light_n = np.array([3.0, 1, 2, -1, 0, -2, 5, 6])
    settings = CrossSettings(positives=1, hard_negatives=2, random_negatives=1)
    rows = training_rows(found, light_n, settings, seed=0).tolist()
    assert rows[:3] == [1, 2, 4] and rows[3] in (3, 5) and rows[4:] == [6, 7]
    everything = CrossSettings(positives=9, hard_negatives=9, random_negatives=9)
    assert sorted(training_rows(found, light_n, everything, seed=0).tolist()) == list(range(8))


def test_pairs_are_the_same_for_a_seed() -> None:
    found, light_n = examples("1" + "0" * 59, "0" * 60), np.zeros(60)
    one, two, other = (training_rows(found, light_n, CrossSettings(), seed).tolist() for seed in (0, 0, 1))
    assert one == two != other


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_rows_by_question_is_a_twin_of_filtering(question: list[int]) -> None:
    question_n = np.array(question)
    slow = [[place for place, each in enumerate(question) if each == one] for one in sorted(set(question))]
    assert [rows.tolist() for rows in rows_by_question(question_n)] == slow


def test_the_best_of_each_question_are_read_ties_by_row() -> None:
    light_n = np.array([1.0, 4, 2, 2, 2, 0])
    assert read_rows_of(np.array([0, 1, 0, 0, 0, 1]), light_n, 2).tolist() == [2, 3, 1, 5]


def test_the_loss_is_that_of_both_logits_together() -> None:
    cross_b, light_b = torch.tensor([1.0, 0.0]), torch.tensor([np.log(3) - 1, np.log(3)])
    loss = residual_loss(cross_b, light_b, torch.tensor([1.0, 0.0]))
    assert float(loss) == pytest.approx(-(np.log(0.75) + np.log(0.25)) / 2)


def test_batches_hold_pairs_of_like_length_each_once_and_change_with_the_epoch() -> None:
    words = ["x" * length for length in range(1, 101)]
    dataset = Dataset.from_dict({"question": words, "proposition": words, "label": [[0.0, 0.0]] * 100})
    sampler = LengthGroupedBatchSampler(dataset, batch_size=8, drop_last=False, seed=3)
    first = list(sampler)
    assert sorted(row for batch in first for row in batch) == list(range(100)) and len(first) == len(sampler) == 13
    assert max(max(batch) - min(batch) for batch in first) < 8
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_a_blend_finds_the_weight_that_made_the_labels() -> None:
    random = np.random.default_rng(0)
    light_r, cross_r = random.normal(0, 2, 40_000), random.normal(0, 1, 40_000)
    label_r = (random.uniform(size=40_000) < probabilities(light_r + 1.5 * cross_r - 0.7, 2.0)).astype(np.int64)
    blend = fit_blend(light_r, cross_r, label_r, depth=7)
    assert (blend.weight, blend.base, blend.temperature) == pytest.approx((1.5, -0.7, 2.0), rel=0.1)
    assert blend.depth == 7


def test_a_logit_that_misleads_gets_no_weight() -> None:
    random = np.random.default_rng(0)
    light_r = random.normal(0, 2, 5000)
    label_r = (random.uniform(size=5000) < probabilities(light_r, 1.0)).astype(np.int64)
    assert fit_blend(light_r, -light_r + random.normal(0, 9, 5000), label_r, 1).weight < 0.02
    assert fit_blend(light_r, random.normal(0, 1, 5000) - 2.0 * label_r, label_r, 1).weight == 0.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset where a word of the question stands in the relevant propositions alone, so that reading pays."""
    folder = tmp_path_factory.mktemp("cross")
    rows = small_world()
    for row in rows:
        row["question"] += " yes"
        row["proposition"] += " yes" if row["label"] else " not"
    write_rows(folder / "data", rows)
    tiny_encoder(folder / "encoder")
    return folder


def settings_of(world: Path, name: str, **cross: object) -> SelectorSettings:
    few = {"max_steps": 16, "eval_steps": 8, "logging_steps": 4, "learning_rate": 1e-3, "depth": 6, "eval_depth": 6}
    few |= {"start": str(world / "encoder"), "max_length_tokens": 48}
    return SelectorSettings(
        data=(str(world / "data"),),
        output=str(world / name),
        size="cross",
        cross=CrossSettings(**(few | cross)),
    )


@pytest.fixture(scope="module")
def trained(world: Path) -> Iterator[tuple[SelectorRecord, Path]]:
    settings = settings_of(world, "run")
    yield train_selector(settings), Path(settings.output)


def test_a_run_is_a_folder_that_retrieval_reads(trained: tuple[SelectorRecord, Path]) -> None:
    record, folder = trained
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "cross",
        "cross.json",
        "reliability.png",
        "selector.json",
        "selector.safetensors",
    ], "and no checkpoints"
    assert not list(folder.rglob("*.bin")) + list(folder.rglob("*.pt")) + list(folder.rglob("*.py"))
    assert record.cross is not None and record.cross.weight > 0 and record.cross.best_step in (8, 16)
    for read, light in zip(record.ranked, record.cross.light_ranked, strict=True):
        assert read.selector > light.selector > read.cosine
    assert json.loads((folder / "selector.json").read_text())["cross"]["pairs"] == record.cross.pairs
    card = (folder / "README.md").read_text()
    for told in ("# A cross selector", f"{record.cross.pairs:,} pairs", f"{record.ranked[0].selector:.3f}", "`cross/`"):
        assert told in card
    assert f"{record.cross.light_ranked[0].selector:.3f}" in card


def test_what_is_saved_says_what_the_record_says(trained: tuple[SelectorRecord, Path], world: Path) -> None:
    record, folder = trained
    opened = open_trained_selector(str(folder))
    assert isinstance(opened, Cross) and opened.blend.threshold == record.threshold
    datasets = read_datasets([world / "data"])
    test, texts = examples_of(datasets, "test"), texts_of(datasets, "test")
    light_n = forest_logits(opened.light.forest, test.features_nF)
    rows = read_rows_of(test.question_n, light_n, opened.blend.depth)
    cross_r = np.concatenate([opened.score(texts[row][0], [texts[row][1]]) for row in rows.tolist()]).astype(float)
    odds_n = blended_log_odds(light_n, opened.light.temperature, rows, cross_r, opened.blend)
    assert log_loss(odds_n, test.label_n, 1.0) == pytest.approx(record.figures["log loss"], abs=1e-5)
    kept_n = probabilities(odds_n, 1.0) >= record.threshold
    assert kept_n[test.label_n == 1].mean() == pytest.approx(record.figures["recall"])


def test_a_cross_folder_holds_a_whole_light_selector(trained: tuple[SelectorRecord, Path]) -> None:
    assert open_selector(str(trained[1])).threshold > 0


class Cut(Exception):
    """Stands for a kill."""


def test_a_run_that_was_cut_off_goes_on_and_ends_as_if_it_had_not(
    trained: tuple[SelectorRecord, Path], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from train.selector import cross

    settings, steps = settings_of(world, "again"), []
    inner = cross.residual_loss

    def cut(*tensors: torch.Tensor) -> torch.Tensor:
        steps.append(1)
        if len(steps) == 12:
            raise Cut
        return inner(*tensors)

    with monkeypatch.context() as patched:
        patched.setattr(cross, "residual_loss", cut)
        with pytest.raises(Cut):
            train_selector(settings)
    partial = world / "again.partial"
    assert (partial / "checkpoints" / "checkpoint-8").is_dir() and not Path(settings.output).exists()
    with pytest.raises(UserError, match="an interrupted run with other settings"):
        train_selector(settings_of(world, "again", max_steps=24))
    record = train_selector(settings)
    assert not partial.exists() and not (Path(settings.output) / "checkpoints").exists()
    for each, whole in zip(record.ranked, trained[0].ranked, strict=True):
        assert each.selector == pytest.approx(whole.selector, abs=1e-6)


def test_labels_of_a_model_train_both_sizes(world: Path, tmp_path: Path) -> None:
    """What `synth relevance --distil-from` writes differs in `labelled_by` alone."""
    rows = small_world()
    for row in rows:
        row["labelled_by"] = "model"
    data = write_rows(tmp_path / "data", rows)
    light = SelectorSettings(data=(str(data),), output=str(tmp_path / "light"))
    assert train_selector(light).ranked[0].selector > 0.85
    both = settings_of(world, "unused", max_steps=1, eval_steps=1)
    both = both.model_copy(update={"data": (str(data),), "output": str(tmp_path / "cross")})
    assert train_selector(both).ranked[0].selector > 0.85


@pytest.mark.parametrize(
    ("start", "told"),
    [("nowhere", "'nowhere'"), ("/nowhere/at/all", "no such folder"), ("untyped", "an encoder without token types")],
)
def test_a_start_that_will_not_do_is_refused(world: Path, tmp_path: Path, start: str, told: str) -> None:
    tiny_encoder(tmp_path / "untyped", token_types=False)
    start = str(tmp_path / start) if start == "untyped" else start
    with pytest.raises(UserError, match=told):
        train_selector(settings_of(world, f"never-{Path(start).name}", start=start))

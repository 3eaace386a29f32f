"""Training through the Python API: settings from a file and by keyword, as on the command line; nothing is printed, and the runs are compared."""

from pathlib import Path

import pytest

import modegraph as mg
from graph.shared.jsonl import write_jsonl
from tests.corpora import ISLES
from train.run.record import read_run

QUESTIONS = [
    {
        "id": f"q{number}",
        "question": f"Is there a page on {each.title}?",
        "answers": ["yes"],
        "gold_ids": [each.source],
        "evidence": [{"id": each.source, "quote": each.text.split(". ")[0] + "."}],
        "split": ("train", "test")[number % 2],
    }
    for number, each in enumerate(ISLES)
]
QUICK = {"max_steps": 1, "batch_size": 1}


@pytest.fixture
def pairs(isles: mg.Index, tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    summary = mg.synth.preferences(isles, tmp_path / "questions.jsonl", tmp_path / "pairs", top_k=1)
    assert summary.rows == sum(summary.by_split.values()) > 0
    return tmp_path / "pairs"


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_of_hard_negatives_outside_0_to_1_is_refused(isles: mg.Index, tmp_path: Path, share: float) -> None:
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    with pytest.raises(mg.UserError, match=rf"hard negatives: {share:g} of all rows\. Expected a share from 0 to 1"):
        mg.synth.preferences(isles, tmp_path / "questions.jsonl", tmp_path / "pairs", hard_negatives=share)
    assert not (tmp_path / "pairs").exists()


def test_a_dataset_that_lost_most_of_its_rows_or_has_none_is_an_error(isles: mg.Index, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "questions.jsonl", QUESTIONS)
    for changes, message in (
        (
            {"context_sizes": [99]},
            r"pairs: 5 rows were dropped, only 0 remain\. Expected at least one row, and no fewer",
        ),
        ({"limit": 0}, r"pairs: no row could be made\. Expected at least one row"),
    ):
        with pytest.raises(mg.UserError, match=message):
            mg.synth.preferences(isles, tmp_path / "questions.jsonl", tmp_path / "pairs", **changes)


@pytest.mark.slow
def test_models_trained_on_documents_can_be_compared(
    isles: mg.Index, tiny_run: mg.Run, pairs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sft.yaml").write_text(
        f"model: {tiny_run}\ndata: elsewhere\nmax_steps: 7\nlora: {{rank: 4, alpha: 8}}\n"
    )
    sft = mg.train.sft(tmp_path / "sft.yaml", data=pairs, out=tmp_path / "sft", lora={"rank": 2}, **QUICK)
    assert read_run(sft.folder) == sft.record and sft.stage == "sft" and "train_loss" in sft.metrics
    lora = sft.settings["lora"]
    assert (lora["rank"], lora["alpha"], sft.settings["data"]) == (2, 8, str(pairs))
    ms = mg.train.ms(model=sft, data=pairs, out=tmp_path / "ms", **QUICK)
    with pytest.raises(mg.UserError, match="no such file"):
        mg.train.reward(model=tiny_run, data=tmp_path / "none", out=tmp_path / "reward")
    compared = mg.compare([ms, sft], data=pairs, base=tiny_run, max_answer_tokens=8)
    assert capfd.readouterr() == ("", "")

    frames = compared.to_frames()
    assert list(frames["measures"].columns) == ["measure", "ms", "sft", "untuned"]
    differences = frames["differences"]
    assert set(differences["policy"]) == {"sft", "untuned"} and (differences["low"] <= differences["high"]).all()
    shown = compared._repr_html_()
    assert (
        "Difference from ms" in shown
        and "95 % interval from a paired bootstrap" in shown
        and "Results" in str(compared)
    )
    compared.write(tmp_path / "report")
    assert (tmp_path / "report" / "report.html").exists()
    assert isles.ask("Where is Tarn?", model=ms, max_answer_tokens=4).model.startswith("ms")


def test_a_comparison_of_no_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mg.UserError, match=r"^compare: no runs\. Expected the folder of at least one run"):
        mg.compare([], data=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rat": 1}, r"^train.ms: unknown key 'learning_rat'\. Did you mean 'learning_rate'"),
        ({"label_smoothing": 0}, r"^train.ms: label_smoothing = 0"),
        ({"lora": {"rnk": 1}}, r"^train.ms: unknown key 'lora.rnk'\. Did you mean 'lora.rank'"),
    ],
)
def test_settings_are_checked_before_anything_is_done(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(mg.UserError, match=message):
        mg.train.ms(model="m", data="d", out=tmp_path / "ms", **changes)
    with pytest.raises(mg.UserError, match=r"^train.sft: 'output' is missing"):
        mg.train.sft(model="m", data="d")
    with pytest.raises(mg.UserError, match=r"^train.reward: unknown key 'centre'\. Did you mean 'center'"):
        mg.train.reward(model="m", data="d", centre=1)
    with pytest.raises(mg.UserError, match="no such file"):
        mg.train.selector(tmp_path / "none.yaml")

"""`train verifier`: from claims to a folder that marks what it should, and data that is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import modegraph as mg
from data_synth.claims.claims import CLAIMS, ClaimPassage, ClaimRow, claim_rows
from eval.list_runs import find_runs
from graph.answer.verifier import FEATURES, Ground, judge_claims, open_verifier, probability_of_features
from graph.documents.questions import SPLITS
from graph.errors import UserError
from modegraph.cli import build_app
from tests.places import ROOT
from train.run.settings import VerifierSettings
from train.verifier import claims_of, read_claims, threshold_of, train_verifier


def examples() -> list[ClaimPassage]:
    """The Markdown documents of examples/, each one passage."""
    files = sorted((ROOT / "examples" / "documents").glob("*.md"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    return [
        ClaimPassage(file.name, text.partition("\n")[0].strip("# "), text)
        for file, text in zip(files, texts, strict=True)
    ]


@pytest.fixture(scope="module")
def rows() -> list[ClaimRow]:
    return [row for row in claim_rows(examples(), rounds=20, seed=0) if isinstance(row, ClaimRow)]


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    for split in SPLITS:
        lines = [json.dumps(row) for row in rows if row["split"] == split]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, rows: list[ClaimRow]) -> Path:
    return write(tmp_path_factory.mktemp("claims") / "claims", [CLAIMS.to_json(row) for row in rows])


def settings(data: Path, output: Path, **more: object) -> VerifierSettings:
    return VerifierSettings.model_validate({"data": (str(data),), "output": str(output), **more})


def test_a_trained_verifier_tells_broken_claims_of_documents_that_it_has_not_seen(data: Path, tmp_path: Path) -> None:
    record = train_verifier(settings(data, tmp_path / "verifier"))
    assert record.figures["balanced accuracy"] > 0.85 > record.rule["balanced accuracy"]
    assert record.figures["supported claims marked"] < 0.08 and record.features == FEATURES
    assert {path.name for path in (tmp_path / "verifier").iterdir()} == {
        *("verifier.safetensors", "verifier.json", "reliability.png", "README.md"),
    }
    verifier = open_verifier(str(tmp_path / "verifier"))
    ground = Ground.of([("Lantern", "The Lantern was built in 1911 by Ada Marlow.")])
    good, wrong = judge_claims(
        verifier, ["The Lantern was built in 1911.", "The Lantern was not built in 1921."], ground
    )
    assert good < 0.1 and wrong >= verifier.threshold >= 0.5
    again = train_verifier(settings(data, tmp_path / "again"))
    one, two = (tmp_path / name / "verifier.safetensors" for name in ("verifier", "again"))
    assert one.read_bytes() == two.read_bytes() and again.figures == record.figures


def test_one_folder_needs_no_list() -> None:
    assert VerifierSettings.model_validate({"data": "claims", "output": "verifier"}).data == ("claims",)


def test_the_shipped_verifier_is_good_at_them_too(rows: list[ClaimRow]) -> None:
    verifier, claims = open_verifier(""), claims_of(rows[:400])
    marked_n = probability_of_features(verifier, claims.features_nF) >= verifier.threshold
    assert marked_n[claims.label_n == 1].mean() > 0.85 and marked_n[claims.label_n == 0].mean() < 0.03


@pytest.mark.parametrize(
    ("claim", "supported"),
    [
        ("The combined area of the four inhabited Halmaren islands is 375 square kilometres.", True),
        ("The combined area of the four inhabited Halmaren islands is 385 square kilometres.", False),
        ("Great Orrin has an area of 375 square kilometres.", False),
        ("Sundrey is the largest island and holds the capital, Saltmere.", False),
    ],
)
def test_the_shipped_verifier_reads_a_sentence_with_what_it_refers_to(claim: str, supported: bool) -> None:
    text = (ROOT / "examples/documents/halmaren-isles.md").read_text(encoding="utf-8").partition("\n")[2]
    verifier = open_verifier("")
    (probability,) = judge_claims(verifier, [claim], Ground.of([("The Halmaren Isles", text)]))
    assert (probability < verifier.threshold) == supported


def test_the_threshold_keeps_its_promise_on_what_it_was_chosen_on() -> None:
    supported_n = np.random.default_rng(0).uniform(0.8, 1, 1000)
    for share in (0.01, 0.03, 0.2):
        assert (supported_n >= threshold_of(supported_n, share)).mean() <= share


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: [row for row in rows if row["split"] != "dev"], "dev: 0 broken of 0 claims"),
        (lambda rows: [row for row in rows if row["supported"]], "train: 0 broken of"),
        (lambda rows: [{**rows[0], "claim": " "}, *rows[1:]], "line 1: the claim is empty"),
        (lambda rows: [{**rows[0], "supported": "yes"}, *rows[1:]], "line 1: TypeError"),
        (lambda rows: [{**rows[0], "kind": None}, *rows[1:]], "line 1: TypeError"),
        (lambda rows: [*rows, {**rows[0], "split": other(rows[0]["split"])}], "in both"),
    ],
)
def test_data_that_cannot_be_learned_from(tmp_path: Path, rows: list[ClaimRow], change: Any, expected: str) -> None:
    changed = change([CLAIMS.to_json(row) for row in rows])
    with pytest.raises(UserError, match=expected):
        read_claims([write(tmp_path / "claims", changed)])


def other(split: str) -> str:
    return "test" if split == "train" else "train"


def test_a_folder_without_claims_and_a_place_that_is_taken(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UserError, match=r"no train\.jsonl, dev\.jsonl, test\.jsonl"):
        read_claims([tmp_path])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="taken"):
        train_verifier(settings(data, tmp_path / "taken"))


def test_the_command_says_what_it_measured(tmp_path: Path, data: Path) -> None:
    made = CliRunner().invoke(build_app(), ["train", "verifier", "--data", str(data), "--out", str(tmp_path / "v")])
    assert made.exit_code == 0, made.output
    assert "balanced accuracy" in made.stdout and "broken, number" in made.stdout
    [found] = find_runs(tmp_path)
    assert (found.name, found.stage, found.state) == ("v", "verifier", "finished")


def test_python_trains_one_that_answers_are_read_by(tmp_path: Path, data: Path) -> None:
    run = mg.train.verifier(data=[str(data)], out=tmp_path / "v", max_trees=20)
    assert run.stage == "verifier" and run.metrics["AUROC"] > 0.8 and open_verifier(str(run)).threshold >= 0.5

"""`train verifier`: from claims to a saved verifier that marks unsupported claims, and data that is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import modegraph as mg
from data_synth.claims.claims import CLAIMS, ClaimPassage, ClaimRow, claim_rows
from graph.answer.verifier import FEATURES, SECOND_STAGE, Premise, probability_of_readings, word_verifier
from graph.documents.questions import SPLITS
from graph.errors import UserError
from graph.shared.runs import find_runs
from tests.commands import run
from tests.places import ROOT
from train.run.settings import VerifierSettings
from train.verifier import claims_of, fit_second_stage, licences, read_claims, read_real, threshold_of, train_verifier


def example_passages() -> list[ClaimPassage]:
    """The Markdown documents in examples/documents, each as one passage."""
    files = sorted((ROOT / "examples" / "documents").glob("*.md"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    return [
        ClaimPassage(file.name, text.partition("\n")[0].strip("# "), text)
        for file, text in zip(files, texts, strict=True)
    ]


@pytest.fixture(scope="module")
def rows() -> list[ClaimRow]:
    return [row for row in claim_rows(example_passages(), per_passage=20, seed=0) if isinstance(row, ClaimRow)]


def write_splits(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    for split in SPLITS:
        lines = [json.dumps(row) for row in rows if row["split"] == split]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, rows: list[ClaimRow]) -> Path:
    return write_splits(tmp_path_factory.mktemp("claims") / "claims", [CLAIMS.to_json(row) for row in rows])


def settings(data: Path, output: Path, **more: object) -> VerifierSettings:
    return VerifierSettings.model_validate({"data": (str(data),), "output": str(output), **more})


@pytest.mark.long
def test_a_trained_verifier_finds_falsified_claims_of_documents_outside_its_training(
    data: Path, tmp_path: Path
) -> None:
    record = train_verifier(settings(data, tmp_path / "verifier"))
    assert record.figures["balanced accuracy"] > 0.85 > record.rule["balanced accuracy"]
    assert record.figures["supported claims marked"] < 0.08 and record.features == FEATURES
    assert {path.name for path in (tmp_path / "verifier").iterdir()} == {
        *("verifier.safetensors", "verifier.json", "reliability.png", "README.md")
    }
    verifier = word_verifier(str(tmp_path / "verifier"))
    premise = Premise.of([("Lantern", "The Lantern was built in 1911 by Ada Marlow.")])
    good, wrong = verifier.judge(["The Lantern was built in 1911.", "The Lantern was not built in 1921."], premise)
    assert good < 0.1 and wrong >= verifier.threshold >= 0.5
    again = train_verifier(settings(data, tmp_path / "again"))
    one, two = (tmp_path / name / "verifier.safetensors" for name in ("verifier", "again"))
    assert one.read_bytes() == two.read_bytes() and again.figures == record.figures


def test_a_single_folder_may_be_given_without_a_list() -> None:
    assert VerifierSettings.model_validate({"data": "claims", "output": "verifier"}).data == ("claims",)


def test_the_shipped_verifier_ranks_claims_and_marks_hardly_any_supported_one(rows: list[ClaimRow]) -> None:
    """Its threshold was chosen on sentences labelled by people: most claims that falsify a sentence by a small change
    score below it.
    """
    verifier, claims = word_verifier(""), claims_of(rows[:400])
    probability_n = probability_of_readings(verifier, claims.readings)
    marked_n = probability_n >= verifier.threshold
    assert roc_auc_score(claims.label_n, probability_n) > 0.85
    assert 0.1 < marked_n[claims.label_n == 1].mean() and marked_n[claims.label_n == 0].mean() < 0.01


@pytest.mark.parametrize(
    "wrong",
    [
        "The combined area of the four inhabited Halmaren islands is 385 square kilometres.",
        "Great Orrin has an area of 375 square kilometres.",
        "Sundrey is the largest island and holds the capital, Saltmere.",
    ],
)
def test_the_shipped_verifier_resolves_a_reference_to_an_earlier_sentence(wrong: str) -> None:
    text = (ROOT / "examples/documents/halmaren-isles.md").read_text(encoding="utf-8").partition("\n")[2]
    right = "The combined area of the four inhabited Halmaren islands is 375 square kilometres."
    verifier = word_verifier("")
    good, bad = verifier.judge([right, wrong], Premise.of([("The Halmaren Isles", text)]))
    assert good < verifier.threshold and good < bad


REAL_SETS = ("ants", "bees")


@pytest.fixture(scope="module")
def labelled_sets(tmp_path_factory: pytest.TempPathFactory, rows: list[ClaimRow]) -> Path:
    """Two sets as `data import support` writes them: the train and dev rows of `data`, and the same rows with every
    tenth label wrong.
    """
    labelled = [
        CLAIMS.to_json(row) | {"dataset": name, "supported": row.supported != (name == "bees" and at % 10 == 0)}
        for at, row in enumerate(rows)
        if row.split != "test"
        for name in REAL_SETS
    ]
    folder = write_splits(tmp_path_factory.mktemp("labelled") / "labelled", labelled)
    (folder / "test.jsonl").unlink()
    (folder / "summary.json").write_text(json.dumps({"origin": {"Set ants, licence": "MIT", "Rounds": "4"}}))
    return folder


@pytest.mark.slow
def test_a_two_stage_verifier_marks_at_most_max_marked_of_the_supported_sentences_of_each_dev_set(
    data: Path, labelled_sets: Path, tmp_path: Path
) -> None:
    two_stages = settings(data, tmp_path / "both", real=str(labelled_sets), max_marked=0.05, max_trees=40)
    record = train_verifier(two_stages)
    verifier = word_verifier(str(tmp_path / "both"))
    assert verifier.second is not None and verifier.threshold == pytest.approx(record.threshold)
    sets, _ = read_real(labelled_sets, ())
    for name, figures in zip(REAL_SETS, record.real, strict=True):
        dev = claims_of(sets[name]["dev"])
        marked_n = probability_of_readings(verifier, dev.readings) >= verifier.threshold
        share = float(marked_n[dev.label_n == 0].mean())
        assert (figures.name, figures.dev) == (name, len(dev.label_n)) and figures.supported_marked == share <= 0.05
    worst = max(figures.supported_marked for figures in record.real)
    assert worst > 0.02, "the threshold should be about as low as the limit allows"
    assert [figures.licence for figures in record.real] == ["MIT", "not stated"]
    card = (tmp_path / "both" / "README.md").read_text(encoding="utf-8")
    assert "| ants | MIT |" in card and "Sentences labelled by people" in card

    train_verifier(two_stages.model_copy(update={"output": str(tmp_path / "again")}))
    one, two = (tmp_path / name / "verifier.safetensors" for name in ("both", "again"))
    assert one.read_bytes() == two.read_bytes()
    trees = train_verifier(settings(data, tmp_path / "trees", max_trees=40))
    alone = word_verifier(str(tmp_path / "trees"))
    assert alone.second is None and trees.real == () and np.array_equal(alone.forest.value_V, verifier.forest.value_V)


def test_equally_weighted_opposite_sets_cancel_out_and_a_constant_input_gets_no_weight() -> None:
    """Two sets with opposite labels, one of them ten times as large as the other, cancel out only if their weights are equal in total."""
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=(200, 1)), rng.normal(size=(2000, 1))
    input_nS = np.column_stack([np.concatenate([few, many]), np.full(2200, 3.0)])
    label_n = np.concatenate([few[:, 0] > 0, many[:, 0] < 0]).astype(np.int64)
    equal_weight_n = np.repeat([1000 / 200, 1000 / 2000], [200, 2000])
    equal, unequal = (fit_second_stage(input_nS, label_n, weight_n) for weight_n in (equal_weight_n, np.ones(2200)))
    assert abs(equal.weight_S[0]) < 0.2 and unequal.weight_S[0] < -1 and equal.weight_S[1] == 0
    assert np.isfinite(equal.logits(np.array([[1e9, -1e9]]))).all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "names", "expected"),
    [
        (lambda row: row, ("wasps",), "no set 'wasps'. Expected one of ants, bees"),
        (
            lambda row: {**row, "supported": True},
            ("ants",),
            "ants, train: 0 of .* rows are unsupported.*other sets in `real_sets`",
        ),
        (
            lambda row: {**row, "further": "a text"},
            (),
            r"train.jsonl line 1: TypeError: expected `further` to be a list of strings",
        ),
        (lambda row: {**row, "dataset": 3}, (), "train.jsonl line 1: TypeError: expected strings"),
    ],
)
def test_unusable_labelled_sentences_are_refused(
    tmp_path: Path, labelled_sets: Path, change: Any, names: tuple[str, ...], expected: str
) -> None:
    rows = [
        json.loads(line)
        for name in ("train", "dev")
        for line in (labelled_sets / f"{name}.jsonl").open(encoding="utf-8")
    ]
    with pytest.raises(UserError, match=expected):
        read_real(write_splits(tmp_path / "labelled", [change(row) for row in rows]), names)


def test_the_shipped_verifier_has_two_stages() -> None:
    second = word_verifier("").second
    assert second is not None and second.weight_S.shape == (len(SECOND_STAGE),)
    assert second.weight_S[SECOND_STAGE.index("stems found")] < 0 < second.weight_S[0]


def test_a_folder_without_a_summary_states_no_licences() -> None:
    assert licences(Path("nowhere")) == {}


def test_the_share_marked_stays_within_its_limit_on_the_claims_that_set_the_threshold() -> None:
    supported_n = np.random.default_rng(0).uniform(0.8, 1, 1000)
    for share in (0.01, 0.03, 0.2):
        marked = (supported_n >= threshold_of(supported_n, share)).mean()
        assert share - 0.003 < marked <= share, "the threshold should be about as low as the limit allows"
    hundred_n = np.linspace(0.6, 0.9, 100)
    assert (hundred_n >= threshold_of(hundred_n, 0.42)).sum() == 42
    assert not (np.ones(10) >= threshold_of(np.ones(10), 0.1)).any()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: [row for row in rows if row["split"] != "dev"], "dev: 0 of 0 rows are unsupported"),
        (lambda rows: [row for row in rows if row["supported"]], "train: 0 of .* rows are unsupported"),
        (lambda rows: [{**rows[0], "claim": " "}, *rows[1:]], "line 1: the claim is empty"),
        (lambda rows: [{**rows[0], "supported": "yes"}, *rows[1:]], "line 1: TypeError"),
        (lambda rows: [{**rows[0], "kind": None}, *rows[1:]], "line 1: TypeError"),
        (lambda rows: [*rows, {**rows[0], "split": other_split(rows[0]["split"])}], "1 passages in both"),
        (
            lambda rows: [
                *rows,
                {**rows[0], "split": other_split(rows[0]["split"]), "passage": "A.", "further": [rows[0]["passage"]]},
            ],
            "1 passages in both",
        ),
    ],
)
def test_unusable_claims_are_refused(tmp_path: Path, rows: list[ClaimRow], change: Any, expected: str) -> None:
    changed = change([CLAIMS.to_json(row) for row in rows])
    with pytest.raises(UserError, match=expected):
        read_claims([write_splits(tmp_path / "claims", changed)])


def other_split(split: str) -> str:
    return "test" if split == "train" else "train"


def test_a_folder_without_claims_and_an_existing_output_are_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UserError, match=r"none of train\.jsonl, dev\.jsonl, test\.jsonl"):
        read_claims([tmp_path])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="taken"):
        train_verifier(settings(data, tmp_path / "taken"))


@pytest.mark.long
def test_the_command_prints_its_figures(tmp_path: Path, data: Path) -> None:
    result = run("train", "verifier", "--data", data, "--out", tmp_path / "v")
    assert result.exit_code == 0, result.output
    assert "balanced accuracy" in result.stdout and "broken, number" in result.stdout
    [found] = find_runs(tmp_path)
    assert (found.name, found.stage, found.state) == ("v", "verifier", "finished")


@pytest.mark.long
def test_the_python_function_trains_a_verifier_that_can_be_opened(tmp_path: Path, data: Path) -> None:
    run = mg.train.verifier(data=[str(data)], out=tmp_path / "v", max_trees=20)
    assert run.stage == "verifier" and run.metrics["AUROC"] > 0.8 and word_verifier(str(run)).threshold >= 0.5

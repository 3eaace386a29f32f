"""`modegraph eval retrieval --selectors`: average precision computed by hand, costs from the traces, the table, the JSON report, and refused input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from eval.cli_measure import add_retrieval
from eval.metrics.grounding import average_precision
from eval.retrieval import CANDIDATES, SELECTION
from graph.build.build import build_index
from graph.errors import UserError
from graph.index.index import Index, open_index
from graph.models.encoder import open_encoder
from graph.retrieve.learned.light import Classifier, save_selector
from graph.store.index_settings import IndexSettings
from graph.trees import Forest
from graph.types import LanguageModel
from serve.ledger import Ledger
from tests.corpora import ISLES
from tests.fakes import ScriptedModel

QUESTIONS = [
    {
        "id": "q1",
        "question": "When was the Lantern ferry built?",
        "answers": ["1911"],
        "gold_ids": ["lantern"],
        "evidence": [{"id": "lantern", "quote": "She was built in 1911 by the Marlow Yard."}],
    },
    {
        "id": "q2",
        "question": "Where was the founder of Marlow Yard born?",
        "answers": ["Tarn"],
        "gold_ids": ["marlow", "ada"],
        "evidence": [
            {"id": "marlow", "quote": "It was founded by Ada Marlow in 1880."},
            {"id": "ada", "quote": "She was born in Tarn and died on 4 May 1931."},
        ],
    },
    {"id": "q3", "question": "How long does kelp bread keep?", "answers": ["nine days"], "gold_ids": ["bread"]},
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, questions, and a selector that selects everything."""
    folder = tmp_path_factory.mktemp("selectors")
    build_index(folder / "index", ISLES, IndexSettings(), open_encoder)
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    (folder / "select-all").mkdir()
    save_selector(folder / "select-all", constant_classifier(0.9, open_index(folder / "index")))
    return folder


def constant_classifier(probability: float, index: Index) -> Classifier:
    """A classifier with a single leaf, which gives every candidate this probability."""
    leaf, odds = np.zeros(1, np.int64), float(np.log(probability / (1 - probability)))
    forest = Forest(leaf, np.zeros(1), leaf, leaf, np.array([odds]), leaf, 0.0, 0)
    return Classifier(forest, 1.0, 0.5, index.encoder_source.fingerprint)


def run(workspace: Path, *arguments: object, model: ScriptedModel | None = None) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)

    def open_model(spec: str, ledger: Path | None = None) -> LanguageModel:
        assert model is not None, "a model was opened. Expected none, as the selectors of this test call none"
        return model if ledger is None else Ledger(model, ledger)

    add_retrieval(app, open_model)
    common = ["retrieval", workspace / "index", "--questions", workspace / "questions.jsonl"]
    common += [] if "--modes" in arguments else ["--modes", "local"]
    result = CliRunner().invoke(app, [str(word) for word in (*common, *arguments)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def test_average_precision_matches_values_computed_by_hand() -> None:
    assert average_precision([False, True], 3) == pytest.approx(1 / 6)
    assert average_precision([], 2) == average_precision([False], 1) == 0.0


def first_choice_model(prompts: list[str]) -> ScriptedModel:
    """A model that selects the first statement shown and always gives the same answer; its prompts are appended to `prompts`."""

    def reply(request: Any) -> str:
        prompts.append(request.messages[1].content)
        return json.dumps({"selected": [1]} if "selected" in str(request.schema) else {"answer": "1911"})

    return ScriptedModel(reply)


def test_only_the_llm_selector_uses_calls_and_tokens(workspace: Path, tmp_path: Path) -> None:
    prompts: list[str] = []
    folder = workspace / "select-all"
    result = run(
        workspace,
        "--selectors",
        "threshold",
        folder,
        "llm",
        "--model",
        "any",
        "--json",
        "--out",
        tmp_path / "out",
        model=first_choice_model(prompts),
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found["systems"]) == ["threshold", str(folder), "llm"] and found["differences_from"] == "threshold"
    assert found["questions"] == 3 and found["questions_with_gold_sentences"] == 2
    for name in ("threshold", str(folder)):
        assert found["systems"][name]["calls/query"] == found["systems"][name]["tokens/query"] == 0
    costs = found["systems"]["llm"]
    assert costs["calls/query"] == 3, "each query takes one call to start, one to prune and one to answer"
    assert found["replayed_calls"]["llm"] == 0, "a first run has nothing to replay"
    assert costs["tokens/query"] > 30 and len(prompts) == 3 * 3, (
        "three calls for each of three questions; their selections are measured from the ledger"
    )
    assert found["systems"][str(folder)][SELECTION] > 0
    assert set(found["Recall@5 differences"]) == {str(folder), "llm"}
    assert json.loads((tmp_path / "out" / "retrieval.json").read_text()) == found


def test_the_table_has_one_row_per_selector(workspace: Path) -> None:
    result = run(workspace, "--selectors", "threshold", workspace / "select-all")
    assert result.exit_code == 0, result.output
    assert f"among the same {CANDIDATES} candidates," in " ".join(result.stdout.split())
    assert len([line for line in result.stdout.splitlines() if line.startswith(("threshold ", str(workspace)))]) == 2


def test_without_gold_sentences_there_is_no_precision_column(workspace: Path, tmp_path: Path) -> None:
    plain = [{key: value for key, value in row.items() if key != "evidence"} for row in QUESTIONS]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, plain)))
    result = run(
        workspace, "--selectors", "threshold", "--questions", tmp_path / "questions.jsonl", "--modes", "global"
    )
    assert result.exit_code == 0 and SELECTION not in result.stdout and "calls/query" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--selectors", "none", "threshold", "--modes", "hops"),
            "--modes hops with 2 selectors. Expected one of the modes local and global",
        ),
        (("--selectors", "none", "threshold", "--modes", "local", "global"), "one of the modes local and global"),
        (("--selectors", "threshold", "threshold"), "each selector once"),
        (("--selectors", "llm"), "llm without --model"),
        (("--selectors", "no-such"), "selector = 'no-such'"),
        (("--selectors", "threshold", "./nowhere/at-all"), "no such folder"),
        (("--selectors", "threshold", "--split", "train"), "--split train: no such questions"),
    ],
)
def test_bad_input_is_refused(workspace: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(workspace, *arguments)


def test_a_folder_without_a_selector_and_a_selector_for_another_encoder_are_refused(
    workspace: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match=r"no selector.safetensors\. Expected the folder that `modegraph train selector` made"
    ):
        run(workspace, "--selectors", "threshold", tmp_path)
    other = constant_classifier(0.9, open_index(workspace / "index"))
    save_selector(tmp_path, Classifier(other.forest, 1.0, 0.5, "another encoder"))
    with pytest.raises(UserError, match="trained with encoder another enco"):
        run(workspace, "--selectors", "threshold", tmp_path)


def test_one_selector_needs_no_gold_sentences(workspace: Path, tmp_path: Path) -> None:
    numbered = [{**row, "evidence": [], "supporting_sentences": [[row["gold_ids"][0], 0]]} for row in QUESTIONS]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, numbered)))
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "lantern", "text": "The Lantern."}) + "\n")
    arguments = ("--questions", tmp_path / "questions.jsonl")
    assert run(workspace, *arguments, "--selectors", "none").exit_code == 0
    with pytest.raises(UserError, match="sentence"):
        run(workspace, *arguments, "--selectors", "none", "threshold")

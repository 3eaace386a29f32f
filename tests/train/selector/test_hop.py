"""`modegraph train selector --size hop`, from an index and its questions to a folder that `hops` reads."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

import modegraph as mg
from graph.build.build import build_index
from graph.index.index import open_index
from graph.models.encoder import open_encoder
from graph.retrieve.hops.hop_features import HopRows, Ways
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.runs import find_runs
from graph.store.index_settings import IndexSettings
from graph.types import Document
from tests import commands
from train.selector.hop import labels, read_indexes

SONGS = [f"{first} {second}" for first in ("Amber", "Birch", "Cedar", "Dusty") for second in ("Rain", "Lamp", "Road")]
SINGERS = [f"{first} {second}" for first in ("Ona", "Piet", "Rolf", "Suna") for second in ("Vell", "Marsh", "Tarn")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of songs and singers, and a file of questions with their splits; each needs the document of a song and that of its singer."""
    folder, minilm = tmp_path_factory.mktemp("songs"), open_encoder("minilm")
    documents = [
        document
        for song, singer in zip(SONGS, SINGERS, strict=True)
        for document in (
            Document(song, song, f"{song} is a song that {singer} performed. It was played in every port."),
            Document(singer, singer, f"{singer} grew up on an island and kept bees."),
        )
    ]
    build_index(folder / "index", documents, IndexSettings(), lambda spec: minilm)
    splits = ["train"] * 8 + ["dev"] * 2 + ["test"] * 2
    rows = [
        {"id": song, "question": f"Where did the performer of {song} grow up?", "answers": ["an island"]}
        | {"gold_ids": [song, singer], "split": split}
        for song, singer, split in zip(SONGS, SINGERS, splits, strict=True)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def run(folder: Path, out: Path, *more: str) -> Result:
    questions = f"hop.questions=[{folder / 'questions.jsonl'}]"
    arguments = ["--data", folder / "index", "--size", "hop", "--out", out, "--set", questions]
    return commands.run("train", "selector", *arguments, "--set", "min_examples_per_leaf=5", *more)


def test_a_run_is_a_folder_that_hops_reads(world: Path, tmp_path: Path) -> None:
    result = run(world, tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "README.md",
        "hop.safetensors",
        "selector.json",
    ]
    assert record["question_counts"] == {"train": 8, "dev": 2, "test": 2}
    [ranked] = record["ranked"]
    assert ranked["questions"] == 2 and ranked["recall"] >= ranked["recall_before"] and ranked["recall"] == 1
    [listed] = find_runs(tmp_path)
    assert listed.figures == {"test Recall@5 before, index": ranked["recall_before"], "test Recall@5, index": 1}
    card = (tmp_path / "run" / "README.md").read_text()
    for value in (record["encoder"], *record["questions"].values(), *record["features"]):
        assert value in card
    settings = RetrieveSettings(mode="hops", top_k=2, selector=str(tmp_path / "run"))
    index, question = open_index(world / "index"), "Where did the performer of Dusty Road grow up?"
    found, plain = (retrieve(index, question, each) for each in (settings, RetrieveSettings(mode="hops", top_k=2)))
    assert {each.item.source for each in found.passages} == {"Dusty Road", "Suna Tarn"}
    assert [each.score for each in found.passages] != [each.score for each in plain.passages], (
        "the trees should change the scores"
    )
    hop = {"questions": [str(world / "questions.jsonl")]}
    again = mg.train.selector(
        data=[str(world / "index")], out=tmp_path / "again", size="hop", hop=hop, min_examples_per_leaf=5
    )
    assert again.metrics["test Recall@5, index"] == 1 >= again.metrics["test Recall@5 before, index"]
    one, two = ((tmp_path / name / "hop.safetensors").read_bytes() for name in ("run", "again"))
    assert one == two


def test_unusable_training_data_is_reported_before_training(world: Path, tmp_path: Path) -> None:
    too_few = run(world, tmp_path / "run", "--set", "hop.questions=[]")
    assert "indexes: 1, files of questions: 0" in str(too_few.exception)
    (tmp_path / "questions.jsonl").write_text('{"id": "a", "question": "Who?", "gold_ids": ["elsewhere"]}\n')
    elsewhere = run(world, tmp_path / "run", "--set", f"hop.questions=[{tmp_path / 'questions.jsonl'}]")
    assert "no question with a gold document" in str(elsewhere.exception)
    row = {"id": "a", "question": "Where?", "gold_ids": [SONGS[0]], "split": "train"}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row) + "\n")
    one_split = run(world, tmp_path / "run", "--set", f"hop.questions=[{tmp_path / 'questions.jsonl'}]")
    assert "no question in dev, test" in str(one_split.exception)
    rows = [json.loads(line) for line in (world / "questions.jsonl").read_text().splitlines()]
    all_gold = [json.dumps({**row, "gold_ids": [*SONGS, *SINGERS]}) for row in rows]
    (tmp_path / "questions.jsonl").write_text("\n".join(all_gold) + "\n")
    one_class = run(world, tmp_path / "run", "--set", f"hop.questions=[{tmp_path / 'questions.jsonl'}]")
    assert "rows are positive. Expected both classes in every split" in str(one_class.exception)
    assert not (tmp_path / "run").exists()


def test_indexes_of_the_same_name_have_different_names_in_the_record(world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "index", tmp_path / "index")
    folders = [str(world / "index"), str(tmp_path / "index")]
    names = [each.name for each in read_indexes(folders, [str(world / "questions.jsonl")] * 2)]
    assert names == [f"{world.name}/index", f"{tmp_path.name}/index"]


def test_labels_and_the_mask_of_training_rows_follow_the_gold_documents() -> None:
    """The candidates are passages of gold document 4, of document 5, and two of gold document 6; the two ways start at the first two candidates."""
    ways = Ways(bridge_K=np.array([0, 1]), proposition_K=np.array([0, 0]), entity_K=np.array([0, 0]))
    rows = HopRows(
        features_XF=np.zeros((8, 1), np.float32),
        candidates_C=np.array([7, 8, 9, 10]),
        candidate_X=np.array([2, 2, 1, 3, 0, 1, 2, 3]),
        way_X=np.array([0, 1, 0, 0, -1, -1, -1, -1]),
        ways=ways,
    )
    label_X, labelled_X = labels(rows, np.array([4, 5, 6, 6]), frozenset({4, 6}))
    assert label_X.tolist() == [1, 0, 0, 0, 1, 0, 1, 0]
    assert labelled_X.tolist() == [True, False, True, False, True, True, True, False]

"""A finished cell depends on its settings and on the contents of the files that they name; it is filled again only if one of these changes."""

from pathlib import Path

import pytest
import yaml

from eval.run.cells import list_cells
from eval.run.config import MatrixSettings
from graph.config import load_settings
from graph.shared.jsonl import write_jsonl
from tests.eval.run.conftest import CONFIG, run
from tests.fakes import HashEncoder

WEIGHTS, TOKENIZER, TEMPLATE = "part/model.safetensors", "part/tokenizer.json", "part/chat_template.jinja"
PARTS = (WEIGHTS, TOKENIZER, TEMPLATE)
ROWS, EXAMPLES = "rows.jsonl", "examples.txt"
IMPORT = {"indexes": {"": {"extractor": "import", "import_file": ROWS}}}
LLM_EXTRACTION = {"extractor": "llm", "extractor_model": "hf:part"}


def encoder_in(spec: str) -> HashEncoder:
    """An encoder whose fingerprint is the contents of the weight file in its folder, or the spec if there is no such file."""
    file = Path(spec) / "model.safetensors"
    return HashEncoder(file.read_text() if file.is_file() else spec)


def import_rows(text: str) -> list[dict]:
    return [{"id": "ada", "entities": ["Ada Marlow"], "triples": [["Ada Marlow", text, "Tarn"]]}]


@pytest.fixture
def parts(home, monkeypatch):
    """The files that the configurations name, in the working directory."""
    monkeypatch.chdir(home)
    (home / "part").mkdir()
    for name in ("part/config.json", *PARTS, EXAMPLES):
        (home / name).write_text("{}")
    write_jsonl(home / ROWS, import_rows("born"))
    return home


def keys(home, config) -> list[str]:
    """The file names of all cells."""
    (home / "config.yaml").write_text(yaml.safe_dump(CONFIG | config), encoding="utf-8")
    settings = load_settings(MatrixSettings, home / "config.yaml")
    return [cell.file.name for cell in list_cells(settings, home, home / "out", encoder_in)]


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({"indexes": {"": {"encoder": "part"}}}, (WEIGHTS,)),
        (IMPORT, (ROWS,)),
        ({"indexes": {"": LLM_EXTRACTION}}, PARTS),
        ({"indexes": {"": {**LLM_EXTRACTION, "extractor_examples": EXAMPLES}}}, (*PARTS, EXAMPLES)),
        ({"indexes": {"": {"summary_model": "hf:part"}}}, PARTS),
        ({"helper": "hf:part"}, PARTS),
        ({"models": {"m": "hf:part"}, "metrics": ["f1"]}, PARTS),
        ({"models": {"m": "vllm:part"}, "metrics": ["f1"]}, PARTS),
        ({"retrievers": {"a": {"reranker": "./part"}}}, PARTS),
        ({"retrievers": {"a": {"mode": "local", "selector": "./part"}}}, PARTS),
        ({}, ()),
    ],
    ids=lambda value: str(value)[:60],
)
def test_changed_contents_under_the_same_name_give_another_cell(parts, config, changed):
    before = keys(parts, config)
    for file in (*PARTS, ROWS, EXAMPLES):
        original = (parts / file).read_text()
        (parts / file).write_text(original + " ")
        after = keys(parts, config)
        assert set(before).isdisjoint(after) if file in changed else before == after, file
        (parts / file).write_text(original)
    assert keys(parts, config) == before


def test_a_retrained_encoder_has_new_cells(parts):
    config = {"indexes": {"": {"encoder": "part"}}}
    run(parts, open_encoder=encoder_in, **config)
    assert run(parts, open_encoder=encoder_in, **config)[0].json["cells"] == {"found": 2, "filled": 0}
    (parts / WEIGHTS).write_text("retrained")
    done, _, _ = run(parts, open_encoder=encoder_in, **config)
    assert not done.failed and done.json["cells"] == {"found": 0, "filled": 2}


def test_a_changed_import_file_is_read_again(parts):
    run(parts, **IMPORT)
    write_jsonl(parts / ROWS, import_rows("buried"))
    assert run(parts, **IMPORT)[0].json["cells"] == {"found": 0, "filled": 2}
    assert len(list((parts / "out/indexes").glob("*/manifest.json"))) == 2

"""What a finished cell depends on: contents behind names, and the code. A change of these fills it again, and nothing else does."""

import json
from pathlib import Path

import pytest
import yaml

from eval.run import fingerprints
from eval.run.cells import list_cells
from eval.run.config import MatrixSettings
from graph.config import load_settings
from graph.shared.jsonl import write_jsonl
from serve.ledger import Ledger
from tests.eval.run.conftest import CONFIG, run
from tests.fakes import HashEncoder, ScriptedModel

WEIGHTS, TOKENIZER, TEMPLATE = "part/model.safetensors", "part/tokenizer.json", "part/chat_template.jinja"
PARTS = (WEIGHTS, TOKENIZER, TEMPLATE)
ROWS, EXAMPLES = "rows.jsonl", "examples.txt"
IMPORT = {"indexes": {"": {"extractor": "import", "import_file": ROWS}}}
READ = {"extractor": "llm", "extractor_model": "hf:part"}


def encoder_in(spec: str) -> HashEncoder:
    """An encoder that is another one as soon as the file in its folder is."""
    file = Path(spec) / "model.safetensors"
    return HashEncoder(file.read_text() if file.is_file() else spec)


def silent(request) -> str:
    return json.dumps({"answer": "", "next_questions": [], "selected": []})


def wrote(text: str) -> list[dict]:
    return [{"id": "ada", "entities": ["Ada Marlow"], "triples": [["Ada Marlow", text, "Tarn"]]}]


@pytest.fixture
def parts(home, monkeypatch):
    """What configurations name, in the working directory."""
    monkeypatch.chdir(home)
    (home / "part").mkdir()
    for name in ("part/config.json", *PARTS, EXAMPLES):
        (home / name).write_text("{}")
    write_jsonl(home / ROWS, wrote("born"))
    return home


def keys(home, config) -> list[str]:
    """The files of all cells."""
    (home / "config.yaml").write_text(yaml.safe_dump(CONFIG | config), encoding="utf-8")
    settings = load_settings(MatrixSettings, home / "config.yaml")
    return [cell.key for cell in list_cells(settings, home, home / "out", encoder_in).cells]


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({"indexes": {"": {"encoder": "part"}}}, (WEIGHTS,)),
        (IMPORT, (ROWS,)),
        ({"indexes": {"": READ}}, PARTS),
        ({"indexes": {"": {**READ, "extractor_examples": EXAMPLES}}}, (*PARTS, EXAMPLES)),
        ({"indexes": {"": {"summary_model": "hf:part"}}}, PARTS),
        ({"helper": "hf:part"}, PARTS),
        ({"models": {"m": "hf:part"}, "metrics": ["f1"]}, PARTS),
        ({"retrievers": {"a": {"reranker": "./part"}}}, PARTS),
        ({"retrievers": {"a": {"mode": "local", "selector": "./part"}}}, PARTS),
        ({}, ()),
    ],
    ids=lambda value: str(value)[:60],
)
def test_other_contents_under_the_same_name_are_another_cell(parts, config, changed):
    before = keys(parts, config)
    for file in (*PARTS, ROWS, EXAMPLES):
        was = (parts / file).read_text()
        (parts / file).write_text(was + " ")
        after = keys(parts, config)
        assert set(before).isdisjoint(after) if file in changed else before == after, file
        (parts / file).write_text(was)
    assert keys(parts, config) == before


def test_an_encoder_trained_anew_has_a_new_index_and_new_cells(parts):
    config = {"indexes": {"": {"encoder": "part"}}}
    run(parts, open_encoder=encoder_in, **config)
    assert run(parts, open_encoder=encoder_in, **config)[0].json["cells"] == {"found": 2, "filled": 0}
    (parts / WEIGHTS).write_text("trained anew")
    ended, _, _ = run(parts, open_encoder=encoder_in, **config)
    assert not ended.failed and ended.json["cells"] == {"found": 0, "filled": 2}


def test_an_import_file_written_anew_is_read_again(parts):
    run(parts, **IMPORT)
    write_jsonl(parts / ROWS, wrote("buried"))
    assert run(parts, **IMPORT)[0].json["cells"] == {"found": 0, "filled": 2}
    assert len(list((parts / "out/indexes").glob("*/manifest.json"))) == 2


def test_cells_of_other_code_are_reported_and_filled_again(home, monkeypatch):
    run(home)
    monkeypatch.setattr(fingerprints, "CELL_CODE", ("eval.run.execute",))
    ended, _, encoder = run(home)
    assert ended.json["cells"] == {"found": 0, "filled": 2} and "2 of them again: the code has changed" in ended.text
    assert not any(text.startswith("Lantern") for text in encoder.encoded), "the index was made by the same code"
    assert len({one["code"] for one in cells_of(home)}) == 2
    monkeypatch.undo()
    ended, _, _ = run(home)
    assert ended.json["cells"] == {"found": 2, "filled": 0} and "again" not in ended.text


def cells_of(home) -> list[dict]:
    return [json.loads(file.read_text()) for file in (home / "out/cells").iterdir()]


def test_an_index_of_other_code_is_made_again_from_the_same_calls(parts, monkeypatch):
    model = ScriptedModel(silent)
    config = {"indexes": {"": {**READ, "max_failed_share": 1}}, "model": model, "open_ledger": Ledger}
    run(parts, **config)
    calls, made = len(model.requests), next((parts / "out/indexes").glob("*/manifest.json"))
    before = made.stat().st_mtime_ns
    monkeypatch.setattr(fingerprints, "INDEX_CODE", ("graph.build.build",))
    assert run(parts, **config)[0].json["cells"]["found"] == 2, "finished cells need no index"
    monkeypatch.setattr(fingerprints, "CELL_CODE", ("eval.run.execute",))
    ended, _, _ = run(parts, **config)
    assert not ended.failed and made.stat().st_mtime_ns != before and len(model.requests) == calls > 0


@pytest.fixture
def tree(tmp_path):
    """A package whose module `a` imports `b` inside a function, which imports `c`; nothing imports `d`."""
    sources = {
        "a": "def f():\n    from graph.b import g\n",
        "b": "import graph.c, torch\n",
        "c": "C = 1\n",
        "d": "D = 1\n",
    }
    (tmp_path / "graph/prompts").mkdir(parents=True)
    for name, source in (sources | {"__init__": ""}).items():
        (tmp_path / f"graph/{name}.py").write_text(source)
    (tmp_path / "graph/prompts/ask.txt").write_text("Ask.")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "counts"),
    [("a.py", True), ("c.py", True), ("prompts/ask.txt", True), ("__init__.py", True), ("d.py", False)],
)
def test_the_code_of_a_figure_is_what_has_a_part_in_it(tree, file, counts):
    before = fingerprints.version_of(("graph.a",), tree)
    assert before == fingerprints.version_of(("graph.a",), tree)
    with (tree / "graph" / file).open("a") as out:
        out.write("# changed\n")
    assert (fingerprints.version_of(("graph.a",), tree) != before) == counts


def test_what_a_cell_is_filled_by_has_a_part_and_reports_have_none():
    files = {
        file.relative_to(fingerprints.HOME).as_posix()
        for file in fingerprints.sources_of(fingerprints.CELL_CODE, fingerprints.HOME)
    }
    assert {
        "graph/retrieve/modes/local.py",
        "serve/engines/hf.py",
        "eval/metrics/grounding.py",
        "graph/prompts/select.txt",
    } <= files
    assert not files & {"eval/run/run_report.py", "serve/page/middleware.py", "graph/cli.py", "modegraph/cli.py"}
    assert not any(
        "retrieve/" in file.as_posix() for file in fingerprints.sources_of(fingerprints.INDEX_CODE, fingerprints.HOME)
    )

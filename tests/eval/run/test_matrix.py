"""A complete run on a small corpus: cells, figures, report, resuming after an interruption, and mistakes in a configuration."""

import json

import pytest
import yaml

from eval.metrics.registry import METRICS, Metric
from eval.run.cells import list_cells
from eval.run.config import MatrixSettings
from eval.run.diff import diff_json, diff_runs, diff_text
from graph.config import load_settings
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.corpora import ISLES
from tests.eval.conftest import read_lines
from tests.eval.run.conftest import CONFIG, MODELS, QUESTIONS, answers, hash_encoder, run
from tests.fakes import ScriptedModel


def test_without_models_only_retrieval_is_measured(home):
    done, opened, _ = run(home)
    assert not done.failed and opened == []
    assert done.json["cells"] == {"found": 0, "filled": 2} and done.json["leads"] == {"isles": "recall@5"}
    found = {one["system"]: one for one in done.json["results"]}
    assert list(found) == ["dense", "lexical"] and set(found["dense"]["metrics"]) == {"recall@5", "answer_in_context"}
    assert found["lexical"]["metrics"]["recall@5"]["mean"] == 1.0
    assert "no difference shown between lexical and dense" in found["lexical"]["in_words"]
    assert json.loads((home / "out/report.json").read_text()) == done.json
    assert "## isles" in (home / "out/report.md").read_text() and "isles" in done.text


def test_a_second_run_fills_no_cell(home):
    run(home)
    cells = {file: file.stat().st_mtime_ns for file in (home / "out/cells").iterdir()}
    done, _, encoder = run(home)
    assert done.json["cells"] == {"found": 2, "filled": 0} and encoder.encoded == []
    assert cells == {file: file.stat().st_mtime_ns for file in (home / "out/cells").iterdir()}


@pytest.mark.parametrize(
    "change",
    [
        {"retrievers": {"dense": {"mode": "dense", "top_k": 1}, "lexical": CONFIG["retrievers"]["lexical"]}},
        {"indexes": {"": {"layers": 1}}},
        {"metrics": ["recall@5", "answer_in_context", "claim_recall_by_encoder"]},
        {"shown_questions": 0},
    ],
)
def test_a_change_fills_the_cells_that_depend_on_it(home, change):
    run(home)
    filled = run(home, **change)[0].json["cells"]["filled"]
    assert filled == (1 if "retrievers" in change else 2)


def test_ranking_metrics_and_the_seed_may_change_without_filling_cells_but_the_corpus_may_not(home):
    run(home)
    assert run(home, metrics=["answer_in_context", "mrr"], seed=0)[0].json["cells"]["filled"] == 0
    write_jsonl(home / "corpus.jsonl", ({"id": d.source, "title": "", "text": d.text} for d in ISLES))
    assert run(home)[0].json["cells"]["filled"] == 2


def test_a_retrained_selector_gives_another_cell(home):
    selector = home / "selector"
    selector.mkdir()
    (home / "config.yaml").write_text(yaml.safe_dump(CONFIG | {"retrievers": {"x": {"selector": str(selector)}}}))

    def key():
        return list_cells(load_settings(MatrixSettings, home / "config.yaml"), home, home / "out", hash_encoder)[0].file

    (selector / "trees.json").write_text("1")
    first = key()
    assert first == key()
    (selector / "trees.json").write_text("2")
    assert first != key()


def test_only_a_partly_written_cell_is_filled_again(home):
    run(home)
    settings = load_settings(MatrixSettings, home / "config.yaml")
    lost, remaining = (cell.file for cell in list_cells(settings, home, home / "out", hash_encoder))
    lost.rename(lost.with_name(lost.name + ".partial"))
    before = remaining.stat().st_mtime_ns
    assert run(home)[0].json["cells"] == {"found": 1, "filled": 1}
    assert lost.is_file() and remaining.stat().st_mtime_ns == before


def test_every_model_answers_with_the_passages_of_every_retriever(home):
    model = ScriptedModel(answers)
    retrievers = {**CONFIG["retrievers"], "closed": None}
    done, opened, _ = run(home, model=model, retrievers=retrievers, **MODELS)
    assert opened == ["hf:a", "hf:b"] and len(model.requests) == 3 * 3 * 2
    found = {one["system"]: one for one in done.json["results"]}
    assert list(found) == [f"{way} + {name}" for way in ("dense", "lexical", "closed") for name in ("a", "b")]
    assert found["closed + a"]["metrics"]["em"]["mean"] == pytest.approx(1 / 3)
    assert found["lexical + a"]["calls"] == 1 and found["lexical + a"]["tokens"] > 10
    rows = read_lines(next(iter((home / "out/answers").glob("isles-closed---b*"))))
    assert rows[1] == {"id": "2", "question": QUESTIONS[1]["question"], "answer": "nobody"}
    assert "Passages" not in model.requests[6].messages[-1].content


def test_support_is_measured_for_answers_that_had_passages(home):
    """The passages support two of three statements; one of the two is only a year, which is judged together with the question."""
    text = "###Reason: The Lantern was built in 1911 by the Marlow Yard. Ada Roux sank her in 1955. ###Answer: 1911"
    model = ScriptedModel(lambda request: text if "Lantern built" in request.messages[-1].content else "no")
    retrievers = {"dense": CONFIG["retrievers"]["dense"], "closed": None}
    done, _, _ = run(home, model=model, retrievers=retrievers, models={"a": "hf:a"}, metrics=["f1", "supported"])
    found = {one["system"]: one["metrics"] for one in done.json["results"]}
    assert found["dense + a"]["supported"]["mean"] == pytest.approx(2 / 3), "the answer 'no' should not be judged"
    assert "supported" not in found["closed + a"]


def test_an_empty_answer_fails_its_cells_or_counts_as_wrong(home):
    model = ScriptedModel(lambda request: "" if "Ada born" in request.messages[-1].content else "1911")
    done, _, _ = run(home, model=model, **MODELS)
    assert done.failed and len(done.json["failures"]) == 4
    assert "question '3': the prediction is empty. Expected some text" in done.json["failures"][0]["problem"]
    done, _, _ = run(home, model=model, empty_answers="wrong", **MODELS)
    assert not done.failed and done.json["results"][0]["empty"] == 1 and "wrote 1 empty answer." in done.text


def test_empty_answers_may_count_as_wrong_without_filling_the_other_cells_again(home):
    """Counting them as wrong reuses cells without empty answers; refusing them again reuses no cell with empty answers."""
    model = ScriptedModel(lambda request: "" if "Marlow Yard" in request.messages[-1].content else "1911")
    retrievers = {"dense": {"mode": "dense", "top_k": 1}, "closed": None}
    write_jsonl(home / "questions.jsonl", [QUESTIONS[0]])
    settings = {"model": model, "retrievers": retrievers, "models": {"a": "hf:a"}, "metrics": ["em"]}
    assert run(home, **settings)[0].json["cells"] == {"found": 0, "filled": 1}
    assert run(home, empty_answers="wrong", **settings)[0].json["cells"] == {"found": 1, "filled": 1}
    again, _, _ = run(home, **settings)
    assert [one["system"] for one in again.json["failures"]] == ["dense + a"]


def test_a_question_for_which_nothing_is_found_is_answered_without_the_model(home):
    """As in `ask`, the answer is "not in the documents"; a system without retrieval answers from memory."""
    model = ScriptedModel(lambda request: "1911")
    retrievers = {"abstains": {"mode": "dense", "abstain": 0.0}, "closed": None}
    run(home, model=model, retrievers=retrievers, models={"a": "hf:a"}, metrics=["em"])
    found = {one["system"]: one for one in json.loads((home / "out/report.json").read_text())["results"]}
    (file,) = (home / "out/answers").glob("isles-abstains*")
    assert {row["answer"] for row in read_lines(file)} == {"not in the documents"}
    assert found["abstains + a"]["calls"] == found["abstains + a"]["tokens"] == 0
    assert len(model.requests) == 3 and found["closed + a"]["metrics"]["em"]["mean"] == pytest.approx(1 / 3)


def test_a_system_without_retrieval_has_no_retrieval_figures(home):
    """Systems are compared by the first metric that all have."""
    metrics = ["recall@5", "answer_in_context", "faithfulness_by_encoder", "answer_relevance_by_encoder", "em"]
    retrievers = {"dense": {"mode": "dense"}, "closed": None}
    model = ScriptedModel(answers)
    done, _, _ = run(home, model=model, retrievers=retrievers, models={"a": "hf:a"}, metrics=metrics)
    found = {one["system"]: list(one["metrics"]) for one in done.json["results"]}
    assert found == {"dense + a": metrics, "closed + a": metrics[3:]}
    assert done.json["leads"] == {"isles": "answer_relevance_by_encoder"}


def test_systems_whose_values_are_for_different_questions_are_not_compared(home):
    """`supported` applies only to answers that can be checked: the answer to the first question for one model, to the third for the other."""
    built, born = "The Lantern was built in 1911 by the Marlow Yard.", "Ada was born in the village of Tarn."

    def reply(request):
        first = len(model.requests) <= 3
        question = request.messages[-1].content.partition("Question:")[2]
        return (built if "Lantern" in question else "no") if first else (born if "Ada" in question else "no")

    model = ScriptedModel(reply)
    done, _, _ = run(home, model=model, retrievers={"dense": {"mode": "dense"}}, **MODELS | {"metrics": ["supported"]})
    assert [one["metrics"]["supported"]["mean"] for one in done.json["results"]] == [1.0, 1.0]
    assert done.json["results"][1]["difference"] is None and "Of 0 differences from dense + a" in done.text


def test_a_failed_cell_does_not_affect_the_others(home):
    retrievers = {**CONFIG["retrievers"], "filtered": {"mode": "dense", "where": ["source=nothing"]}}
    done, _, _ = run(home, retrievers=retrievers)
    assert done.failed and [one["system"] for one in done.json["failures"]] == ["filtered"]
    assert done.json["cells"] == {"found": 0, "filled": 2}


def test_the_html_report_loads_nothing_and_escapes_markup_in_questions(home):
    run(home, model=ScriptedModel(answers), shown_questions=3, **MODELS)
    page = (home / "out/report.html").read_text()
    assert "<script" not in page and "src=" not in page and "http" not in page
    assert "isles: Where was Ada born? &lt;/script&gt;&lt;b&gt;x" in page and page.count("<article>") == 3
    assert "<summary>lexical + a: f1 1.000, em 1.000, answer_in_context 1.000, faithfulness_by_encoder" in page
    assert "[1] Lantern (ferry) · lantern\nThe Lantern is a ferry" in page
    assert "<dt>dense + b</dt><dd>nobody</dd>" in page and "<dt>gold documents</dt><dd>marlow</dd>" in page


def test_the_report_names_the_version_of_the_code_and_the_settings(home, monkeypatch):
    """Cells filled by another version of the code are reused, and the report names that version."""
    monkeypatch.setattr("eval.run.run.revision", lambda: "first")
    done, _, _ = run(home)
    assert done.json["revision"] == "first" and "2 filled by modegraph first" in done.text
    assert done.json["settings"]["retrievers"]["dense"]["top_k"] == 2
    monkeypatch.setattr("eval.run.run.revision", lambda: "second")
    retrievers = {**CONFIG["retrievers"], "hybrid": {"mode": "hybrid"}}
    done, _, _ = run(home, retrievers=retrievers)
    assert done.json["revision"] == "second" and done.json["cells"] == {"found": 2, "filled": 1}
    assert [one["revision"] for one in done.json["results"]] == ["first", "first", "second"]
    assert "Some were filled by other versions of the code: first." in (home / "out/report.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["recal@5"]}, r"metric 'recal@5'\. Did you mean 'recall@5'\?"),
        ({"baseline": "hops"}, r"baseline 'hops'\. Expected one of the systems dense, lexical"),
        ({"task": {}}, r"config.yaml: unknown key 'task'\. Did you mean 'tasks"),
        ({"retrievers": {"x": {"mode": "walks"}}}, r"retrievers.x.mode = 'walks'"),
        ({"retrievers": {"none": None}}, r"retrievers.none: no retrieval and no model"),
        (
            {"retrievers": {"a": {}, "a + b": {}}, "indexes": {"": {}, "b": {}}},
            r"two systems are named 'a \+ b'\. Expected different names, .*\. Rename one of these parts",
        ),
        ({"indexes": {"x": {"layer": 1}}}, r"indexes.x: unknown key 'layer'\. Did you mean 'layers'\?"),
        ({"tasks": {"x": {"task": "exampels", "source": "."}}}, r"task 'exampels'\. Did you mean 'examples'\?"),
        ({"tasks": {"x": {"task": "examples", "source": "nowhere"}}}, r"examples: .*nowhere does not exist"),
        (
            {"tasks": {"x": {"task": "examples", "source": "questions.jsonl"}}},
            r"tasks.x: .*corpus.jsonl does not exist",
        ),
        ({"tasks": {"x": {**CONFIG["tasks"]["isles"], "split": "train"}}}, "tasks.x: no questions of split train"),
        ({"tasks": {}}, "tasks = {}"),
    ],
)
def test_a_wrong_configuration_is_refused_with_an_error_that_names_the_mistake(home, changes, message):
    with pytest.raises(UserError, match=message):
        run(home, **changes)


def test_a_missing_field_of_a_question_is_reported_with_its_line(home):
    write_jsonl(home / "questions.jsonl", [QUESTIONS[0], {"id": "2", "answers": ["x"]}])
    with pytest.raises(UserError, match=r"questions.jsonl line 2: 'question' is None\. Expected a non-empty string"):
        run(home)


def test_gold_documents_that_are_not_indexed_are_reported(home):
    write_jsonl(home / "questions.jsonl", [QUESTIONS[0] | {"gold_ids": ["titanic"]}])
    done, _, _ = run(home)
    assert "documents that are not in the index: 'titanic'" in done.json["failures"][0]["problem"]


def test_a_metric_value_that_is_not_finite_stops_the_report(home, monkeypatch):
    monkeypatch.setitem(METRICS, "broken", Metric("broken", "ranking", lambda question, output: float("nan")))
    with pytest.raises(UserError, match=r"metric 'broken' of question '1' is nan\. Expected a finite number"):
        run(home, metrics=["broken"])


def test_a_damaged_cell_is_reported_with_its_file(home):
    run(home)
    file = next((home / "out/cells").iterdir())
    file.write_text("{")
    with pytest.raises(
        UserError, match=r"cells/.*json: JSONDecodeError .*\. Expected a finished cell\. Remove the file"
    ):
        run(home)


def test_data_on_the_command_line_is_relative_to_the_working_directory(home, monkeypatch):
    (home / "elsewhere").mkdir()
    for name in ("questions.jsonl", "corpus.jsonl"):
        (home / name).rename(home / "elsewhere" / name)
    monkeypatch.chdir(home)
    with pytest.raises(UserError, match="does not exist"):
        run(home)
    assert not run(home, overrides=["data=elsewhere"])[0].failed
    monkeypatch.setenv("HOME", str(home))
    assert not run(home, overrides=["data=~/elsewhere"])[0].failed


def test_a_finished_index_is_used_unchanged(home):
    """No index is built; cells are valid only for that index; settings for building another one are refused."""
    run(home)
    (home / "out/indexes").rename(home / "indexes")
    (index,) = (one for one in (home / "indexes").iterdir() if one.is_dir())
    task = {**CONFIG["tasks"]["isles"], "index": str(index.relative_to(home)), "documents": "nowhere.jsonl"}
    used, _, encoder = run(home, "over", tasks={"isles": task})
    assert used.json["cells"] == {"found": 0, "filled": 2} and not (home / "over/indexes").exists()
    assert encoder.encoded and set(encoder.encoded) <= {row["question"] for row in QUESTIONS}, (
        "questions, but no passages, should be encoded"
    )
    assert run(home, "over", tasks={"isles": task})[0].json["cells"] == {"found": 2, "filled": 0}
    manifest = index / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    damaged, _, _ = run(home, "over", tasks={"isles": task})
    assert damaged.failed and damaged.json["cells"]["found"] == 0, "a changed manifest should count as another index"
    with pytest.raises(UserError, match="index together with `indexes`"):
        run(home, "over", tasks={"isles": task}, indexes={"plain": {}})
    with pytest.raises(UserError, match="not a finished index"):
        run(home, "over", tasks={"isles": {**task, "index": "elsewhere"}})


def test_two_runs_are_compared_question_by_question(home):
    run(home, out="a")
    run(home, out="b", indexes={"": {"layers": 1}})
    found = diff_runs(home / "a", home / "b")
    assert len(found) == 2 * 2 and all(one.mean_a == one.mean_b for one in found)
    assert "no difference shown between B and A" in diff_text(found) and diff_text(found).endswith(
        "0 of 4 differences are significant."
    )
    assert len(diff_json(found)["differences"]) == 4


def write_values(folder, rows):
    folder.mkdir()
    write_jsonl(folder / "values.jsonl", rows)
    return folder


ROW = {"task": "t", "system": "s", "metric": "em", "id": "1", "question": "Who?", "value": 1.0}


def test_a_run_that_is_clearly_better_is_reported_as_better(tmp_path):
    a, b = (
        write_values(
            tmp_path / name,
            [{**ROW, "id": str(n), "value": value} for n in range(12)] + [{**ROW, "id": "x", "value": None}],
        )
        for name, value in (("a", 0.0), ("b", 1.0))
    )
    found = diff_runs(a, b)
    assert [(one.mean_a, one.mean_b, one.verdict.questions) for one in found] == [(0.0, 1.0, 12)]
    assert "B is better than A" in diff_text(found)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ROW, "id": "2"}, r"2 questions are in only one of A and B; the first, '1', is not in B"),
        ({**ROW, "question": "When?"}, r"question '1' is 'Who\?' in A and 'When\?' in B"),
        ({**ROW, "task": "u"}, r"have no combination of task, system and metric in common"),
        ({**ROW, "value": float("nan")}, r"values.jsonl line 1: 'value' is nan\. Expected a number or null"),
        ({**ROW, "value": "1"}, r"line 1: 'value' is '1'"),
        ({key: value for key, value in ROW.items() if key != "metric"}, r"line 1: 'metric' is None"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(tmp_path, row, message):
    with pytest.raises(UserError, match=message):
        diff_runs(write_values(tmp_path / "a", [ROW]), write_values(tmp_path / "b", [row]))
    with pytest.raises(UserError, match=r"values.jsonl: does not exist\. Expected the folder of a run"):
        diff_runs(tmp_path / "a", tmp_path)

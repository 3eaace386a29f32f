"""Every task reads its files as published, in the format of the Hugging Face Hub and in our own layout; malformed rows are reported."""

import json
from dataclasses import replace

import pytest

from eval.metrics.registry import METRICS
from eval.tasks.catalogue import TASKS, find_task, load_from_hub, load_task, task_lines, write_task
from graph.documents.questions import read_questions
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from tests.places import DATA, ROOT

PAPER = {
    "title": "T",
    "abstract": "We study ferries.",
    "full_text": [{"section_name": "Intro", "paragraphs": ["One.", "Two."]}],
    "qas": [
        {
            "question_id": "a",
            "question": "What?",
            "answers": [
                {"answer": {"unanswerable": False, "extractive_spans": [], "yes_no": None, "free_form_answer": ""}},
                {
                    "answer": {
                        "unanswerable": False,
                        "extractive_spans": ["x", "y"],
                        "yes_no": None,
                        "free_form_answer": "",
                    }
                },
                {"answer": {"unanswerable": False, "extractive_spans": [], "yes_no": False, "free_form_answer": ""}},
                {"answer": {"unanswerable": True, "extractive_spans": [], "yes_no": None, "free_form_answer": ""}},
                {
                    "answer": {
                        "unanswerable": False,
                        "extractive_spans": [],
                        "yes_no": None,
                        "free_form_answer": "Free.",
                    }
                },
            ],
        }
    ],
}
PARAGRAPHS = [["Lantern", ["A ferry.", " Built in 1911."]], ["Tarn", ["A village."]], ["Quill", ["A port."]]]
HOTPOT = {
    "_id": "h",
    "question": "Where?",
    "answer": "Tarn",
    "type": "bridge",
    "supporting_facts": [["Tarn", 0], ["Lantern", 1], ["Tarn", 0]],
    "context": PARAGRAPHS,
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "Ada",
    "answer_aliases": ["A. Marlow"],
    "question_decomposition": [{}, {}],
    "paragraphs": [
        {"title": "Ada", "paragraph_text": "A shipwright.", "is_supporting": True},
        {"title": "Ada", "paragraph_text": "Another Ada.", "is_supporting": False},
    ],
}
OPTIONS = {"A": "mouse", "B": "hole"}
ROWS = {
    "qasper": PAPER | {"id": "1234.5678"},
    "quality": {
        "article_id": "7",
        "title": "T",
        "article": "Long.",
        "questions": [
            {"question_unique_id": "7_1", "question": "Why?", "options": ["a", "b"], "gold_label": 2, "difficult": 1}
        ],
    },
    "riddlesense": {
        "id": "r",
        "answerKey": "B",
        "question": {"stem": "What?", "choices": [{"label": k, "text": v} for k, v in OPTIONS.items()]},
    },
    "pubmedqa": {
        "id": "1",
        "QUESTION": "Is it?",
        "CONTEXTS": ["One.", "Two."],
        "LONG_ANSWER": "So.",
        "final_decision": "maybe",
    },
    "medqa": {"question": "Which?", "options": OPTIONS, "answer": "hole", "answer_idx": "B"},
    "medmcqa": {
        "id": "m",
        "question": "Which?",
        "opa": "mouse",
        "opb": "hole",
        "opc": "c",
        "opd": "d",
        "cop": 2,
        "exp": None,
    },
    "musique": MUSIQUE,
    "hotpotqa": HOTPOT,
    "2wiki": HOTPOT,
    "popqa": {"id": 3, "question": "Who?", "possible_answers": '["Ada", "A. M."]', "prop": "author"},
    "multihop-rag": {
        "query": "Who?",
        "answer": "Ada",
        "question_type": "inference_query",
        "evidence_list": [{"url": "u1", "fact": "f"}, {"url": "u2", "fact": "g"}],
    },
    "graphrag-bench": {"id": "Medical-1", "question": "What?", "answer": "Skin.", "question_type": "Fact Retrieval"},
    "abstract": {"id": "a", "question": "What recurs?"},
    "examples": {"id": "q1", "question": "What?", "answers": ["x"], "gold_ids": ["a.md"]},
}
ANSWERS = {
    "qasper": ("x, y", "no", "not in the documents", "Free."),
    "quality": ("b",),
    "riddlesense": ("hole",),
    "pubmedqa": ("maybe",),
    "medqa": ("hole",),
    "medmcqa": ("hole",),
    "musique": ("Ada", "A. Marlow"),
    "hotpotqa": ("Tarn",),
    "2wiki": ("Tarn",),
    "popqa": ("Ada", "A. M."),
    "multihop-rag": ("Ada",),
    "graphrag-bench": ("Skin.",),
    "abstract": (),
    "examples": ("x",),
}


def test_every_task_is_listed_with_its_size_licence_and_source():
    assert set(ROWS) == set(TASKS)
    lines = list(task_lines(TASKS.values()))
    assert len(lines) == 5 * len(TASKS)
    for task in TASKS.values():
        assert task.size and task.licence and task.get
        assert set(task.metrics) <= set(METRICS)


@pytest.mark.parametrize("name", ROWS)
def test_a_published_row_is_read(tmp_path, name):
    write_jsonl(tmp_path / "rows.jsonl", [ROWS[name]])
    loaded = load_task(TASKS[name], tmp_path / "rows.jsonl")
    assert loaded.questions[0].answers == ANSWERS[name]
    write_task(loaded, tmp_path / "own")
    again = load_task(TASKS[name], tmp_path / "own")
    assert again.questions == tuple(replace(q, text=q.text.strip()) for q in loaded.questions)


def test_gold_documents_are_those_of_the_supporting_facts(tmp_path):
    write_jsonl(tmp_path / "m.jsonl", [MUSIQUE])
    loaded = load_task(TASKS["musique"], tmp_path / "m.jsonl")
    assert len(loaded.documents) == 2, "two paragraphs with the same title should be two documents"
    gold = {document.source: document.text for document in loaded.documents}[loaded.questions[0].gold_sources[0]]
    assert (gold, loaded.questions[0].hops) == ("A shipwright.", 2)
    (tmp_path / "h.json").write_text(json.dumps([HOTPOT]))
    hotpot = load_task(TASKS["hotpotqa"], tmp_path / "h.json")
    titles = {document.source: document.title for document in hotpot.documents}
    assert [titles[source] for source in hotpot.questions[0].gold_sources] == ["Tarn", "Lantern"]


def test_rows_in_the_format_of_the_hub_are_read_like_published_rows():
    hub = TASKS["hotpotqa"].hub
    context = {"title": [t for t, _ in PARAGRAPHS], "sentences": [s for _, s in PARAGRAPHS]}
    hotpot_on_hub = {"id": "h", "question": "Where?", "answer": "Tarn", "type": "bridge", "context": context}
    hotpot_on_hub["supporting_facts"] = {"title": ["Tarn", "Lantern", "Tarn"], "sent_id": [0, 1, 0]}
    assert hub.read(hotpot_on_hub) == TASKS["hotpotqa"].read(HOTPOT)
    published = TASKS["medmcqa"].read(ROWS["medmcqa"])
    assert TASKS["medmcqa"].hub.read(ROWS["medmcqa"] | {"cop": 1}) == published
    qas = {
        "question_id": ["a"],
        "question": ["What?"],
        "answers": [{"answer": [each["answer"] for each in PAPER["qas"][0]["answers"]]}],
    }
    sections = {"section_name": ["Intro"], "paragraphs": [["One.", "Two."]]}
    qasper_on_hub = ROWS["qasper"] | {"qas": qas, "full_text": sections}
    assert TASKS["qasper"].hub.read(qasper_on_hub) == TASKS["qasper"].read(ROWS["qasper"])
    riddle = {
        "question": "What?",
        "choices": {"label": list(OPTIONS), "text": list(OPTIONS.values())},
        "answerKey": "B",
    }
    assert TASKS["riddlesense"].hub.read(riddle).questions[0].answers == ("hole",)
    quality = {"article": "Long.", "question": "Why?", "options": ["a", "b"], "answer": 1}
    assert TASKS["quality"].hub.read(quality).questions[0].answers == ("b",)
    pubmed = {"pubid": 1, "question": "Is it?", "context": {"contexts": ["One.", "Two."]}, "long_answer": "So."}
    assert TASKS["pubmedqa"].hub.read(pubmed | {"final_decision": "maybe"}) == TASKS["pubmedqa"].read(ROWS["pubmedqa"])


def test_the_split_of_a_row_may_be_called_val():
    item = TASKS["pubmedqa"].read(
        {"id": "1", "question": "?", "context": ["One."], "label": "yes", "reasoning": "So.", "split": "val"}
    )
    assert item.questions[0].split == "dev"


def test_the_file_of_the_quality_task_is_found_under_its_published_name(tmp_path):
    write_jsonl(tmp_path / "QuALITY.v1.0.1.htmlstripped.dev", [ROWS["quality"]])
    assert load_task(TASKS["quality"], tmp_path).questions[0].answers == ANSWERS["quality"]


def test_rows_of_a_file_keyed_by_id_get_their_ids(tmp_path):
    (tmp_path / "qasper.json").write_text(json.dumps({"1234.5678": PAPER}))
    loaded = load_task(TASKS["qasper"], tmp_path / "qasper.json")
    assert loaded.documents[0].source == "1234.5678"
    assert loaded.documents[0].text == "We study ferries.\n\n## Intro\n\nOne.\n\nTwo."


def test_json_lines_in_a_json_file_are_read(tmp_path):
    """MIRAGE's dev.json of MedMCQA has this format."""
    write_jsonl(tmp_path / "dev.json", [ROWS["medmcqa"], ROWS["medmcqa"] | {"id": "n"}])
    assert [one.id for one in load_task(TASKS["medmcqa"], tmp_path / "dev.json").questions] == ["m", "n"]
    (tmp_path / "dev.json").write_text(json.dumps([ROWS["medmcqa"]], indent=2)[:-1])
    with pytest.raises(UserError, match=r"dev.json: not valid JSON \(.*\)\. Expected the file as published"):
        load_task(TASKS["medmcqa"], tmp_path / "dev.json")


def test_a_corpus_next_to_the_questions_is_read_too(tmp_path):
    write_jsonl(tmp_path / "MultiHopRAG.jsonl", [ROWS["multihop-rag"]])
    write_jsonl(tmp_path / "corpus.jsonl", [{"url": "u1", "title": "t", "body": "text"}])
    loaded = load_task(TASKS["multihop-rag"], tmp_path)
    assert [document.source for document in loaded.documents] == ["u1"]
    assert loaded.questions[0].gold_sources == ("u1", "u2")


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        (
            "medqa",
            {"question": "Which?", "options": OPTIONS},
            r"rows.jsonl line 2: KeyError 'answer_idx'\. Expected a row as published",
        ),
        ("medqa", {"question": "Which?", "options": OPTIONS, "answer_idx": "E"}, "line 2: KeyError 'E'"),
        ("medmcqa", ROWS["medmcqa"] | {"cop": 0}, "line 2: ValueError cop 0"),
        ("pubmedqa", ROWS["pubmedqa"] | {"final_decision": "perhaps"}, "line 2: ValueError label 'perhaps'"),
        ("popqa", ROWS["popqa"] | {"possible_answers": "Ada"}, "line 2: JSONDecodeError"),
        (
            "quality",
            ROWS["quality"] | {"questions": [{**ROWS["quality"]["questions"][0], "gold_label": 0}]},
            "gold_label 0",
        ),
        ("hotpotqa", HOTPOT | {"supporting_facts": [["Nowhere", 0]]}, "line 2: KeyError 'Nowhere'"),
    ],
)
def test_malformed_rows_are_reported_with_their_line(tmp_path, name, row, message):
    write_jsonl(tmp_path / "rows.jsonl", [ROWS[name], row])
    with pytest.raises(UserError, match=message):
        load_task(TASKS[name], tmp_path / "rows.jsonl")


def test_the_error_for_missing_data_says_how_to_get_it(tmp_path):
    with pytest.raises(
        UserError,
        match=r"musique: .* does not exist\. Expected the task's data\. Get musique_ans_v1\.0_dev\.jsonl, which .* downloads, or use --source hub",
    ):
        load_task(TASKS["musique"], tmp_path / "nothing")
    with pytest.raises(
        UserError,
        match=r"2wiki: not on the hub in a supported form\. Expected a file\. Get dev\.json of data_ids_april7\.zip",
    ):
        load_from_hub(TASKS["2wiki"])
    with pytest.raises(UserError, match="no question of musique"):
        load_task(TASKS["musique"], tmp_path)
    with pytest.raises(UserError, match=r"task 'hotpot'\. Did you mean 'hotpotqa'\?"):
        find_task("hotpot")


def test_two_questions_with_the_same_id_are_refused(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", [HOTPOT, HOTPOT | {"question": "When?"}])
    with pytest.raises(UserError, match="two different questions have the id 'h'"):
        load_task(TASKS["hotpotqa"], tmp_path / "rows.jsonl")


FOLDERS = {
    "musique": ("musique_train100", 100),
    "hotpotqa": ("hotpotqa_train", 757),
    "2wiki": ("2wiki_dev164", 164),
    "pubmedqa": ("pubmedqa_l", 500),
    "medmcqa": ("medmcqa_dev", 1118),
    "riddlesense": ("riddlesense", 1170),
    "graphrag-bench": ("graphragbench_medical", 516),
    "abstract": ("ms_kevin_scott", 42),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_public_sets_load(name):
    folder, count = FOLDERS[name]
    if not (DATA / folder).is_dir():
        pytest.skip(f"public sets not found: {DATA / folder} (set MODEGRAPH_DATA to their folder)")
    loaded = load_task(TASKS[name], DATA / folder)
    assert len(loaded.questions) == count
    if name == "pubmedqa":
        assert {question.answers[0] for question in loaded.questions} == {"yes", "no", "maybe"}
        assert {question.gold_sources[0] for question in loaded.questions} == {d.source for d in loaded.documents}


def test_the_examples_load():
    loaded = load_task(TASKS["examples"], ROOT / "examples" / "questions.jsonl")
    assert list(loaded.questions) == read_questions(ROOT / "examples" / "questions.jsonl")

"""Tuning from end to end with a real, tiny model: the tuned model is recommended only if its answers are better, finished steps are not repeated, and
requests that cannot work are refused.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import modegraph as mg
from data_synth.reading.reading_rows import reading_rows
from data_synth.reading.sets import ReadingQuestion, ReadingSet
from data_synth.rows import Dropped, reading_to_json, separate_dropped
from graph.documents.read import read_documents
from graph.models.encoder import encoder_folder, open_encoder
from graph.shared.jsonl import append_jsonl, read_jsonl, write_jsonl
from graph.shared.runs import find_runs
from graph.types import Excerpt
from modegraph.tuning import steps, tune
from modegraph.tuning.plan import Pace, TunePlan, measure_pace, row_tokens, sft_settings, trial_row, trial_tasks
from modegraph.tuning.settings import TuneSettings
from modegraph.tuning.tune_report import data_table
from tests.commands import run
from tests.data_synth.reading.test_rows import write_set
from tests.data_synth.reading.world import isles
from tests.graph.documents.scans import needs_tesseract, scanned_pdf
from tests.modegraph.tuning.conftest import DOCUMENTS, HOSTILE_NAME, QUESTIONS, QUICK_SETTINGS, WHEN, WHERE, YARD, YEAR
from tests.places import EXAMPLES, ROOT
from tests.processes import answers, until
from train.export.export import export_merged
from train.model.load import load_tokenizer
from train.plan.memory import Launch
from train.plan.plan import plan_training
from train.preference import rounds

HANDBOOK = ("about-the-company", "equipment-and-data", "pay-and-pension", "travel-and-expenses")
ORDER = ("index", "questions", "rows", "model", "baseline", "tuned")
SHORT = [
    "--hours=0.05",
    *(f"--set={key}={QUICK_SETTINGS[key]}" for key in ("min_test_questions", "test_share", "passes")),
]
SHORT += ["--set=max_length_tokens=4000", "--set=max_questions=24"]
CHILD = """
import json, sys
from pathlib import Path
import torch
import modegraph as mg
from modegraph.tuning import steps
from tests.modegraph.tuning.conftest import DOCUMENTS
torch.set_num_threads(1)
steps.HOME = Path(sys.argv[1], "site-packages")
mg.tune(DOCUMENTS, Path(sys.argv[1], sys.argv[2]), **json.loads(sys.argv[3]))
"""


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a tuning run whose contents do not depend on time: questions, rows, answers and weights."""
    files = [*folder.glob("[qbrt]*/*.jsonl"), *folder.glob("*/*.safetensors")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def poison(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every training row after it is written."""
    write_rows = steps.write_rows

    def write_poisoned(tuning: steps.Tuning, folder: Path) -> None:
        write_rows(tuning, folder)
        rows = [change(row) for _, row in read_jsonl(folder / "train.jsonl")]
        write_jsonl(folder / "train.jsonl", rows)

    monkeypatch.setattr(steps, "FOLDER_WRITERS", {**steps.FOLDER_WRITERS, steps.ROWS: write_poisoned})


def with_answer(text: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: row | {"completion": [{"role": "assistant", "content": text}]}


def fleet() -> ReadingSet:
    """A general set that is as easy to learn as DOCUMENTS: other ships, built in the same year and place."""
    names = ("Gannet", "Avocet", "Fulmar", "Dunlin", "Curlew", "Merlin", "Osprey", "Siskin")
    passages = {
        name: Excerpt(name, f"The {name}", f"The {name} was built at {YARD} in {YEAR}.", source=name) for name in names
    }
    questions = (
        ReadingQuestion(
            f"{name}-{opening}", f"{opening} was the {name} built?", (answer,), (name,), names, (), "single", "test"
        )
        for name in names
        for opening, answer in ((WHEN, YEAR), (WHERE, YARD))
    )
    return ReadingSet("fleet", passages, tuple(questions))


@pytest.mark.slow
def test_a_model_that_became_better_is_recommended(
    quick_settings: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    general = write_set(tmp_path / "fleet", fleet())
    tuned = mg.tune(DOCUMENTS, tmp_path / "out", general=general, **quick_settings)
    assert capfd.readouterr() == ("", "")
    assert tuned.is_tuned and tuned.model == f"hf:{tmp_path}/out/model", tuned.why
    record = json.loads((tmp_path / "out/recommended.json").read_text())
    metrics = record["metrics"]
    assert record == tuned.record and metrics["f1_tuned"] > 0.8 and metrics["f1_untuned"] < 0.1
    assert f"--model {tuned.model}" in record["serve"] and record["serve"] in str(tuned)
    assert YEAR in tuned.index.ask(f"{WHEN} was the Lantern built?", model=tuned.model, max_answer_tokens=8).text

    splits = {row["id"]: row["split"] for _, row in read_jsonl(tmp_path / "out/questions/questions.jsonl")}
    trained = [row["question_id"].removesuffix("-changed") for _, row in read_jsonl(tmp_path / "out/rows/train.jsonl")]
    from_documents = [each for each in trained if each in splits]
    assert from_documents and {splits[each] for each in from_documents} == {"train"} and "test" in splits.values()
    measured = {row["id"] for _, row in read_jsonl(tmp_path / "out/tuned/general.jsonl")}
    general_share = 1 - len(from_documents) / len(trained)
    assert 0.1 < general_share <= 0.25 and measured and not measured & {*trained}
    held_out = {row["id"] for _, row in read_jsonl(tmp_path / "out/tuned/held-out.jsonl")}
    assert held_out == {each for each, split in splits.items() if split == "test"}

    page, card = ((tmp_path / "out" / name).read_text() for name in ("report.html", "README.md"))
    assert HOSTILE_NAME not in page + card and "&lt;script&gt;" in page and "<script" not in page
    assert "modegraph train export" in card
    assert "src=" not in page and "http" not in page.replace("http-equiv", "")
    assert "The tuned model is recommended" in page and "General questions: fleet" in page
    assert re.search(
        rf"training rows from the general set</\w+>\s*<td[^>]*>{len(trained) - len(from_documents)}<", page
    )
    assert "neither model refuses" in page and export_merged(tmp_path / "out/model", tmp_path / "merged").tokens > 0
    log = (tmp_path / "out/log.txt").read_text()
    assert all(f"step {n} of 6: {name}" in log for n, name in enumerate(ORDER, 1)) and "sft: step" in log
    listed = {found.name: found for found in find_runs(tmp_path / "out")}
    assert (listed["."].stage, listed["."].state, listed["model"].stage) == ("tune", "finished", "sft")
    assert listed["."].figures["f1_difference"] == record["metrics"]["f1_difference"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"), [("1884 [1]", "F1 on held-out questions"), ("not in the documents", "refused questions")]
)
def test_a_model_trained_on_poisoned_rows_is_not_recommended(
    text: str, reason: str, quick_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, with_answer(text))
    tuned = mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)
    assert not tuned.is_tuned and tuned.model == f"hf:{quick_settings['model']}" and reason in tuned.why
    report = (tmp_path / "out/report.html").read_text()
    assert "Keep the untuned model" in report and "There was no general set" in report
    assert "keep the untuned model" in str(tuned)
    assert "train export" not in (tmp_path / "out/README.md").read_text(), "the card should not recommend exporting it"


@pytest.mark.slow
def test_a_round_of_ms_follows_the_training_and_resumes(
    quick_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tuning is interrupted after the responses have been sampled: the folder of the round exists, but the step is not finished."""
    quick_settings |= {"ms_prompts": 3}
    sample = rounds.sample

    def sample_and_stop(*arguments: Any) -> Any:
        sample(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(rounds, "sample", sample_and_stop)
        mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)
    assert (tmp_path / "out/ms").is_dir() and not (tmp_path / "out/baseline").exists()
    plan = json.loads((tmp_path / "out/plan.json").read_text())["plan"]
    assert plan["seconds"]["ms"] == pytest.approx(3 * 3 * plan["pace"]["step_s"] / 4), (
        "a prompt should be planned to take as long as three training rows"
    )
    tuned = mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)
    ms = json.loads((tmp_path / "out/ms/run.json").read_text())
    assert (ms["stage"], ms["base_model"]) == ("ms", str(tmp_path / "out/model")) and ms["metrics"]["train_steps"] == 1
    spec = {json.loads(line)["model"] for line in (tmp_path / "out/tuned/held-out.jsonl").read_text().splitlines()}
    assert spec == {f"hf:{tmp_path}/out/ms"} and tuned.record["settings"]["ms_prompts"] == 3
    trained = {name: json.loads((tmp_path / f"out/{name}/run.json").read_text()) for name in ("model", "ms")}
    assert tuned.record["train_seconds"] == pytest.approx(sum(run["train_seconds"] for run in trained.values()))
    report = (tmp_path / "out/report.html").read_text()
    assert "A round of MS on the model&#x27;s own responses" in report and "8 to each of 3 training questions" in report


@pytest.mark.slow
def test_tuning_interrupted_after_any_step_ends_with_the_same_files(
    quick_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_settings |= {"epochs": 2}
    mg.tune(DOCUMENTS, tmp_path / "whole", **quick_settings)
    run_step, names = steps.run_step, []

    def run_and_interrupt(name: str, tuning: steps.Tuning) -> None:
        names.append(name)
        run_step(name, tuning)
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "run_step", run_and_interrupt)
    for name in ORDER:
        with pytest.raises(KeyboardInterrupt):
            mg.tune(DOCUMENTS, tmp_path / "cut", **quick_settings)
        assert [found.state for found in find_runs(tmp_path / "cut") if found.name == "."] == ["stopped"]
        assert names[-1] == name and not (tmp_path / "cut/recommended.json").exists()
    tuned = mg.tune(DOCUMENTS, tmp_path / "cut", **quick_settings)
    assert names == list(ORDER)
    whole, cut = (contents(tmp_path / name) for name in ("whole", "cut"))
    assert whole.keys() == cut.keys() and len(whole) == 5
    differing = [key for key in whole if whole[key] != cut[key].replace(b"/cut", b"/whole")]
    assert differing == []
    assert tuned.record == mg.tune(DOCUMENTS, tmp_path / "cut", **quick_settings).record, (
        "a finished run should be read, not repeated"
    )


@pytest.mark.machines
@pytest.mark.timeout(900)
@pytest.mark.process
def test_tuning_killed_ten_times_ends_with_the_same_files(quick_settings: dict[str, Any], tmp_path: Path) -> None:
    """SIGKILL at random moments of tuning with a round of MS: no killed attempt runs longer than a fifth of an undisturbed run, not counting start-up."""
    settings = json.dumps(quick_settings | {"epochs": 2, "ms_prompts": 3})

    def seconds_of(name: str, limit_s: float | None = None) -> float:
        start = time.monotonic()
        child = subprocess.Popen([sys.executable, "-P", "-c", CHILD, str(tmp_path), name, settings], cwd=ROOT)
        try:
            assert child.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        return time.monotonic() - start

    whole_s, start_s = seconds_of("whole"), seconds_of("whole")
    moments = random.Random(os.getpid())
    for _ in range(10):
        seconds_of("cut", start_s + moments.uniform(0, (whole_s - start_s) / 5))
    seconds_of("cut")
    whole, cut = (contents(tmp_path / name) for name in ("whole", "cut"))
    assert whole.keys() == cut.keys() and len(whole) == 6
    assert [key for key in whole if whole[key] != cut[key].replace(b"/cut", b"/whole")] == []


@pytest.mark.slow
def test_a_call_that_was_answered_is_not_repeated(
    quick_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serve.engines.hf import HfModel

    complete, calls, limit = HfModel.complete, [], 3

    def complete_some(self: HfModel, requests: Any) -> Any:
        if (tmp_path / "out/baseline").exists():
            if len(calls) == limit:
                raise KeyboardInterrupt
            calls.extend(requests)
        return complete(self, requests)

    monkeypatch.setattr(HfModel, "complete", complete_some)
    monkeypatch.setattr(HfModel, "batch_size", 1)
    with pytest.raises(KeyboardInterrupt):
        mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)
    assert not (tmp_path / "out/tuned").exists() and len(calls) == limit
    limit = -1
    mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)
    prompts = [request.messages for request in calls]
    answers = list(read_jsonl(tmp_path / "out/tuned/held-out.jsonl"))
    assert len(prompts) == len(set(prompts)) == len(answers) > 3


@pytest.mark.slow
def test_questions_are_made_by_rules_and_a_plan_writes_nothing(learner: Path, tmp_path: Path) -> None:
    words = [*short_tune(learner, tmp_path), f"--set=encoder={encoder_folder('minilm')}"]
    before = sorted(tmp_path.rglob("*"))
    planned = run(*words, "--dry-run", "--json")
    assert planned.exit_code == 0 and sorted(tmp_path.rglob("*")) == before, planned.output
    plan = json.loads(planned.stdout)
    assert plan["documents"] == len(HANDBOOK) and sum(plan["seconds"].values()) <= 0.05 * 3600 + 1
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["answers"]["held-out"]["tuned"]["all"]["questions"] >= QUICK_SETTINGS["min_test_questions"]
    kinds = {row["type"] for _, row in read_jsonl(tmp_path / "out/questions/questions.jsonl")}
    assert {"single", "unanswerable"} <= kinds
    assert mg.Index(tmp_path / "out/index").settings["encoder"] == str(encoder_folder("minilm"))
    assert "General questions: isles" in (tmp_path / "out/report.html").read_text()


@needs_tesseract
def test_scans_are_read_in_the_languages_given(tmp_path: Path) -> None:
    (tmp_path / "deeds.pdf").write_bytes(scanned_pdf(["The Lantern was built in 1911."]))
    [document] = tune.read_documents(tmp_path, TuneSettings(ocr_languages="eng"))
    assert "built in 1911" in document.text
    with pytest.raises(mg.UserError, match="no documents"):
        tune.read_documents(tmp_path, TuneSettings())


def test_the_limits_on_questions_rise_if_training_left_time(tmp_path: Path) -> None:
    settings, seconds = TuneSettings(hours=0.5), {"index": 10.0, "questions": 2.0, "rows": 1.0, "model": 987.0}
    plan = TunePlan(8, 100, 30, 15, Pace(0.01, 10.0, 4.0), {}, 300)
    tuning = steps.Tuning(settings, [], None, plan, tmp_path)
    for step, took in seconds.items():
        append_jsonl(tmp_path / steps.SECONDS, {"step": step, "seconds": took})
    assert tuning.limits() == {"held-out": 50, "general": 33}, (
        "the 800 s left should be divided into 100 answers of 4 s by each of the two models"
    )
    append_jsonl(tmp_path / steps.SECONDS, {"step": "baseline", "seconds": 500.0})
    assert tuning.limits() == {"held-out": 50, "general": 33}, "both models should answer the same questions"
    append_jsonl(tmp_path / steps.SECONDS, {"step": "model", "seconds": 1787.0})
    assert tuning.limits() == {"held-out": 30, "general": 15}, (
        "if training took long, the limits should be those of the plan"
    )
    other = replace(tuning, plan=replace(plan, general_questions=0))
    assert other.limits()["general"] == 0


def test_the_seconds_of_a_step_include_all_attempts(tmp_path: Path) -> None:
    for took in (600.0, 400.0):
        append_jsonl(tmp_path / steps.SECONDS, {"step": "model", "seconds": took})
    assert steps.step_seconds(tmp_path) == {"model": 1000.0}


def test_a_passage_that_answers_the_same_question_in_training_is_not_a_distractor_in_the_test(tmp_path: Path) -> None:
    """Both parts contain the same question, with different answers: the test part does not repeat it without its gold passage,
    and its excerpts omit the passage that answers it in the training part.
    """
    texts = [
        "The master of the ferry is Ida Corrow.",
        "The master of the ferry is Bram Oakes.",
        *(each.text for each in DOCUMENTS),
    ]
    documents = [mg.Document(f"d{n}", f"Document {n}", text) for n, text in enumerate(texts)]
    mg.index(documents, tmp_path / "index")
    rows = [
        {
            "id": f"q{n}",
            "question": "Who is the master of the ferry?",
            "answers": [answer],
            "gold_ids": [f"d{n}"],
            "split": split,
        }
        for n, (answer, split) in enumerate([("Ida Corrow", "train"), ("Bram Oakes", "test")])
    ]
    (tmp_path / "questions").mkdir()
    write_jsonl(tmp_path / "questions/questions.jsonl", rows)
    plan = TunePlan(8, 100, 30, 0, Pace(0.01, 10.0, 4.0), {}, 300)
    tasks = steps.Tuning(TuneSettings(), documents, None, plan, tmp_path).tasks()
    assert "unanswered" not in tasks
    ((only,),) = tasks.values()
    assert only.question.id == "q1" and len(only.excerpts) > 1
    assert not any("Ida Corrow" in excerpt.text for excerpt in only.excerpts)


def test_the_share_determines_the_number_of_general_rows(tmp_path: Path) -> None:
    """Questions that give no row (here the surplus of questions with the answer yes) do not count."""
    names = [f"Isle {n}" for n in range(60)]
    passages = {name: Excerpt(name, name, f"{name} has a lighthouse and a mill.", source=name) for name in names}
    questions = tuple(
        ReadingQuestion(name, f"Has {name} a mill?", ("yes" if n % 3 else "no",), (name,), (), (), "boolean", "train")
        for n, name in enumerate(names)
    )
    half = ReadingSet("isles", passages, questions)
    tuning = steps.Tuning(TuneSettings(), [], steps.GeneralSet("isles", half, half), None, tmp_path)  # type: ignore[arg-type]
    rows = steps.general_rows(tuning, steps.row_settings(tuning.settings), 80)
    assert len(rows) == 20 and not any(isinstance(row, Dropped) for row in rows)


def test_a_planned_step_is_an_update_of_four_rows(learner: Path, tmp_path: Path) -> None:
    """The time of a step is the time per token times the tokens of the accumulated rows, although the trial accumulates no gradients."""
    settings = TuneSettings(model=str(learner), max_length_tokens=4000)
    tasks = trial_tasks(DOCUMENTS, settings)
    write_jsonl(tmp_path / "train.jsonl", (reading_to_json(trial_row(task)) for task in tasks))
    counts = plan_training(sft_settings(settings, tmp_path, tmp_path / "run"), Launch(), 0).counts
    assert (counts.rows, counts.steps) == (4, 1)
    pace = measure_pace(settings, DOCUMENTS)
    assert pace.step_s == pytest.approx(pace.token_s * counts.tokens, rel=0.1)


def test_trial_passages_are_cut_to_max_length_tokens_even_in_scripts_without_spaces(learner: Path) -> None:
    documents = [mg.Document(str(n), "船", "渡し船は千九百十一年に造られた。" * 500) for n in range(5)]
    settings = TuneSettings(model=str(learner))
    tokenizer = load_tokenizer(str(learner))
    lengths = row_tokens(tokenizer, [trial_row(task) for task in trial_tasks(documents, settings)])
    assert len(lengths) == 4 and 1300 < max(lengths) <= settings.max_length_tokens
    with pytest.raises(mg.UserError, match=r"max_length_tokens = 64: a question without passages has \d+ tokens"):
        trial_tasks(documents, settings.model_copy(update={"max_length_tokens": 64}))


def test_training_rows_that_are_too_long_are_left_out_and_counted(
    quick_settings: dict[str, Any], tmp_path: Path
) -> None:
    long = " ".join(f"Cabin {number} has {number * 7919} berths." for number in range(40))
    documents = [replace(each, text=f"{each.text} {long}" if n % 2 else each.text) for n, each in enumerate(DOCUMENTS)]
    settings = TuneSettings(**quick_settings)
    tuning = steps.Tuning(settings, documents, None, None, tmp_path)  # type: ignore[arg-type]
    for name in (steps.INDEX, steps.QUESTIONS):
        steps.run_step(name, tuning)
    made = reading_rows(tuning.training_questions(), steps.row_settings(settings))
    lengths = row_tokens(load_tokenizer(settings.model), separate_dropped(made)[0])
    limit = sorted(lengths)[len(lengths) // 2]
    short = replace(tuning, settings=settings.model_copy(update={"max_length_tokens": limit}))
    steps.run_step(steps.ROWS, short)
    summary = json.loads((tmp_path / steps.ROWS / "summary.json").read_text())
    assert 0 < summary["rows"] and summary["drops"] == {steps.TOO_LONG: sum(length > limit for length in lengths)}
    assert f"({steps.TOO_LONG})" in data_table(short).note
    none = replace(tuning, settings=settings.model_copy(update={"max_length_tokens": 64}))
    with pytest.raises(mg.UserError, match=r"× the row is longer than max_length_tokens\).*Raise max_length_tokens"):
        steps.write_rows(none, tmp_path / "none")


def test_by_default_refusals_are_anchored_only_for_an_adapter(learner: Path, tmp_path: Path) -> None:
    """The setting `anchor_refusals` overrides the default."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    anchored = {
        (model.name, choice): sft_settings(
            TuneSettings(model=str(model), anchor_refusals=choice), tmp_path, tmp_path / "run"
        ).anchor_refusals
        for model in (learner, adapter)
        for choice in (None, True, False)
    }
    assert [anchored["adapter", choice] for choice in (None, True, False)] == [True, True, False]
    assert [anchored[learner.name, choice] for choice in (None, True, False)] == [False, True, False]


@pytest.mark.slow
def test_with_serve_the_recommended_model_is_served_at_the_end(
    learner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tune --serve` replaces its process with the server; here, the server is started as a child process instead, with the real encoder."""
    started: list[tuple[str, list[str], bytes]] = []

    def start(program: str, words: list[str]) -> None:
        started.append((program, words, sys.stdout.buffer.getvalue()))  # type: ignore[attr-defined]

    monkeypatch.setattr("graph.models.encoder.open_encoder", open_encoder)
    monkeypatch.setattr(os, "execv", start)
    done = run(*short_tune(learner, tmp_path), "--json", "--serve")
    assert done.exit_code == 0 and (tmp_path / "out/recommended.json").is_file(), done.output
    [(program, words, printed)] = started
    assert printed.decode() == done.stdout, "the result should be printed before the server starts"
    process = subprocess.Popen(words, executable=program)
    try:
        until(lambda: answers("http://127.0.0.1:8080/health"), 240, process)
    finally:
        process.terminate()
        process.wait(30)


def short_tune(model: Path, folder: Path) -> list[str]:
    """The command for tuning on four documents of the handbook, with a general set; all files are in `folder`."""
    documents = folder / "documents"
    documents.mkdir()
    for name in HANDBOOK:
        shutil.copy(EXAMPLES / "handbook" / f"{name}.md", documents)
    general = f"--set=general={write_set(folder / 'isles', isles())}"
    return ["tune", str(documents), f"--out={folder / 'out'}", f"--model={model}", general, *SHORT]


def test_the_examples_are_the_general_set_unless_they_are_tuned_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps.general_set(TuneSettings(), DOCUMENTS) is None
    monkeypatch.setattr(steps, "HOME", ROOT)
    found = steps.general_set(TuneSettings(), DOCUMENTS)
    assert found is not None
    questions = [*found.trained_on.questions, *found.measured.questions]
    assert len(found.measured.questions) > 60 < len(found.trained_on.questions)
    assert all(question.gold_ids for question in questions if question.is_answerable)
    assert not any(question.kind == "abstract" or "maybe" in question.answers for question in questions)
    (saltmere,) = read_documents(EXAMPLES / "documents" / "saltmere.md", lambda line: None)
    assert steps.general_set(TuneSettings(), [saltmere, *DOCUMENTS]) is None


def test_the_halves_of_a_general_set_have_no_text_in_common() -> None:
    source = isles()
    copies = {f"{key}-copy": replace(each, id=f"{key}-copy") for key, each in source.passages.items()}
    found = steps.halves(replace(source, passages={**source.passages, **copies}), seed=0)
    trained_on, measured = (
        {each.text for each in half.passages.values()} for half in (found.trained_on, found.measured)
    )
    assert trained_on and measured and not trained_on & measured
    for half in (found.trained_on, found.measured):
        used = {key for each in half.questions for key in (*each.gold_ids, *each.context_ids)}
        assert half.questions and used <= half.passages.keys()


def test_rows_are_made_according_to_the_settings_for_tuning() -> None:
    values = {"answer_words": 7, "context_words": 90, "without_gold": 0.3, "paired": 0.4, "seed": 5}
    settings = steps.row_settings(TuneSettings(**values)).model_dump()
    assert {name: settings[name] for name in values} == values and settings["own_words"]
    assert steps.row_settings(TuneSettings()).without_gold == 0.1


def test_a_general_set_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    joint = replace(fleet().questions[0], gold_ids=tuple(fleet().passages))
    folder = write_set(tmp_path / "joint", replace(fleet(), questions=(joint,)))
    with pytest.raises(
        mg.UserError, match="no question has all its passages in the half that the models are tested on"
    ):
        steps.general_set(TuneSettings(general=str(folder)), DOCUMENTS)


def test_general_questions_without_gold_passages_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the gate could lose its condition on the general set."""
    source = isles()
    some = tuple(
        replace(each, gold_ids=() if number % 2 else each.gold_ids) for number, each in enumerate(source.questions)
    )
    settings = TuneSettings(general=str(write_set(tmp_path / "some", replace(source, questions=some))))
    found = steps.general_set(settings, DOCUMENTS)
    assert found is not None and found.measured.questions
    assert all(each.gold_ids or not each.answers for each in found.measured.questions)
    lacking = sum(bool(each.answers) and not each.gold_ids for each in some)
    assert f"{lacking} of {len(some)} questions left out: the question names no gold passage" in capsys.readouterr().err
    none = tuple(replace(each, gold_ids=()) for each in source.questions if each.answers)
    settings = TuneSettings(general=str(write_set(tmp_path / "none", replace(source, questions=none))))
    with pytest.raises(mg.UserError, match=r"questions left out: the question names no gold passage.* Add them"):
        steps.general_set(settings, DOCUMENTS)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("too few hours", {"hours": 0.001}, r"hours = 0\.001: .* Expected at least 0\.0\d+ hours"),
    ("unlimited hours", {"hours": float("inf")}, "hours = inf. Expected a finite number"),
    ("no such model", {"model": "no-such-model"}, "no-such-model"),
    ("no such encoder", {"encoder": "no-such-encoder"}, "no-such-encoder"),
    ("an engine that cannot train", {"model": "openai:m@http://h"}, "cannot be trained"),
    ("an unknown setting", {"hour": 1}, "unknown key 'hour'"),
]


@pytest.mark.parametrize(("what", "changes", "message"), REFUSED, ids=[what for what, *_ in REFUSED])
def test_requests_that_cannot_work_are_refused_before_anything_is_written(
    what: str, changes: dict[str, Any], message: str, quick_settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(mg.UserError, match=message):
        mg.tune(DOCUMENTS, tmp_path / "out", **{**quick_settings, **changes})
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_not_changed(quick_settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    with pytest.raises(mg.UserError, match="contains other files"):
        mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)
    for documents, message in (([], "no documents"), (DOCUMENTS[:1], "distinct documents: 1")):
        with pytest.raises(mg.UserError, match=message):
            mg.tune(documents, tmp_path / "new", **quick_settings)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["notes.txt"] and not (tmp_path / "new").exists()


def test_tuning_is_not_resumed_with_other_documents_or_settings(
    quick_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str, tuning: steps.Tuning) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "run_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)
    with pytest.raises(mg.UserError, match="started with different contents of 'documents'"):
        mg.tune(DOCUMENTS[1:], tmp_path / "out", **quick_settings)
    with pytest.raises(mg.UserError, match="started with passes = 1, not 3"):
        mg.tune(DOCUMENTS, tmp_path / "out", **{**quick_settings, "passes": 3})
    write_jsonl(Path(quick_settings["questions"]), QUESTIONS[1:])
    with pytest.raises(mg.UserError, match="started with different contents of 'questions'"):
        mg.tune(DOCUMENTS, tmp_path / "out", **quick_settings)

"""`modegraph compare` from end to end on random models: its files, figures that agree with the answers, and escaped text."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from statistics import mean

import pytest
import typer

from data_synth.rows import preference_to_json
from eval.cli import register
from eval.comparison import PairScore
from eval.plots import draw_logps
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from serve.engines import open_model
from tests.commands import run
from tests.eval.conftest import BETA, EPSILON, HOSTILE, preference, read_lines
from train.run.record import read_run, write_run


@pytest.fixture(scope="module")
def report_folder(world, tmp_path_factory):
    """The folder of a report that compares MS, DPO and SFT with the untuned model."""
    out = tmp_path_factory.mktemp("compared") / "report"
    app = typer.Typer()
    register(app, open_model)
    runs = ["--runs", str(world.ms), str(world.dpo), str(world.sft)]
    command = ["compare", *runs, "--data", str(world.data), "--out", str(out), "--max-answer-tokens", "6"]
    assert app(command, standalone_mode=False) is None
    return out


def test_the_report_consists_of_five_files(report_folder):
    names = sorted(path.name for path in report_folder.iterdir())
    assert names == ["answers.jsonl", "logps.png", "report.html", "report.json", "report.md"]
    assert (report_folder / "logps.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_agrees_with_the_answers(report_folder):
    report = json.loads((report_folder / "report.json").read_text())
    answers = read_lines(report_folder / "answers.jsonl")
    assert [policy["name"] for policy in report["policies"]] == ["ms", "dpo", "sft", "untuned"]
    assert (report["questions"], report["prompts"], report["pairs"]) == (6, 12, 18)
    assert len(answers) == 4 * 12
    for name in ("ms", "untuned"):
        by_policy = [answer for answer in answers if answer["policy"] == name]
        assert report["measures"]["token F1"][name] == pytest.approx(mean(answer["f1"] for answer in by_policy))
        assert report["measures"]["answer length, tokens"][name] == pytest.approx(mean(a["tokens"] for a in by_policy))
        assert all(answer["tokens"] <= 6 for answer in by_policy)


def test_answers_only_gives_the_same_answers_scores_no_pair_and_replaces_an_earlier_report(
    world, report_folder, tmp_path
):
    shutil.copytree(report_folder, tmp_path / "out")
    words = ["compare", "--runs", str(world.ms), str(world.dpo), str(world.sft), "--data", str(world.data)]
    words += ["--out", str(tmp_path / "out"), "--max-answer-tokens", "6", "--answers-only"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "token F1" in done.stdout and "log π" not in done.stdout and "margin" not in done.stdout
    assert read_lines(tmp_path / "out" / "answers.jsonl") == read_lines(report_folder / "answers.jsonl")
    assert not (tmp_path / "out" / "logps.png").exists()
    whole, alone = (json.loads((folder / "report.json").read_text()) for folder in (report_folder, tmp_path / "out"))
    assert alone["pairs"] == 0 and alone["measures"].items() < whole["measures"].items()


def test_only_runs_with_a_beta_have_margins_and_the_report_states_beta(report_folder):
    report = json.loads((report_folder / "report.json").read_text())
    assert set(report["measures"]["reward margin β(Δ_w − Δ_l)"]) == {"ms", "dpo"}
    assert set(report["measures"]["reward margin β(Δ_w − Δ_l) [wrong]"]) == {"ms", "dpo"}
    # MS has the weights of SFT here, so its margin is 0; DPO's weights differ.
    assert report["measures"]["reward margin β(Δ_w − Δ_l)"]["ms"] == pytest.approx(0.0, abs=1e-6)
    assert abs(report["measures"]["reward margin β(Δ_w − Δ_l)"]["dpo"]) > 1e-3
    record = report["policies"][0]["record"]
    assert (record["beta"], record["label_smoothing"], record["responses_per_prompt"]) == (BETA, EPSILON, 2)
    markdown = (report_folder / "report.md").read_text()
    assert re.search(r"\| ms \| ms \| .*sft \| 2 \| 0\.01 \| 0\.5 \|", markdown)


def test_yes_no_scores_include_a_baseline_that_always_gives_the_majority_answer_of_train(report_folder):
    report = json.loads((report_folder / "report.json").read_text())
    # The answers to train questions 6, 9 and 12 are yes, no, yes; those to test questions 0 and 3, which have two contexts each, are yes and no.
    majority = next(score for score in report["choices"] if score["name"].startswith("always"))
    assert majority == {
        "name": "always “yes” (majority of train)",
        "accuracy": 0.5,
        "per_class": {"no": 0.0, "yes": 1.0},
    }
    assert report["gold_choices"] == {"no": 2, "yes": 2}


class Page(HTMLParser):
    """The tags of a page, and the values of its src and href attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]


def test_the_page_is_self_contained_and_escapes_quoted_text(report_folder):
    text = (report_folder / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert "script" not in page.tags
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in text
    assert page.references and all(reference.startswith("data:image/png;base64,") for reference in page.references)
    assert "http-equiv" not in text and "@import" not in text and "url(" not in text
    assert page.tags.count("table") == 4
    assert page.tags.count("details") == 6


def test_hostile_text_is_escaped_in_markdown(report_folder):
    text = (report_folder / "report.md").read_text(encoding="utf-8")
    heading = next(line for line in text.splitlines() if line.startswith("### Where is mill 0"))
    assert HOSTILE not in heading and r"\<script>" in heading and r"!\[" in heading
    tables = [line for line in text.splitlines() if line.startswith("|")]
    results = [line for line in tables if line.startswith("| log π")]
    assert results and all(len(re.findall(r"(?<!\\)\|", line)) in (5, 6) for line in results)


def test_nothing_is_written_when_a_folder_has_no_run(world, tmp_path):
    app = typer.Typer()
    register(app, open_model)
    out = tmp_path / "report"
    with pytest.raises(UserError, match=r"no run\.json"):
        app(["compare", "--runs", str(world.base), "--data", str(world.data), "--out", str(out)], standalone_mode=False)
    assert not out.exists()


def test_the_figure_is_written_for_many_policies_with_long_names(tmp_path):
    scores = tuple(PairScore(-40.0 - n, -4.0 - n, 20, 2) for n in range(9))
    draw_logps({f"qwen-half-billion-{n}": scores for n in range(6)}, "title", tmp_path / "logps.png")
    assert (tmp_path / "logps.png").stat().st_size > 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["logps.png"]


def command(world, out, *runs, data):
    words = ["compare", "--runs", *map(str, runs), "--data", str(data), "--out", str(out), "--max-answer-tokens", "2"]
    return run(*words, "--limit", "2", "--context-size", "1", "--answers-only")


def test_a_test_prompt_that_a_run_was_trained_on_is_refused_with_an_error_that_names_it(world, tmp_path):
    rows = [preference(0, 1, "test"), preference(7, 1, "test")]
    for split in ("train", "test"):
        write_jsonl(tmp_path / f"{split}.jsonl", map(preference_to_json, rows))
    refused = command(world, tmp_path / "out", world.ms, data=tmp_path)
    assert isinstance(refused.exception, UserError)
    assert "test.jsonl: row 'test-7#1' is in the training data of" in str(refused.exception)
    assert not (tmp_path / "out").exists()


def test_runs_with_several_seeds_are_compared_by_seed(world, tmp_path):
    """Copies of two runs under several seeds give a table by seed; if one copy is missing, its seed is named."""
    runs = []
    for stage in ("ms", "dpo"):
        for seed in range(2):
            copy = tmp_path / f"{stage}-{seed}"
            shutil.copytree(getattr(world, stage), copy)
            write_run(copy, replace(read_run(copy), settings={"seed": seed, "output": str(copy)}))
            runs.append(copy)
    done = command(world, tmp_path / "out", *runs, data=world.data)
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["systems"]["ms-0 … (2 seeds)"] == {"0": "ms-0", "1": "ms-1"}
    difference = report["by_seed"]["token F1"]["dpo-0 … (2 seeds)"]
    assert difference["p"] >= 0.5 and not difference["shown"] and len(difference["by_seed"]) == 2
    page = (tmp_path / "out" / "report.md").read_text()
    assert "Difference from ms-0 … (2 seeds)" in page and "2 seeds give a p of at least 0.5" in page
    single = command(world, tmp_path / "other", *runs[:3], world.dpo, data=world.data)
    assert single.exit_code == 0, "two dpo runs with the same seed should not count as one system of several seeds"
    third = tmp_path / "ms-2"
    shutil.copytree(world.ms, third)
    write_run(third, replace(read_run(third), settings={"seed": 2, "output": str(third)}))
    unpaired = command(world, tmp_path / "third", *runs, third, data=world.data)
    assert isinstance(unpaired.exception, UserError)
    assert "seed 2 is unpaired: dpo-0 … (2 seeds) has no run with it" in str(unpaired.exception)

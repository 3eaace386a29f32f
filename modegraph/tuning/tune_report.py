"""The report of a tuning run: report.html, a card, and recommended.json, which names the model to serve. Texts of documents and models are escaped."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from data_synth.dataset.write import SUMMARY
from eval.reading import ALL, CONSTANT, ReadingFigures, constant_answers, reading_figures, reading_json, reading_table
from eval.report import Sample, escape_markdown, report_html, sections
from eval.tables import NONE, Table
from graph.documents.questions import read_questions
from graph.models.catalogue import MODELS
from graph.models.checkpoint import base_of
from graph.shared.console import counted
from graph.shared.jsonl import read_jsonl, write_json, write_text
from modegraph.tuning.gate import Gate, PairedAnswers
from modegraph.tuning.plan import MODELS_COMPARED, spec_for_answers
from modegraph.tuning.steps import (
    DOCUMENTS_FILE,
    GENERAL,
    HELD_OUT,
    INDEX,
    LEFT_OUT_FILE,
    MODEL,
    MS,
    QUESTIONS,
    QUESTIONS_FILE,
    ROWS,
    TOO_LONG,
    UNANSWERED,
    Tuning,
    step_seconds,
)
from train.run.record import read_run

RECOMMENDED, REPORT, CARD = "recommended.json", "report.html", "README.md"
MAX_SAMPLES = 12
Figures = Mapping[str, Mapping[str, Mapping[str, ReadingFigures]]]
"""The figures by set of questions, then by model (untuned, tuned, and the best constant answer), then by kind of question."""


def write_report(tuning: Tuning, gate: Gate, answers: Mapping[str, PairedAnswers]) -> None:
    """Write the report and the card, then recommended.json."""
    trained = [name for name in tuning.steps if name in (MODEL, MS)]
    figures = figures_of(answers, tuning.settings.seed)
    tables = [
        verdict_table(gate, answers[HELD_OUT], tuning.settings.seed),
        *figure_tables(tuning, figures),
        data_table(tuning),
        cost_table(tuning),
        *(training_table(tuning, name) for name in trained),
    ]
    headline = f"{'The tuned model is recommended' if gate.passed else 'Keep the untuned model'}: {gate.why}."
    write_text(tuning.out / REPORT, report_html("Tuning", headline, tables, (), list(samples(answers[HELD_OUT]))))
    model = spec_for_answers(tuning.tuned_model if gate.passed else tuning.settings.model)
    write_text(tuning.out / CARD, card(tuning, headline, model, tables))
    means = {f"f1_{name}": figures[HELD_OUT][name][ALL].f1.mean for name in MODELS_COMPARED}
    record = {
        "model": model,
        "is_tuned": gate.passed,
        "why": gate.why,
        "index": str(tuning.out / INDEX),
        "serve": serve_command(tuning.out, model),
        "checks": [vars(check) for check in gate.checks],
        "metrics": {"f1_difference": gate.difference.mean, **means},
        "answers": {name: reading_json(models) for name, models in figures.items()},
        "settings": tuning.settings.recorded(),
        "train_seconds": sum(read_run(tuning.out / name).train_seconds for name in trained),
    }
    write_json(tuning.out / RECOMMENDED, record)


def figures_of(answers: Mapping[str, PairedAnswers], seed: int) -> Figures:
    """The figures of both models and of the best constant answer on each set."""
    return {
        name: {model: reading_figures(getattr(pair, model), seed) for model in MODELS_COMPARED}
        | {CONSTANT: reading_figures(constant_answers([answer.task for answer in pair.tuned]), seed)}
        for name, pair in answers.items()
    }


def verdict_table(gate: Gate, held_out: PairedAnswers, seed: int) -> Table:
    """The conditions of the gate, and the difference in F1 on the answerable questions that neither model refuses, if there are any."""
    rows = [(check.what, check.found, check.limit, "yes" if check.passed else "no") for check in gate.checks]
    both = held_out.answered_by_both()
    if both.tuned:
        what = f"F1 on the {len(both.tuned)} answerable questions that neither model refuses"
        rows.append((what, f"{both.f1_difference(seed):+.3f}", "no condition", NONE))
    note = "Tuned minus untuned, or minus the constant answer; intervals: 95 %, paired bootstrap over questions."
    return Table("Verdict", ("condition", "found", "limit", "met"), tuple(rows), note)


def figure_tables(tuning: Tuning, figures: Figures) -> Iterator[Table]:
    """The figures of both models and of the best constant answer on each set, with a note if the loss of general abilities was not measured."""
    held_out = reading_table("Held-out questions", figures[HELD_OUT])
    if UNANSWERED in figures:
        yield reading_table("The same questions with passages that lack the answer", figures[UNANSWERED])
    if tuning.general is None or GENERAL not in figures:
        why = "There was no general set" if tuning.general is None else "There was no time for the general set"
        note = f"{held_out.note}. {why}, so loss of general abilities was not measured."
        yield replace(held_out, note=note)
    else:
        yield held_out
        yield reading_table(f"General questions: {tuning.general.name}", figures[GENERAL])


def data_table(tuning: Tuning) -> Table:
    """Counts of documents, questions and rows by part, and of the questions left out."""
    questions = read_questions(tuning.out / QUESTIONS / QUESTIONS_FILE)
    (_, splits), *_ = read_jsonl(tuning.out / QUESTIONS / DOCUMENTS_FILE)
    rows = [("documents", *(f"{list(splits.values()).count(split):,}" for split in ("train", "test")))]
    for kind in sorted({question.kind for question in questions}):
        parts = [question.split for question in questions if question.kind == kind]
        rows.append((f"questions, {kind or 'no kind'}", *(f"{parts.count(split):,}" for split in ("train", "test"))))
    ids = [row["id"] for _, row in read_jsonl(tuning.out / ROWS / "train.jsonl")]
    rows.append(("training rows", f"{len(ids):,}", NONE))
    if tuning.general is not None:
        general = sum(each.startswith(f"{tuning.general.name}:") for each in ids)
        rows.append(("training rows from the general set", f"{general:,}", NONE))
    left_out = json.loads((tuning.out / QUESTIONS / LEFT_OUT_FILE).read_text(encoding="utf-8"))
    note = "No document is in both parts, and no evidence of a test question is in the training part."
    note += "".join(f" Left out: {counted(count, 'question')} ({why})." for why, count in left_out.items())
    too_long = json.loads((tuning.out / ROWS / SUMMARY).read_text(encoding="utf-8"))["drops"].get(TOO_LONG, 0)
    note += f" Left out: {counted(too_long, 'training row')} ({TOO_LONG})." if too_long else ""
    return Table("Data", ("number of", "training part", "test part"), tuple(rows), note)


def cost_table(tuning: Tuning) -> Table:
    """The seconds of each step."""
    spent = step_seconds(tuning.out)
    rows = tuple((step, f"{spent[step]:,.1f}" if step in spent else NONE) for step in tuning.steps)
    note = "The time of an interrupted step includes all its attempts, except those that were killed."
    return Table("Cost", ("step", "seconds"), rows, note)


def training_table(tuning: Tuning, name: str) -> Table:
    """The model, the settings and the figures of a step's training run."""
    run = read_run(tuning.out / name)
    steps, settings = run.metrics["train_steps"], run.settings
    rounds = settings.get("rounds")
    facts = {"model": tuning.settings.model, "licence": licence_of(tuning.settings.model)}
    if rounds:
        facts["responses"] = f"{rounds['samples']} to each of {rounds['prompts']:,} training questions"
    facts |= {
        "steps": f"{steps:,.0f} with {settings['batch_size'] * settings['gradient_accumulation']} {'prompts' if rounds else 'rows'} each",
        "seconds per step": f"{run.train_seconds / steps:.3g}",
        "learning rate": f"{settings['learning_rate']:g}",
        "loss": f"{run.metrics['train_loss']:.4g}",
        "seed": str(settings["seed"]),
        "device": run.device,
        "versions": ", ".join(f"{name} {number}" for name, number in run.versions.items()),
    }
    title = "A round of MS on the model's own responses" if rounds else "Training"
    return Table(title, ("property", "value"), tuple(facts.items()), f"All settings are in {name}/settings.yaml.")


def licence_of(model: str) -> str:
    """The licence of a model, or of an adapter's base; a pointer to its card if it is not in the catalogue."""
    base = base_of(model)
    return f"{MODELS[base].licence} ({MODELS[base].title})" if base in MODELS else f"see the card of {base}"


def samples(pair: PairedAnswers) -> Iterator[Sample]:
    """Every n-th held-out question with both answers, whether right or wrong."""
    step = -(-len(pair.untuned) // MAX_SAMPLES)
    for before, after in list(zip(pair.untuned, pair.tuned, strict=True))[::step]:
        task = before.task
        texts = [f"{excerpt.title}\n{excerpt.text}" for excerpt in task.excerpts]
        passages = tuple((f"[{number}]", text) for number, text in enumerate(texts, start=1))
        answers = (
            ("gold answer", "; ".join(task.question.answers) or "none: not in the documents"),
            (f"untuned, F1 {before.score.f1:.2f}", before.text),
            (f"tuned, F1 {after.score.f1:.2f}", after.text),
        )
        yield Sample(task.question.text, passages, answers)


def card(tuning: Tuning, headline: str, model: str, tables: list[Table]) -> str:
    """README.md: the verdict, how to use the recommended model (the tuned one also as GGUF), and the tables of the report."""
    export = shlex.join(["modegraph", "train", "export", tuning.tuned_model, "--gguf", "q8_0", "--out", "my-gguf"])
    exports = [export] if model == spec_for_answers(tuning.tuned_model) else []
    question = shlex.join(["modegraph", "ask", str(tuning.out / INDEX), "your question", "--model", model])
    use = "\n".join(f"$ {line}" for line in (serve_command(tuning.out, model), question, *exports))
    opening = f"# A model tuned on {tuning.plan.documents:,} documents"
    return "\n\n".join([opening, escape_markdown(headline), f"```console\n{use}\n```", *sections(tables, ())]) + "\n"


def serve_arguments(out: Path, model: str) -> list[str]:
    """The command that serves the documents with a model, as a list of arguments."""
    return ["modegraph", "serve", str(out / INDEX), "--model", model]


def serve_command(out: Path, model: str) -> str:
    """The command that serves the documents with a model, for a shell."""
    return shlex.join(serve_arguments(out, model))

"""The steps of a tuning run. Each step fills one folder inside --out. The folder gets its final name only when it is complete, so a step whose
folder exists is done. The exception is the round of MS, which fills its folder in place."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from data_synth.dataset.write import write_dataset
from data_synth.reading.reading_form import READING
from data_synth.reading.reading_rows import ReadingSettings, Share, reading_rows, set_of_index, set_of_passages
from data_synth.reading.sets import ReadingSet, read_set
from data_synth.rows import Dropped, ReadingRow, separate_dropped
from eval.reading import (
    ReadingAnswer,
    ReadingTask,
    answer_all,
    answers_json,
    gold_tasks,
    pick_questions,
    report_left_out,
    score_text,
    unanswerable_tasks,
)
from graph.config import parse_settings
from graph.documents.questions import read_questions
from graph.documents.read import read_documents
from graph.errors import UserError
from graph.shared.console import SECONDS_PER_HOUR, say
from graph.shared.home import HOME
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl, write_json, write_jsonl
from graph.types import Document, Excerpt
from modegraph.indexes import Index
from modegraph.indexes import index as make_index
from modegraph.tuning.gate import PairedAnswers
from modegraph.tuning.plan import (
    UNANSWERED_EVERY,
    TunePlan,
    questions_within,
    row_tokens,
    sft_settings,
    spec_for_answers,
    teacher_seconds,
)
from modegraph.tuning.questions import Row, split_documents, split_questions, teacher_rows
from modegraph.tuning.settings import TuneSettings
from serve.engines import open_model
from train.model.load import load_tokenizer
from train.plan.memory import Launch
from train.plan.plan import plan_training
from train.preference.rounds import train_preference
from train.run.save import fresh_folder
from train.run.settings import MsSettings
from train.sft import train_sft

HELD_OUT, UNANSWERED, GENERAL = "held-out", "unanswered", "general"
INDEX, QUESTIONS, ROWS, MODEL, MS, BASELINE, TUNED = "index", "questions", "rows", "model", "ms", "baseline", "tuned"
QUESTIONS_FILE, DOCUMENTS_FILE, LEFT_OUT_FILE = "questions.jsonl", "documents.json", "left-out.json"
LEDGER, SECONDS = "ledger.sqlite", "steps.jsonl"
BEFORE_ANSWERS = (INDEX, QUESTIONS, ROWS, MODEL, MS)
DISTRACTORS = 3
TOO_LONG = "the row is longer than max_length_tokens"


@dataclass(frozen=True)
class Tuning:
    """A tuning run in progress: its inputs, its plan, and its folder."""

    settings: TuneSettings
    documents: Sequence[Document]
    general: GeneralSet | None
    plan: TunePlan
    out: Path

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps, in order."""
        return tuple(step for step in (*BEFORE_ANSWERS, BASELINE, TUNED) if step != MS or self.settings.ms_prompts)

    @property
    def tuned_model(self) -> str:
        """The folder of the tuned model."""
        return str(self.out / (MS if self.settings.ms_prompts else MODEL))

    def training_questions(self) -> ReadingSet:
        """The questions of the training part, with the passages of its documents."""
        source = self.all_questions()
        (_, splits), *_ = read_jsonl(self.out / QUESTIONS / DOCUMENTS_FILE)
        return replace(
            source,
            questions=tuple(question for question in source.questions if question.split == "train"),
            passages={key: passage for key, passage in source.passages.items() if splits[passage.source] == "train"},
        )

    def all_questions(self) -> ReadingSet:
        """The questions of both parts, with all passages of the index."""
        questions = read_questions(self.out / QUESTIONS / QUESTIONS_FILE)
        return set_of_index(Index(self.out / INDEX).current(), questions)

    def tasks(self) -> dict[str, list[ReadingTask]]:
        """The questions that both models answer, by set: held-out questions, some of these again with passages that lack the answer, and general questions."""
        limits, seed = self.limits(), self.settings.seed
        everything = self.all_questions()
        held_out = pick_questions(everything, "test", limits[HELD_OUT], seed)
        # One split for all, so that a passage that answers a training question may be a distractor, and a question in both parts is recognised as repeated.
        source = replace(everything, questions=tuple(replace(each, split="test") for each in everything.questions))
        tasks = {
            HELD_OUT: gold_tasks(source, held_out, DISTRACTORS, seed),
            UNANSWERED: unanswerable_tasks(source, held_out, DISTRACTORS, seed)[::UNANSWERED_EVERY],
        }
        if self.general is not None and limits[GENERAL]:
            general = self.general.measured
            picked = pick_questions(general, None, limits[GENERAL], seed)
            tasks[GENERAL] = gold_tasks(general, picked, DISTRACTORS, seed)
        return {name: found for name, found in tasks.items() if found}

    def limits(self) -> dict[str, int]:
        """The largest number of questions in each set: as many as planned, or more if training left time for them."""
        spent = step_seconds(self.out)
        left = self.settings.hours * SECONDS_PER_HOUR - sum(spent.get(step, 0.0) for step in BEFORE_ANSWERS)
        pace, least = self.plan.pace.answer_s, self.settings.min_test_questions
        test, general = questions_within(left, pace, least, bool(self.plan.general_questions))
        return {HELD_OUT: max(test, self.plan.test_questions), GENERAL: max(general, self.plan.general_questions)}

    def answers(self) -> dict[str, PairedAnswers]:
        """The answers of both models by set, from their files."""
        return {
            name: PairedAnswers(*(read_answers(self.out / step / f"{name}.jsonl", tasks) for step in (BASELINE, TUNED)))
            for name, tasks in self.tasks().items()
        }


def step_seconds(out: Path) -> dict[str, float]:
    """The recorded seconds of each step, summed over its attempts; a killed attempt records none."""
    seconds: Counter[str] = Counter()
    for _, row in read_jsonl(out / SECONDS) if (out / SECONDS).exists() else ():
        seconds[row["step"]] += row["seconds"]
    return dict(seconds)


def read_answers(file: Path, tasks: Sequence[ReadingTask]) -> list[ReadingAnswer]:
    """Scored answers from a file that `write_answers` wrote."""
    texts = [row["text"] for _, row in read_jsonl(file)]
    return [score_text(task, text) for task, text in zip(tasks, texts, strict=True)]


def write_index(tuning: Tuning, folder: Path) -> None:
    """Index the documents, or finish an interrupted indexing run."""
    make_index(tuning.documents, folder, progress=True, encoder=tuning.settings.encoder)


def write_questions(tuning: Tuning, folder: Path) -> None:
    """Write the questions of both parts, the part of each document, and how many questions were left out."""
    settings, index = tuning.settings, Index(tuning.out / INDEX).current()
    teacher_questions: list[Row | Dropped] = []
    if settings.teacher is not None:
        specs = (settings.teacher, spec_for_answers(settings.model))
        teacher, judge = (open_model(spec, tuning.out / LEDGER) for spec in specs)
        teacher_questions = teacher_rows(index, settings, teacher, judge, teacher_seconds(settings))
    found = split_questions(index, settings, teacher_questions)
    write_jsonl(folder / QUESTIONS_FILE, found.rows)
    write_jsonl(folder / DOCUMENTS_FILE, [dict(found.documents)])
    write_json(folder / LEFT_OUT_FILE, found.left_out)


def write_answers(model_of: Callable[[Tuning], str], tuning: Tuning, folder: Path) -> None:
    """Write the answers of one model to all sets; the ledger replays those of an interrupted run."""
    spec = spec_for_answers(model_of(tuning))
    model = open_model(spec, tuning.out / LEDGER)
    for name, tasks in tuning.tasks().items():
        say(f"{spec}: {len(tasks):,} {name} questions")
        write_jsonl(folder / f"{name}.jsonl", answers_json(spec, answer_all(model, tasks, model.form)))


def write_rows(tuning: Tuning, folder: Path) -> None:
    """Write training rows in the form that `reader` was trained on, with a share from the general set; UserError if no question yields a row that fits."""
    settings = row_settings(tuning.settings)
    made = reading_rows(tuning.training_questions(), settings, Share(passes=tuning.settings.passes))
    rows = fitting_rows(made, tuning.settings)
    drops = Counter(row.why for row in rows if isinstance(row, Dropped))
    if len(rows) == drops.total():
        reasons = ", ".join(f"{count} × {why}" for why, count in drops.items())
        remedy = "raise max_length_tokens, or lower context_words" if drops[TOO_LONG] else "add documents"
        raise UserError(f"no training row could be made ({reasons})", "answers that occur in passages", remedy)
    origin = {"Index": INDEX, "Questions": QUESTIONS_FILE}
    if tuning.general is not None:
        rows += fitting_rows(general_rows(tuning, settings, len(rows) - drops.total()), tuning.settings)
        origin["General set"] = tuning.general.name
    write_dataset(folder, rows, READING, origin)


def fitting_rows(rows: Iterable[ReadingRow | Dropped], settings: TuneSettings) -> list[ReadingRow | Dropped]:
    """The rows of at most `max_length_tokens`; a longer row is dropped, because training would reject it."""
    made, dropped = separate_dropped(rows)
    lengths = row_tokens(load_tokenizer(settings.model), made)
    fit = (length <= settings.max_length_tokens for length in lengths)
    return [*(row if fits else Dropped(TOO_LONG) for row, fits in zip(made, fit, strict=True)), *dropped]


def row_settings(settings: TuneSettings) -> ReadingSettings:
    """The settings of training rows."""
    names = ("answer_words", "context_words", "without_gold", "paired", "seed")
    values = {name: getattr(settings, name) for name in names}
    return parse_settings(ReadingSettings, values | {"own_words": True}, "tune")


def general_rows(tuning: Tuning, settings: ReadingSettings, other_rows: int) -> list[ReadingRow]:
    """Rows from one half of the general set: `general_share` of all rows (these and `other_rows`), or fewer if that half has too few questions."""
    assert tuning.general is not None
    share = tuning.settings.general_share
    rows = reading_rows(tuning.general.trained_on, settings, Share(passes=tuning.settings.passes))
    usable = (row for row in rows if isinstance(row, ReadingRow))
    return list(islice(usable, round(other_rows * share / (1 - share))))


def train(tuning: Tuning) -> None:
    """Train for as many steps as the time allows, at most those of `epochs`; an interrupted run resumes from its last checkpoint."""
    settings = sft_settings(tuning.settings, tuning.out / ROWS, tuning.out / MODEL)
    counts = plan_training(settings, Launch(), 0).counts
    step_s = tuning.plan.pace.token_s * counts.tokens / counts.steps
    steps = min(counts.steps, max(1, int(tuning.plan.seconds[MODEL] / step_s)))
    say(f"training: {steps:,} of the {counts.steps:,} steps of a full training, about {step_s:.3g} s each")
    train_sft(settings.model_copy(update={"max_steps": steps}))


def train_on_own_responses(tuning: Tuning) -> None:
    """One round of MS on responses of the trained model; an interrupted one resumes."""
    values = tuning.settings.round_of_ms(tuning.out / MODEL, tuning.out / ROWS, tuning.out / MS)
    train_preference(parse_settings(MsSettings, values, "tune"), open_model)


FOLDER_WRITERS: Mapping[str, Callable[[Tuning, Path], None]] = {
    INDEX: write_index,
    QUESTIONS: write_questions,
    BASELINE: partial(write_answers, lambda tuning: tuning.settings.model),
    ROWS: write_rows,
    TUNED: partial(write_answers, lambda tuning: tuning.tuned_model),
}


def run_step(name: str, tuning: Tuning) -> None:
    """Fill the folder of a step; an interrupted indexing or training run continues from its unfinished folder."""
    if name == MODEL:
        train(tuning)
    elif name == MS:
        train_on_own_responses(tuning)
    else:
        with fresh_folder(tuning.out / name, resumable=name == INDEX) as folder:
            FOLDER_WRITERS[name](tuning, folder)
    gc.collect()  # a trainer's model forms reference cycles, and the next step needs the memory


@dataclass(frozen=True)
class GeneralSet:
    """Questions about other documents, in two halves that share no passages: `trained_on` is mixed into training, `measured` tests the models."""

    name: str
    trained_on: ReadingSet
    measured: ReadingSet


def general_set(settings: TuneSettings, documents: Sequence[Document]) -> GeneralSet | None:
    """The reading set in the settings or modegraph's examples, in halves; None if there is neither. Answerable questions without gold passages are left out.

    UserError if no questions are left, or none in the half for testing.
    """
    source = read_set(Path(settings.general)) if settings.general is not None else short_examples(documents)
    if source is None:
        return None
    usable = tuple(each for each in source.questions if each.gold_ids or not each.is_answerable)
    report_left_out(source, source.questions, usable)
    general = halves(replace(source, questions=usable), settings.seed)
    if not general.measured.questions:
        found = f"general = {settings.general or source.name}: no question has all its passages in the half that the models are tested on"
        raise UserError(found, "at least one such question", "add questions about single passages")
    return general


def halves(source: ReadingSet, seed: int) -> GeneralSet:
    """A reading set divided in two by its passages; copies of one text stay together, and a question whose passages are in both halves is left out."""
    text_of = {key: content_id(excerpt.text) for key, excerpt in source.passages.items()}
    half_of = split_documents(text_of, set(text_of.values()), seed, share=0.5)

    def half(name: str) -> ReadingSet:
        passages = {key: excerpt for key, excerpt in source.passages.items() if half_of[key] == name}
        questions = (
            replace(each, split=name, context_ids=tuple(key for key in each.context_ids if key in passages))
            for each in source.questions
            if {half_of[key] for key in each.gold_ids or each.context_ids} == {name}
        )
        return ReadingSet(source.name, passages, tuple(questions))

    return GeneralSet(source.name, half("train"), half("test"))


def short_examples(documents: Sequence[Document]) -> ReadingSet | None:
    """modegraph's example questions that have a short answer; None if the examples are not installed, or if `documents` share a text with them."""
    folder = HOME / "examples"
    if not (folder / QUESTIONS_FILE).is_file():
        return None
    examples = list(read_documents(folder / "documents", say))
    if {document.text for document in examples} & {document.text for document in documents}:
        return None
    passages = {each.source: [Excerpt(each.source, each.title, each.text, each.source)] for each in examples}
    source = set_of_passages("modegraph's examples", passages, read_questions(folder / QUESTIONS_FILE))
    short = (
        each for each in source.questions if each.gold_ids and each.kind != "abstract" and "maybe" not in each.answers
    )
    return replace(source, questions=tuple(short))

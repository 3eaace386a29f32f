"""The plan of a tuning run: the longest time that each step may take, estimated from a few training steps and one answer with passages cut from the documents.

Only temporary files are written."""

from __future__ import annotations

import gc
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_synth.reading.sets import ReadingQuestion
from data_synth.rows import ReadingRow, reading_to_json
from eval.reading import ReadingTask, answer_all
from graph.answer.prompt import CitedSentence, answer_messages, write_answer
from graph.config import parse_settings
from graph.errors import UserError
from graph.models.catalogue import MODELS
from graph.models.checkpoint import base_of, is_adapter
from graph.shared.console import SECONDS_PER_HOUR, duration
from graph.shared.jsonl import write_jsonl
from graph.text.prompting import quote
from graph.types import Document, Excerpt
from modegraph.tuning.questions import check_distinct
from modegraph.tuning.settings import SFT, TuneSettings
from serve.engines import KINDS, fastest_kind, open_engine
from train.model.load import load_tokenizer
from train.model.logps import tokenize_rows
from train.plan.memory import Launch
from train.plan.plan import plan_training
from train.run.settings import SftSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TRIAL_STEPS, TRIAL_PASSAGES = 2, 4
TEACHER_SHARE, ANSWERING_SHARE, TRAINING_SHARE = 0.1, 0.25, 0.9
"""Shares of --hours for a teacher's questions and for the answers of both models (less if there are few questions); TRAINING_SHARE is a share of the
time that the other steps leave."""
MAX_TEST, MAX_GENERAL = 200, 100
MODELS_COMPARED = ("untuned", "tuned")
UNANSWERED_EVERY = 3
"""Every third test question is also answered with passages that lack its answer."""
INDEX_START_S, INDEX_WORDS_A_SECOND, OTHER_S = 10.0, 1000.0, 30.0
"""The first two were measured with `modegraph index` on two cores; the last is the time for questions, rows and the report."""
MS_TIME_RATIO = 3.0
"""Time per prompt in the round of MS (eight responses, a pass of the reference model, the training), as a multiple of the time per training
row: 28 s against 9 s on the stories of FairytaleQA."""
INDEX_BYTES_A_WORD, RUN_MB = 250, 300
"""Disk space of an index per word (3.2 MB for the 12,500 words of examples/documents), and of an adapter, its optimiser and a checkpoint together."""


@dataclass(frozen=True)
class Pace:
    """Measured seconds: per token of a training step, per training step, per answer."""

    token_s: float
    step_s: float
    answer_s: float


@dataclass(frozen=True)
class TunePlan:
    """The plan: the maximum seconds of each step, and how many questions to answer (more if training leaves time)."""

    documents: int
    words: int
    test_questions: int
    general_questions: int
    pace: Pace
    seconds: Mapping[str, float]
    disk_mb: int

    def __str__(self) -> str:
        general = f" and {self.general_questions} general ones" if self.general_questions else ""
        lines = [
            f"{self.documents:,} documents, {self.words:,} words; at most {self.test_questions} test questions{general}",
            *(f"  {step:<10} {duration(seconds):>12} at most" for step, seconds in self.seconds.items()),
            f"  {'total':<10} {duration(sum(self.seconds.values())):>12} at most",
            f"one training step takes {self.pace.step_s:.3g} s, one answer {self.pace.answer_s:.3g} s; disk: about {self.disk_mb:,} MB",
        ]
        return "\n".join(lines)


def plan_of(settings: TuneSettings, documents: Sequence[Document], has_general: bool) -> TunePlan:
    """The plan; UserError for documents that cannot be divided, a model that cannot be trained, and too few hours."""
    check_distinct(len({document.text for document in documents}), "distinct documents")
    pace = measure_pace(settings, documents)
    words = sum(len(document.text.split()) for document in documents)
    answering_limit = ANSWERING_SHARE * settings.hours * SECONDS_PER_HOUR
    test, general = questions_within(answering_limit, pace.answer_s, settings.min_test_questions, has_general)
    answering = pace.answer_s * (test + test // UNANSWERED_EVERY + general)
    index = INDEX_START_S + words / INDEX_WORDS_A_SECOND
    questions = OTHER_S + teacher_seconds(settings)
    ms_round = settings.ms_prompts * MS_TIME_RATIO * pace.step_s / SFT["gradient_accumulation"]
    others = index + questions + ms_round + len(MODELS_COMPARED) * answering
    training = TRAINING_SHARE * (settings.hours * SECONDS_PER_HOUR - others)
    if training < pace.step_s:
        needed = math.ceil((others + pace.step_s / TRAINING_SHARE) / SECONDS_PER_HOUR * 100) / 100
        found = f"hours = {settings.hours:g}: {duration(others)} for everything but the training, {pace.step_s:.3g} s for one training step"
        raise UserError(found, f"at least {needed:g} hours", "raise --hours, or choose a smaller --model")
    seconds = {"index": index, "questions": questions, "model": training, **({"ms": ms_round} if ms_round else {})}
    seconds |= {"baseline": answering, "tuned": answering}
    disk_mb = RUN_MB + round(words * INDEX_BYTES_A_WORD / 1e6)
    return TunePlan(len(documents), words, test, general, pace, seconds, disk_mb)


def questions_within(seconds: float, answer_s: float, min_test_questions: int, has_general: bool) -> tuple[int, int]:
    """How many test questions and general questions each of the two models can answer if both together may take `seconds`.

    At least `min_test_questions` test questions, and otherwise at most MAX_TEST; general ones are up to a third of the answers, and at most MAX_GENERAL.

    >>> questions_within(600, 2.0, 15, True), questions_within(600, 2.0, 15, False), questions_within(6, 2.0, 300, True)
    ((75, 50), (112, 0), (300, 0))
    """
    answers = int(seconds / (len(MODELS_COMPARED) * answer_s))
    general = min(MAX_GENERAL, answers // 3) if has_general else 0
    test = min(MAX_TEST, (answers - general) * UNANSWERED_EVERY // (UNANSWERED_EVERY + 1))
    return max(min_test_questions, test), general


def teacher_seconds(settings: TuneSettings) -> float:
    """The seconds that the teacher may spend on writing questions; 0 without a teacher."""
    return TEACHER_SHARE * settings.hours * SECONDS_PER_HOUR if settings.teacher else 0.0


def measure_pace(settings: TuneSettings, documents: Sequence[Document]) -> Pace:
    """Time some steps of training and an answer, with passages cut from the documents."""
    tasks = trial_tasks(documents, settings)
    with tempfile.TemporaryDirectory() as folder:
        write_jsonl(Path(folder) / "train.jsonl", (reading_to_json(trial_row(task)) for task in tasks))
        training = plan_training(sft_settings(settings, Path(folder), Path(folder) / "run"), Launch(), TRIAL_STEPS)
    calibration = training.calibration
    assert calibration is not None
    gc.collect()  # the trainer's model forms reference cycles, and the engine needs the memory
    model = open_engine(spec_for_answers(settings.model))
    answer_all(model, tasks[:1], model.form)
    started = time.perf_counter()
    answer_all(model, tasks[1:2] or tasks, model.form)
    answer_s = time.perf_counter() - started
    step_s = SFT["gradient_accumulation"] * calibration.seconds / calibration.steps
    return Pace(calibration.seconds_per_token, step_s, answer_s)


def trial_tasks(documents: Sequence[Document], settings: TuneSettings) -> list[ReadingTask]:
    """Tasks whose passages are the first words of the longest documents, in a different order for each task, cut so that their rows have at most
    `max_length_tokens`; UserError if even rows without passages have more."""
    longest = sorted(documents, key=lambda document: -len(document.text))[:TRIAL_PASSAGES]
    words, limit = settings.context_words // len(longest), settings.max_length_tokens
    texts = [quote(" ".join(document.text.split()[:words])) for document in longest]
    tokenizer = load_tokenizer(settings.model)
    while True:
        excerpts = [
            Excerpt(str(n), document.title, text) for n, (document, text) in enumerate(zip(longest, texts, strict=True))
        ]
        tasks = [
            ReadingTask(
                ReadingQuestion(f"trial-{n}", f"What is passage {n} about?", ("trial",), (), (), (), "", "train"),
                (*excerpts[n:], *excerpts[:n]),
            )
            for n in range(len(excerpts))
        ]
        tokens = max(row_tokens(tokenizer, [trial_row(task) for task in tasks]))
        if tokens <= limit:
            return tasks
        if not any(texts):
            found = f"max_length_tokens = {limit}: a question without passages has {tokens} tokens"
            raise UserError(found, "a limit that leaves tokens for passages", "raise max_length_tokens")
        texts = [text[: len(text) * limit // tokens] for text in texts]


def row_tokens(tokenizer: PreTrainedTokenizerBase, rows: Sequence[ReadingRow]) -> list[int]:
    """The number of tokens of each row, as in training."""
    return [len(row.ids) for row in tokenize_rows(tokenizer, [(row.prompt, row.completion) for row in rows])]


def trial_row(task: ReadingTask) -> ReadingRow:
    """A training row with the passages of a task; its answer is the first words of the first passage."""
    answer = " ".join(task.excerpts[0].text.split()[:8])
    return ReadingRow(
        id=task.question.id,
        prompt=answer_messages(task.question.text, task.excerpts, "cited"),
        completion=write_answer(answer, [CitedSentence(1, answer)], "cited"),
        question_id=task.question.id,
        question=task.question.text,
        answers=(answer,),
        kind="",
        split="train",
        context_ids=tuple(excerpt.id for excerpt in task.excerpts),
        gold_ids=(task.excerpts[0].id,),
    )


def sft_settings(settings: TuneSettings, data: Path, output: Path) -> SftSettings:
    """The settings of the training: an adapter is trained further, by default with `anchor_refusals`; any other model gets a new adapter."""
    adapted = is_adapter(settings.model)
    model_settings: dict[str, Any] = {
        "precision": "auto",
        "lora": None if adapted else {},
        "anchor_refusals": adapted if settings.anchor_refusals is None else settings.anchor_refusals,
    }
    return parse_settings(SftSettings, settings.training(data, output) | model_settings, "tune")


def model_to_train(spec: str) -> str:
    """The name by which training accepts the model of a SPEC; UserError for an engine that can only answer."""
    kind, _, target = spec.partition(":")
    if kind in KINDS and kind != "hf" and target:
        expected = "hf:PATH_OR_NAME, or a name from `modegraph models list`"
        raise UserError(f"model {spec!r}: cannot be trained", expected, "choose another model")
    return target if kind == "hf" and target else spec


def spec_for_answers(model: str) -> str:
    """The SPEC of a model: for OpenVINO, if its base is in the catalogue and OpenVINO is the fastest engine on this machine, else for transformers.

    The engine is the same before and after tuning.
    """
    base = base_of(model)
    kind = "openvino" if base in MODELS and fastest_kind() == "openvino" else "hf"
    return f"{kind}:{model}"

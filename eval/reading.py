"""`modegraph eval reading`: models answer a reading set greedily, from gold passages among distractors, from retrieved passages, or without passages.

Distractors are chosen as in data_synth/reading/reading_rows.py, but another question's gold passages are not added;
data_synth/reading/reading_form.py scores answers. The best constant answer (the same one for every question) is listed with the models."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from data_synth.reading.reading_form import ReadingScore, score_reading
from data_synth.reading.reading_rows import MAX_LEXICAL, NO_GOLD, Distractors
from data_synth.reading.sets import ReadingQuestion, ReadingSet
from data_synth.rows import sample_rows
from data_synth.texts import occurs_in, words_of
from eval.statistics import Interval, bootstrap_mean
from eval.tables import Table, figure_or_dash
from graph.answer.citations import check_citations, own_citations, short_answer
from graph.answer.match import f1_beyond_question
from graph.answer.prompt import ANSWER_TOKENS, NOT_FOUND, answer_messages, parse_answer, with_title
from graph.answer.support import SupportChecker, without_unsupported
from graph.answer.verifier import Verifier
from graph.documents.questions import Question
from graph.errors import UserError
from graph.shared.console import say, track
from graph.shared.ids import content_id
from graph.types import AnswerForm, Completion, CompletionRequest, Excerpt, LanguageModel
from serve.pipeline import NOTHING_FOUND

if TYPE_CHECKING:
    from graph.index.index import Index
    from graph.retrieve.parts.query import RetrieveSettings

ALL, CONSTANT = "all", "constant answer"


@dataclass(frozen=True)
class ReadingTask:
    """A question and the excerpts to answer it from."""

    question: ReadingQuestion
    excerpts: tuple[Excerpt, ...]

    @property
    def gold(self) -> frozenset[int]:
        """The numbers of the question's gold passages among the excerpts."""
        return frozenset(
            number
            for number, excerpt in enumerate(self.excerpts, start=1)
            if excerpt.id in self.question.gold_ids or excerpt.source in self.question.gold_ids
        )


@dataclass(frozen=True)
class ReadingAnswer:
    """A model's text for a question, and its score; `supported`: whether the passages that the text cites contain its short answer."""

    task: ReadingTask
    text: str
    score: ReadingScore
    supported: float

    @property
    def f1_beyond_question(self) -> float:
        """`f1_beyond_question` of the short answer; plain F1 for a refusal or an unanswerable question."""
        question = self.task.question
        if self.score.refuses or not question.is_answerable:
            return self.score.f1
        return f1_beyond_question(question.text, short_answer(self.text), question.answers)


@dataclass(frozen=True)
class ReadingFigures:
    """Figures of questions of one kind, from 0 to 1; three have 95 % intervals, and a share is None if there is nothing to count.

    `f1_beyond_question` is F1 over the words that the question lacks: a full sentence gains nothing by repeating its question.
    `refused_answerable` is the share of questions with an answer that are refused, `refused_unanswerable` that of questions without one;
    `cites` is a share of the answers that do not refuse, `cites_gold` of the right answers, `supported` of the answers
    that cite, without those to yes/no questions.
    """

    questions: int
    exact: Interval
    f1: Interval
    f1_beyond_question: Interval
    refused_answerable: float | None
    refused_unanswerable: float | None
    cites: float | None
    cites_gold: float | None
    supported: float | None


def pick_questions(source: ReadingSet, split: str | None, limit: int | None, seed: int) -> list[ReadingQuestion]:
    """The questions of a split (of all, if None), at most `limit` of them, sampled by a hash of `seed` and their ids; UserError if there are none."""
    candidates = [question for question in source.questions if split in (None, question.split)]
    if not candidates:
        splits = ", ".join(sorted({question.split for question in source.questions}))
        raise UserError(f"{source.name}: no questions of split {split!r}", f"one of {splits}", "choose another --split")
    return sample_rows(candidates, limit, seed)


def gold_tasks(
    source: ReadingSet, questions: Sequence[ReadingQuestion], distractors: int, seed: int
) -> list[ReadingTask]:
    """Each question with its gold passages among `distractors` others, shuffled; an unanswerable question with passages on its topic.

    If there are enough passages, half of the others are from the question's `context_ids`, and half are those that BM25 ranks first; none contains the answer.
    An answerable question without gold passages is left out.
    """
    finder = Distractors(source)
    tasks = []
    for question in questions:
        if question.is_answerable and not question.gold_ids:
            continue
        rng = random.Random(content_id("eval reading", str(seed), question.id))
        near, lexical = finder.candidates(question, max(distractors, MAX_LEXICAL))
        gold = list(question.gold_ids)
        if not question.is_answerable:
            gold = list(question.gold_ids or question.context_ids[:1])
            near = [passage_id for passage_id in near if passage_id not in gold]
        rng.shuffle(near)
        ids = [*gold, *interleave(near, [passage_id for passage_id in lexical if passage_id not in gold], distractors)]
        rng.shuffle(ids)
        tasks.append(ReadingTask(question, tuple(source.passages[passage_id] for passage_id in ids)))
    return tasks


def report_left_out(
    source: ReadingSet, questions: Sequence[ReadingQuestion], remaining: Sequence[ReadingTask | ReadingQuestion]
) -> None:
    """Print how many questions were left out for lack of gold passages, if any; UserError if all were."""
    left_out = f"{source.name}: {len(questions) - len(remaining):,} of {len(questions):,} questions left out: {NO_GOLD}"
    if not remaining:
        raise UserError(left_out, "questions with gold_ids", "add them; only `eval reading --index` does without")
    if len(remaining) < len(questions):
        say(left_out)


def unanswerable_tasks(
    source: ReadingSet, questions: Sequence[ReadingQuestion], distractors: int, seed: int
) -> list[ReadingTask]:
    """Each answerable question with passages that do not answer it, so that it should be refused.

    A question is left out if it has no distractors, or if other documents may answer it too (`Distractors.recurs`).
    """
    finder = Distractors(source)
    tasks = []
    for question in questions:
        rng = random.Random(content_id("without gold", str(seed), question.id))
        near, lexical = finder.candidates(question, max(distractors, MAX_LEXICAL))
        rng.shuffle(near)
        ids = interleave(near, lexical, distractors)
        rng.shuffle(ids)
        if ids and question.is_answerable and not finder.recurs(question):
            unanswerable = replace(question, answers=(), gold_ids=())
            tasks.append(ReadingTask(unanswerable, tuple(source.passages[passage_id] for passage_id in ids)))
    return tasks


def interleave(one: Sequence[str], other: Sequence[str], count: int) -> list[str]:
    """The first `count` distinct items of two lists, about equally many from each until one runs out.

    >>> interleave(["a", "b"], ["c", "d"], 3), interleave([], ["d", "e"], 3)
    (['a', 'c', 'b'], ['d', 'e'])
    """
    pools, items = [list(one), list(other)], list[str]()
    while len(items) < count and any(pools):
        pools.sort(key=len)
        pool = pools[-1] if not pools[0] or len(items) % 2 else pools[0]
        item = pool.pop(0)
        if item not in items:
            items.append(item)
    return items


def retrieved_tasks(
    index: Index, questions: Sequence[ReadingQuestion], settings: RetrieveSettings
) -> list[ReadingTask]:
    """Each question with the passages retrieved for it."""
    from graph.answer.context import build_context
    from graph.retrieve.retrieve import retrieve_many

    all_evidence = retrieve_many(index, [question.text for question in questions], settings)
    return [
        ReadingTask(question, build_context(evidence, settings.top_k))
        for question, evidence in zip(questions, all_evidence, strict=True)
    ]


def greedy_completions(
    model: LanguageModel,
    questions: Sequence[Question | ReadingQuestion],
    contexts: Sequence[Sequence[Excerpt]],
    form: AnswerForm,
    max_answer_tokens: int,
    closed_book: bool,
) -> list[Completion]:
    """The completion that answers each question. As in `ask`, a question without excerpts gets NOTHING_FOUND, without a call, unless `closed_book`.

    UserError for a request that the server refuses.
    """
    answered = [number for number, context in enumerate(contexts) if context or closed_book]
    requests = [
        CompletionRequest(answer_messages(questions[number].text, contexts[number], form), max_answer_tokens)
        for number in answered
    ]
    answers = [NOTHING_FOUND] * len(questions)
    for number, completion in zip(answered, model.complete(requests), strict=True):
        if completion.finish_reason == "refused":
            found = f"question {questions[number].id!r}: the server refused the request ({completion.text})"
            remedy = "use fewer or shorter passages (top_k, max_context_tokens, --distractors)"
            raise UserError(found, "a request that the server accepts", remedy)
        answers[number] = completion
    return answers


def answer_all(
    model: LanguageModel, tasks: Sequence[ReadingTask], form: AnswerForm, closed_book: bool = False
) -> list[ReadingAnswer]:
    """The model's greedy answers; a task without excerpts is refused without a call, unless `closed_book`."""
    questions, contexts = [task.question for task in tasks], [task.excerpts for task in tasks]
    completions = greedy_completions(model, questions, contexts, form, ANSWER_TOKENS[form], closed_book)
    return [score_text(task, completion.text) for task, completion in zip(tasks, completions, strict=True)]


def drop_unsupported(answers: Sequence[ReadingAnswer], verifier: Verifier, form: AnswerForm) -> list[ReadingAnswer]:
    """The answers as `--unsupported drop` shows them: an answer becomes a refusal if the verifier finds all its sentences unsupported; the others stay."""
    return [
        score_text(answer.task, NOT_FOUND) if _is_unsupported(answer, verifier, form) else answer
        for answer in track(answers, "checking the answers", len(answers))
    ]


def _is_unsupported(answer: ReadingAnswer, verifier: Verifier, form: AnswerForm) -> bool:
    excerpts = answer.task.excerpts
    text = check_citations(parse_answer(answer.text, form).answer, len(excerpts)).text
    unsupported = SupportChecker(excerpts, verifier, answer.task.question.text).unsupported("answer", text)
    return bool(unsupported) and not without_unsupported(text, unsupported)[0]


def constant_answers(tasks: Sequence[ReadingTask]) -> list[ReadingAnswer]:
    """Every task answered with the same string: the answer, or refusal, that is right most often."""
    counts = Counter(
        answer.casefold() for task in tasks for answer in dict.fromkeys(task.question.answers or (NOT_FOUND,))
    )
    best = max(counts, key=counts.__getitem__, default=NOT_FOUND)
    return [score_text(task, best) for task in tasks]


def score_text(task: ReadingTask, text: str) -> ReadingAnswer:
    """Score a text as the answer to a task."""
    score = score_reading(text, task.question.answers, task.gold, len(task.excerpts))
    cited = own_citations(text, len(task.excerpts)).existing
    cited_words = words_of(" ".join(with_title(task.excerpts[number - 1]) for number in cited))
    return ReadingAnswer(task, text, score, float(occurs_in(short_answer(text), cited_words)))


def reading_figures(answers: Sequence[ReadingAnswer], seed: int = 0) -> dict[str, ReadingFigures]:
    """The figures of all questions and of each kind."""
    kinds = [ALL, *sorted({kind_of(answer) for answer in answers})]
    return {kind: _figures([answer for answer in answers if kind in (ALL, kind_of(answer))], seed) for kind in kinds}


def kind_of(answer: ReadingAnswer) -> str:
    """ "unanswerable", "yes or no", the kind stated in the reading set, or "other"."""
    question = answer.task.question
    if not question.is_answerable:
        return "unanswerable"
    return "yes or no" if question.is_yes_no else question.kind or "other"


def _figures(answers: Sequence[ReadingAnswer], seed: int) -> ReadingFigures:
    answerable = [answer for answer in answers if answer.task.question.is_answerable]
    unanswerable = [answer for answer in answers if not answer.task.question.is_answerable]
    answering = [answer for answer in answers if not answer.score.refuses]
    right = [answer for answer in answering if answer.score.exact]
    citing = [answer for answer in answering if answer.score.cites and not answer.task.question.is_yes_no]
    return ReadingFigures(
        len(answers),
        bootstrap_mean([answer.score.exact for answer in answers], seed=seed),
        bootstrap_mean([answer.score.f1 for answer in answers], seed=seed),
        bootstrap_mean([answer.f1_beyond_question for answer in answers], seed=seed),
        _mean([answer.score.refuses for answer in answerable]),
        _mean([answer.score.refuses for answer in unanswerable]),
        _mean([answer.score.cites for answer in answering]),
        _mean([answer.score.cites_gold for answer in right]),
        _mean([answer.supported for answer in citing]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def reading_table(title: str, models: Mapping[str, Mapping[str, ReadingFigures]]) -> Table:
    """The models' figures as a table: for each model one row for all questions and, if there are several kinds, one per kind."""
    rows = [
        _row(f"{name}, {kind}", figures)
        for name, by_kind in models.items()
        for kind, figures in by_kind.items()
        if kind == ALL or len(by_kind) > 2
    ]
    refused = ("answerable refused", "unanswerable refused")
    header = ("model, kind", "n", "EM", "F1", "F1 beyond", *refused, "cites", "cites gold", "supported")
    note = (
        "F1 beyond: F1 over the words that the question lacks; answerable refused: refusals among the questions with an answer; cites: answers with a "
        "citation among those that do not refuse; cites gold: answers that cite only gold passages among the right ones; supported: share of the citing "
        "answers (yes/no questions left out) whose cited passages contain the answer"
    )
    return Table(title, header, tuple(rows), note)


def _row(name: str, figures: ReadingFigures) -> tuple[str, ...]:
    intervals = (f"{each:.3f}" for each in (figures.exact, figures.f1))
    refused = (figures.refused_answerable, figures.refused_unanswerable)
    shares = (figures.f1_beyond_question.mean, *refused, figures.cites, figures.cites_gold, figures.supported)
    return (name, str(figures.questions), *intervals, *(figure_or_dash(share, ".2f") for share in shares))


def reading_json(models: Mapping[str, Mapping[str, ReadingFigures]]) -> dict[str, Any]:
    """The figures as JSON."""
    return {name: {kind: asdict(figures) for kind, figures in by_kind.items()} for name, by_kind in models.items()}


def answers_json(name: str, answers: Sequence[ReadingAnswer]) -> list[dict[str, Any]]:
    """Answers as rows of a file, for inspection."""
    return [
        {
            "model": name,
            "id": answer.task.question.id,
            "question": answer.task.question.text,
            "answers": list(answer.task.question.answers),
            "text": answer.text,
            "gold": sorted(answer.task.gold),
            "passages": [with_title(excerpt) for excerpt in answer.task.excerpts],
            **asdict(answer.score),
        }
        for answer in answers
    ]

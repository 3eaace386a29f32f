"""`modegraph eval reading`: a reading set answered greedily by models, over gold passages among distractors, over what retrieval finds, or over nothing.

Contexts come from the same place as training rows (data_synth/reading/reading_rows.py), scores too (data_synth/reading/score.py). Beside the models stands the best constant answer: what a model that never reads would get."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from data_synth.reading.reading_rows import Distractors, contains_answer, words_of
from data_synth.reading.score import ReadingScore, score_reading, short_answer
from data_synth.reading.sets import ReadingQuestion, ReadingSet
from eval.statistics import Interval, bootstrap_mean
from eval.tables import Table
from graph.answer.citations import own_citations
from graph.answer.prompt import NOT_FOUND, answer_messages, with_title
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.types import AnswerForm, CompletionRequest, Excerpt, LanguageModel

if TYPE_CHECKING:
    from graph.index.index import Index
    from graph.retrieve.parts.query import RetrieveSettings

ANSWER_TOKENS: Mapping[AnswerForm, int] = {"cited": 48, "quoted": 256, "reasoned": 256}
ALL, CONSTANT = "all", "constant answer"


@dataclass(frozen=True)
class ReadingTask:
    """A question over a context."""

    question: ReadingQuestion
    excerpts: tuple[Excerpt, ...]

    @property
    def gold(self) -> frozenset[int]:
        """The numbers of its gold passages in the context."""
        return frozenset(
            number
            for number, excerpt in enumerate(self.excerpts, start=1)
            if excerpt.id in self.question.gold_ids or excerpt.source in self.question.gold_ids
        )


@dataclass(frozen=True)
class ReadingAnswer:
    """A model's text for a question, and its score; `supported`: whether its short answer stands in a passage that it cites."""

    task: ReadingTask
    text: str
    score: ReadingScore
    supported: float


@dataclass(frozen=True)
class ReadingFigures:
    """Of `questions` of one kind: shares of 1 with 95 % intervals, None where there are none to take it of.

    `refused_answerable` is the share of questions with an answer that are refused, `refused_unanswerable` of those without; `cites` of the
    answers that do not refuse; `cites_gold` of the right ones; `supported` of the answers that cite.
    """

    questions: int
    exact: Interval
    f1: Interval
    refused_answerable: float | None
    refused_unanswerable: float | None
    cites: float | None
    cites_gold: float | None
    supported: float | None


def pick_questions(source: ReadingSet, split: str | None, limit: int | None, seed: int) -> list[ReadingQuestion]:
    """The questions of a split (all without one), at most `limit` of them, by the hash of their ids; UserError where there are none."""
    found = [question for question in source.questions if split in (None, question.split)]
    if not found:
        splits = ", ".join(sorted({question.split for question in source.questions}))
        raise UserError(f"{source.name}: no questions of split {split!r}", f"one of {splits}", "choose another --split")
    drawn = sorted(found, key=lambda question: content_id(str(seed), question.id))[:limit]
    order = {question.id: place for place, question in enumerate(source.questions)}
    return sorted(drawn, key=lambda question: order[question.id])


def over_gold(
    source: ReadingSet, questions: Sequence[ReadingQuestion], distractors: int, seed: int
) -> list[ReadingTask]:
    """Each question over its gold passages among `distractors` others, shuffled; one that nothing answers over passages that it may be asked over.

    Half of the others are of the same document or retrieval, half those that BM25 ranks first, as far as there are such; none holds the answer.
    """
    finder = Distractors(source)
    made = []
    for question in questions:
        rng = random.Random(content_id("eval reading", str(seed), question.id))
        near, lexical = finder.of(question)
        gold = list(question.gold_ids)
        if not question.is_answerable:
            gold = list(question.gold_ids or question.context_ids[:1])
            near = [one for one in near if one not in gold]
        rng.shuffle(near)
        pools = [near, [one for one in lexical if one not in gold]]
        others: list[str] = []
        while len(others) < distractors and any(pools):
            pools.sort(key=len)
            pool = pools[-1] if not pools[0] or len(others) % 2 else pools[0]
            one = pool.pop(0)
            if one not in others:
                others.append(one)
        ids = [*gold, *others]
        rng.shuffle(ids)
        made.append(ReadingTask(question, tuple(source.passages[one] for one in ids)))
    return made


def over_index(index: Index, questions: Sequence[ReadingQuestion], settings: RetrieveSettings) -> list[ReadingTask]:
    """Each question over what retrieval finds."""
    from graph.answer.context import build_context
    from graph.retrieve.retrieve import retrieve_many

    found = retrieve_many(index, [question.text for question in questions], settings)
    return [
        ReadingTask(question, build_context(evidence, settings.top_k))
        for question, evidence in zip(questions, found, strict=True)
    ]


def answer_all(model: LanguageModel, tasks: Sequence[ReadingTask], form: AnswerForm) -> list[ReadingAnswer]:
    """The model's greedy answers."""
    requests = [
        CompletionRequest(answer_messages(one.question.text, one.excerpts, form), ANSWER_TOKENS[form]) for one in tasks
    ]
    texts = [completion.text for completion in model.complete(requests)]
    return [score_text(one, text) for one, text in zip(tasks, texts, strict=True)]


def constant_answers(tasks: Sequence[ReadingTask]) -> list[ReadingAnswer]:
    """The answer that is right most often where it is always given: yes, no, a refusal, or the commonest one."""
    counts = Counter(
        answer.casefold() for one in tasks for answer in dict.fromkeys(one.question.answers or (NOT_FOUND,))
    )
    (best, _), *_ = counts.most_common(1)
    return [score_text(one, best) for one in tasks]


def score_text(task: ReadingTask, text: str) -> ReadingAnswer:
    """A text as an answer."""
    score = score_reading(text, task.question.answers, task.gold, len(task.excerpts))
    cited = own_citations(text, len(task.excerpts)).existing
    held = words_of(" ".join(with_title(task.excerpts[number - 1]) for number in cited))
    return ReadingAnswer(task, text, score, float(contains_answer(short_answer(text), held)))


def reading_figures(answers: Sequence[ReadingAnswer], seed: int = 0) -> dict[str, ReadingFigures]:
    """The figures of all questions and of each kind."""
    kinds = [ALL, *sorted({kind_of(one) for one in answers})]
    return {kind: _figures([one for one in answers if kind in (ALL, kind_of(one))], seed) for kind in kinds}


def kind_of(answered: ReadingAnswer) -> str:
    """Unanswerable, yes or no, or the set's own kind."""
    question = answered.task.question
    if not question.is_answerable:
        return "unanswerable"
    return "yes or no" if question.is_yes_no else question.kind or "other"


def _figures(answers: Sequence[ReadingAnswer], seed: int) -> ReadingFigures:
    answerable = [one for one in answers if one.task.question.is_answerable]
    other = [one for one in answers if not one.task.question.is_answerable]
    answering = [one for one in answers if not one.score.refuses]
    right = [one for one in answering if one.score.exact]
    citing = [one for one in answering if one.score.cites and not one.task.question.is_yes_no]
    return ReadingFigures(
        len(answers),
        bootstrap_mean([one.score.exact for one in answers], seed=seed),
        bootstrap_mean([one.score.f1 for one in answers], seed=seed),
        _mean([one.score.refuses for one in answerable]),
        _mean([one.score.refuses for one in other]),
        _mean([one.score.cites for one in answering]),
        _mean([one.score.cites_gold for one in right]),
        _mean([one.supported for one in citing]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def reading_table(title: str, models: Mapping[str, Mapping[str, ReadingFigures]]) -> Table:
    """The figures of models as a table, kind by kind."""
    rows = []
    for name, by_kind in models.items():
        for kind, each in by_kind.items():
            if kind == ALL or len(by_kind) > 2:
                shares = (
                    each.refused_answerable,
                    each.refused_unanswerable,
                    each.cites,
                    each.cites_gold,
                    each.supported,
                )
                intervals = (f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in (each.exact, each.f1))
                rows.append((f"{name}, {kind}", str(each.questions), *intervals, *map(_share, shares)))
    header = ("model, kind", "n", "EM", "F1", "refused", "unanswerable refused", "cites", "cites gold", "supported")
    note = "refused: of questions with an answer; cites: of answers; cites gold: of right ones; supported: the answer stands in a cited passage"
    return Table(title, header, tuple(rows), note)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def reading_json(models: Mapping[str, Mapping[str, ReadingFigures]]) -> dict[str, Any]:
    """The figures as JSON."""
    return {name: {kind: asdict(each) for kind, each in by_kind.items()} for name, by_kind in models.items()}


def answers_json(name: str, answers: Sequence[ReadingAnswer]) -> list[dict[str, Any]]:
    """Answers as rows of a file, to be read by eye."""
    return [
        {
            "model": name,
            "id": one.task.question.id,
            "question": one.task.question.text,
            "answers": list(one.task.question.answers),
            "text": one.text,
            "gold": sorted(one.task.gold),
            "passages": [with_title(excerpt) for excerpt in one.task.excerpts],
            **asdict(one.score),
        }
        for one in answers
    ]

"""The rows of `modegraph synth questions`: by rules, or by a model if one is given."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from data_synth.questions.by_model import (
    MIN_ARTICLES,
    MIN_WORDS,
    Writers,
    article_groups,
    model_questions,
    names_document,
    sentences_in_turn,
)
from data_synth.questions.by_rules import template_questions
from data_synth.questions.question_form import QuestionRow
from data_synth.relevance.split import spread_documents
from data_synth.rows import Dropped
from graph.answer.context import rank_excerpts
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.console import track
from graph.types import Excerpt, LanguageModel

SHOWN_CHARACTERS = 300
"""The maximum number of characters that a message quotes from an unusable reply."""


@dataclass(frozen=True)
class QuestionSpec:
    """The questions to make: at most `count`, with these numbers of `hops`, a share of them `unanswerable`; `seed` fixes all random choices."""

    count: int
    hops: tuple[int, ...]
    seed: int
    unanswerable: float = 0.0


def question_rows(
    index: Index,
    spec: QuestionSpec,
    writer: LanguageModel | None,
    judge: LanguageModel | None,
    settings: RetrieveSettings,
) -> Iterator[QuestionRow | Dropped]:
    """The `candidate_rows`. UserError if no question is usable; it quotes an unusable reply, if any."""
    count, dropped = 0, []
    for row in candidate_rows(index, spec, writer, judge, settings):
        count += isinstance(row, QuestionRow)
        dropped += [row] if isinstance(row, Dropped) else []
        yield row
    if not count:
        raise _nothing_made(index, spec, writer, dropped)


def candidate_rows(
    index: Index,
    spec: QuestionSpec,
    writer: LanguageModel | None,
    judge: LanguageModel | None,
    settings: RetrieveSettings,
) -> Iterator[QuestionRow | Dropped]:
    """The questions, and a Dropped for each unusable question of the writer."""

    def find(questions: Sequence[str]) -> list[tuple[Excerpt, ...]]:
        return [rank_excerpts(evidence, settings.top_k) for evidence in retrieve_many(index, questions, settings)]

    if writer is None:
        return template_questions(index, spec.count, spec.hops, spec.seed, spec.unanswerable)
    splits = spread_documents(index.sources(), spec.seed)
    articles = _articles(spec)
    materials = (
        article_groups(index, spec.seed, splits, articles) if articles > 1 else sentences_in_turn(index, spec.seed)
    )
    writers = Writers(writer, judge, find, partial(names_document, index=index))
    candidates = model_questions(materials, writers, spec.count, spec.hops, splits)
    return track(candidates, "questions", spec.count, lambda row: isinstance(row, QuestionRow))


def _articles(spec: QuestionSpec) -> int:
    """The minimum number of articles that a writer is shown: one for questions about one sentence, several for questions of several hops."""
    return 1 if spec.hops == (1,) else max(MIN_ARTICLES, min(spec.hops))


def _nothing_made(
    index: Index, spec: QuestionSpec, writer: LanguageModel | None, dropped: Sequence[Dropped]
) -> UserError:
    if writer is not None and dropped:
        return UserError(
            f"{writer.name} wrote no usable question: {drop_reasons(dropped)}",
            "questions that the passages answer, in the form that the prompt asks for",
            "use a larger model, or none: then rules make the questions",
        )
    if writer is not None:
        articles = _articles(spec)
        return UserError(
            f"{index.folder}: {writer.name} can write no questions about this index",
            f"{articles} documents that share a topic or an entity"
            if articles > 1
            else f"sentences of {MIN_WORDS} words or more",
            "index more documents, or give --hops 1" if articles > 1 else "index more documents",
        )
    return UserError(
        f"{index.folder}: no question can be made with --hops {' or '.join(map(str, spec.hops))}",
        "sentences with a name, a number, a date or a place, or documents that mention one another",
        "index more documents, choose other --hops, or give --writer",
    )


def shortage(required: int, usable: int, dropped: Sequence[Dropped], writer: str | None) -> str:
    """Why there are fewer questions than required, and the remedy; "" if there are enough."""
    if usable >= required:
        return ""
    found = f"{usable:,} of {required:,} questions"
    if writer is not None and dropped:
        return (
            f"{found}: of the questions by {writer}, {len(dropped):,} could not be used: {drop_reasons(dropped)}. "
            "Give a larger model as --writer, or none: then rules make the questions"
        )
    if writer is not None:
        return f"{found}: {writer} wrote one question for every sentence or group of related articles. Index more documents, or leave --writer out"
    return f"{found}: no more can be made from the sentences of this index. Index more documents, choose other --hops, give --writer, or lower --count"


def drop_reasons(dropped: Sequence[Dropped]) -> str:
    """The three most frequent reasons why a writer's replies were dropped, and, shortened, a stored reply that was dropped for the first of them, if any."""
    frequent = Counter(one.why for one in dropped).most_common(3)
    reasons = "; ".join(f"{count:,} × {why}" for why, count in frequent)
    reply = next((one.reply for one in dropped if one.reply and one.why == frequent[0][0]), "")
    shown = " ".join(reply.split())
    shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}…"
    return f"{reasons}. One reply: “{shown}”" if shown else reasons

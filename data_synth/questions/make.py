"""The rows of `modegraph synth questions`: by templates, or by a model where one is given."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from data_synth.questions.by_model import Writers, article_groups, model_questions
from data_synth.questions.by_rules import template_questions
from data_synth.questions.question_form import QuestionRow
from data_synth.relevance.split import spread_documents
from data_synth.rows import Dropped
from graph.answer.context import build_context
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.parts.query import RetrieveSettings
from graph.retrieve.retrieve import retrieve_many
from graph.shared.console import track
from graph.types import LanguageModel

SHOWN_CHARACTERS = 300
"""Of a writer's reply that could not be used."""


@dataclass(frozen=True)
class QuestionSpec:
    """What is wanted: at most `count` questions, of so many `hops`, by a `seed`; a share of them `unanswerable`."""

    count: int
    hops: tuple[int, ...]
    seed: int
    unanswerable: float = 0.0


def question_rows(
    index: Index,
    spec: QuestionSpec,
    writer: LanguageModel | None,
    critic: LanguageModel | None,
    settings: RetrieveSettings,
) -> Iterator[QuestionRow | Dropped]:
    """The questions, and what a writer's were lost for. UserError if there is not one, with a reply of the writer if it failed."""

    def find_snippets(questions: Sequence[str]) -> list[str]:
        found = retrieve_many(index, questions, settings)
        return [" ".join(each.text for each in build_context(evidence, settings.top_k)) for evidence in found]

    rows: Iterable[QuestionRow | Dropped]
    if writer is None:
        rows = template_questions(index, spec.count, spec.hops, spec.seed, spec.unanswerable)
    else:
        splits = spread_documents(index.sources(), spec.seed)
        groups = article_groups(index, spec.seed, splits)
        written = model_questions(groups, Writers(writer, critic, find_snippets), spec.count, spec.hops, splits)
        rows = track(written, "questions", spec.count, lambda row: isinstance(row, QuestionRow))
    made, lost = 0, []
    for row in rows:
        made += isinstance(row, QuestionRow)
        lost += [row] if isinstance(row, Dropped) else []
        yield row
    if not made:
        raise _nothing_made(index, spec, writer, lost)


def _nothing_made(index: Index, spec: QuestionSpec, writer: LanguageModel | None, lost: Sequence[Dropped]) -> UserError:
    if writer is not None and lost:
        return UserError(
            f"{writer.name} wrote no question that can be used: {writers_losses(lost)}",
            "questions in the form that the prompt asks for, which the passages answer",
            "give a larger model as --writer, or none: then rules make the questions",
        )
    return UserError(
        f"{index.folder}: no question of {' or '.join(map(str, spec.hops))} hops can be made",
        "sentences with a name, a number, a date or a place, or documents that name one another",
        "index more documents, ask for other --hops, or give --writer",
    )


def shortage(wanted: int, made: int, lost: Sequence[Dropped], writer: str | None) -> str:
    """Why there are fewer questions than wanted, and what to do; "" where there are as many."""
    if made >= wanted:
        return ""
    found = f"{made:,} of {wanted:,} questions"
    if writer is not None and lost:
        return (
            f"{found}: of what {writer} wrote, {len(lost):,} could not be used: {writers_losses(lost)}. "
            "Give a larger model as --writer, or none: then rules make the questions"
        )
    if writer is not None:
        return f"{found}: {writer} wrote one for every group of related articles. Index more documents, or give no --writer"
    return f"{found}: the sentences of this index give no more. Index more documents, ask for other --hops, give --writer, or lower --count"


def writers_losses(lost: Sequence[Dropped]) -> str:
    """What a writer's replies were dropped for, most frequent reasons first, and one of them in its own words."""
    frequent = Counter(each.why for each in lost).most_common(3)
    reasons = "; ".join(f"{count:,} × {why}" for why, count in frequent)
    reply = next((each.reply for each in lost if each.reply and each.why == frequent[0][0]), "")
    shown = " ".join(reply.split())
    shown = shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}…"
    return f"{reasons}. One reply: “{shown}”"

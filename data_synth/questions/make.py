"""The rows of `modegraph synth questions`: by templates, or by a model where one is given."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from data_synth.questions.by_model import Writers, model_questions
from data_synth.questions.by_rules import template_questions
from data_synth.questions.groups import article_groups
from data_synth.questions.types import QuestionRow
from data_synth.types import Dropped
from graph.index.index import Index
from graph.prompt.context import build_context
from graph.retrieve import RetrieveSettings, retrieve_many
from graph.shared.console import say, track
from graph.shared.errors import UserError
from graph.shared.types import LanguageModel


@dataclass(frozen=True)
class QuestionSpec:
    """What is wanted: at most `count` questions, of so many `hops`, by a `seed`."""

    count: int
    hops: tuple[int, ...]
    seed: int


def question_rows(
    index: Index,
    spec: QuestionSpec,
    writer: LanguageModel | None,
    critic: LanguageModel | None,
    settings: RetrieveSettings,
) -> Iterator[QuestionRow | Dropped]:
    """The questions; UserError if there is none at all, a line for the person at the terminal if there are too few."""

    def find_snippets(questions: Sequence[str]) -> list[str]:
        found = retrieve_many(index, questions, settings)
        return [" ".join(each.text for each in build_context(evidence, settings.top_k)) for evidence in found]

    rows: Iterator[QuestionRow | Dropped]
    if writer is None:
        rows = template_questions(index, spec.count, spec.hops, spec.seed)
    else:
        groups = article_groups(index, spec.seed)
        written = model_questions(groups, Writers(writer, critic, find_snippets), spec.count, spec.hops)
        rows = track(written, "questions", spec.count, lambda row: isinstance(row, QuestionRow))
    made = lost = 0
    for row in rows:
        made += isinstance(row, QuestionRow)
        lost += isinstance(row, Dropped)
        yield row
    if not made and not lost:
        raise UserError(
            f"{index.folder}: no question of {' or '.join(map(str, spec.hops))} hops can be made",
            "documents that name one another, in sentences that open with what they are about",
            "index more documents, ask for other --hops, or give --writer",
        )
    if made < spec.count:
        say(f"{made:,} of {spec.count:,} questions: this index gives no more")

"""A user's own documents as a reading set: the passages of an index, and questions whose evidence or answer stands in some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from data_synth.contexts import check_gold
from data_synth.reading.rows import stands_in, words_of
from data_synth.reading.sets import ReadingQuestion, ReadingSet
from graph.documents.questions import Question
from graph.prompt.answer import headed
from graph.prompt.context import of_passage
from graph.shared.types import Excerpt

if TYPE_CHECKING:
    from graph.index.index import Index


def set_of_index(index: Index, questions: Sequence[Question]) -> ReadingSet:
    """The passages of an index and `questions` over them; UserError where a gold document is not in the index."""
    check_gold(questions, frozenset(index.sources()))
    of_source = {source: [of_passage(passage) for passage in index.passages_of(source)] for source in index.sources()}
    passages = {excerpt.id: excerpt for excerpts in of_source.values() for excerpt in excerpts}
    return ReadingSet(index.folder.name, passages, tuple(_question(question, of_source) for question in questions))


def _question(question: Question, of_source: dict[str, list[Excerpt]]) -> ReadingQuestion:
    """A question with the passages that hold its evidence, or without evidence its answer, and the others of their documents."""
    sources = dict.fromkeys((*question.gold_sources, *(quoted.source for quoted in question.evidence)))
    near = [excerpt for source in sources for excerpt in of_source[source]]
    found = [_holder(of_source[quoted.source], quoted.text) for quoted in question.evidence]
    if not question.evidence:
        found = [_with_answer(of_source[source], question.answers) for source in sources]
    return ReadingQuestion(
        question.id,
        question.text,
        tuple(answer for answer in question.answers if answer.strip()),
        tuple(dict.fromkeys(one.id for one in found if one)) if all(found) else (),
        tuple(excerpt.id for excerpt in near),
        tuple(quoted.text for quoted in question.evidence),
        question.kind,
        question.split,
    )


def _holder(excerpts: Iterable[Excerpt], quoted: str) -> Excerpt | None:
    """The first excerpt that a quote stands in, however its spaces are."""
    wanted = " ".join(quoted.split())
    return next((excerpt for excerpt in excerpts if wanted in " ".join(excerpt.text.split())), None)


def _with_answer(excerpts: Iterable[Excerpt], answers: Sequence[str]) -> Excerpt | None:
    """The first excerpt that one of the answers stands in."""
    held = ((excerpt, words_of(headed(excerpt))) for excerpt in excerpts)
    return next((excerpt for excerpt, words in held if any(stands_in(answer, words) for answer in answers)), None)

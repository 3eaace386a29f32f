"""Which questions stay: those that need the passages that they name, all of them and no others, and are not near duplicates."""

from collections import Counter
from collections.abc import Collection

from data_synth.questions.index_statements import Mentions
from data_synth.questions.question_form import QuestionRow, Step
from graph.extract.entities import entity_key
from graph.extract.grounding import words_of
from graph.shared.ids import content_id

MAX_USES_OF_DOCUMENT = 3
"""Questions over several documents that may rest on one."""
NEAR_DUPLICATE = 0.8
"""Share of words from which on two questions over a common document are one."""


def path_breaks_without(row: QuestionRow, passage_id: str, mentions: Mentions) -> bool:
    """Whether taking this passage out of the needed ones cuts a chain of the row: its start no longer reaches its end.

    Passages hang together by the entities that they tell of, also by those that the row says nothing of.
    """
    left = {mentions.passage_rows[needed] for needed in row.passage_ids if needed != passage_id}
    return not all(_reaches(mentions, left, chain[0].given, chain[-1].found) for chain in row.chains)


def path_holds(row: QuestionRow, mentions: Mentions) -> bool:
    """Whether the needed passages together lead every chain from its start to its end: they are sufficient."""
    needed = {mentions.passage_rows[passage] for passage in row.passage_ids}
    return all(_reaches(mentions, needed, chain[0].given, chain[-1].found) for chain in row.chains)


def is_stated_once(step: Step, mentions: Mentions) -> bool:
    """Whether no passage of the index but the step's own tells of both its ends."""
    own = mentions.passage_rows[step.passage_id]
    ends = ((step.given, step.found), (step.found, step.given))
    return not any(
        mentions.stands_in(other, passage)
        for name, other in ends
        for passage in mentions.passages_telling(entity_key(name)) - {own}
    )


def needs_all(row: QuestionRow, mentions: Mentions) -> bool:
    """Whether the row's passages are sufficient, each of them is needed, and no other passage can stand in for one."""
    return (
        path_holds(row, mentions)
        and all(path_breaks_without(row, passage, mentions) for passage in row.passage_ids)
        and all(is_stated_once(step, mentions) for step in row.steps)
    )


def _reaches(mentions: Mentions, passages: Collection[int], start: str, end: str) -> bool:
    waiting = mentions.passages_telling(entity_key(start)) & frozenset(passages)
    reached = set(waiting)
    while waiting:
        entities = {entity for passage in waiting for entity in mentions.linking_entities(passage)}
        waiting = frozenset(
            passage
            for passage in passages
            if passage not in reached and not entities.isdisjoint(mentions.linking_entities(passage))
        )
        reached |= waiting
    return any(mentions.stands_in(end, passage) or _is_called(mentions, end, passage) for passage in reached)


def _is_called(mentions: Mentions, name: str, passage: int) -> bool:
    data = mentions.index.data
    return entity_key(data.document_titles[int(data.passage_document_P[passage])]) == entity_key(name)


def id_of(question: str) -> str:
    """The id of a question: a hash of its words."""
    return content_id("question", question)[:16]


class DuplicateFilter:
    """The questions so far: no document is used often by questions over several, and no two questions are near duplicates."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._words: dict[str, list[set[str]]] = {}

    def is_used_up(self, row: QuestionRow) -> bool:
        """Whether a document of the question has as many questions over several documents as it may have."""
        return row.hops > 1 and any(self._uses[source] >= MAX_USES_OF_DOCUMENT for source in row.sources)

    def is_duplicate(self, row: QuestionRow) -> bool:
        """Whether an earlier question over one of its documents has nearly the same words."""
        words = words_of(row.text)
        rivals = (other for source in row.sources for other in self._words.get(source, ()))
        return any(len(words & other) >= NEAR_DUPLICATE * len(words | other) for other in rivals)

    def add(self, row: QuestionRow) -> None:
        """Remember a question."""
        words = words_of(row.text)
        if row.hops > 1:
            self._uses.update(row.sources)
        for source in row.sources:
            self._words.setdefault(source, []).append(words)

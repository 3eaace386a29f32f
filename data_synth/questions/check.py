"""Checks of questions: each must need all of its passages and no others, and must not be a near duplicate."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from data_synth.questions.index_statements import Mentions, title_key
from data_synth.questions.question_form import QuestionRow, Step, without_title
from graph.extract.entities import entity_key
from graph.extract.grounding import words_of
from graph.shared.ids import content_id

MAX_USES_OF_DOCUMENT = 3
"""The maximum number of questions on several documents that may use the same document."""
NEAR_DUPLICATE = 0.8
"""Two questions on the same document are near duplicates if at least this share of their words is in both, not counting the title at the end."""


def path_holds(row: QuestionRow, mentions: Mentions, without: str = "") -> bool:
    """Whether the row's passages, except `without` if given, connect the start of every chain to its end.

    Passages are connected by the entities that they mention, including those that the row does not use.
    """
    needed = {mentions.passage_rows[passage] for passage in row.passage_ids if passage != without}
    return all(_reaches(mentions, needed, chain[0].given, chain[-1].found) for chain in row.chains)


def is_stated_once(step: Step, mentions: Mentions) -> bool:
    """Whether no other passage of the index mentions both ends of the step."""
    row = mentions.passage_rows[step.passage_id]
    ends = ((step.given, step.found), (step.found, step.given))
    return not any(
        mentions.occurs_in(other, passage)
        for name, other in ends
        for passage in mentions.passages_about(entity_key(name)) - {row}
    )


def needs_all(row: QuestionRow, mentions: Mentions) -> bool:
    """Whether the row's passages are sufficient, each of them is needed, and no other passage can replace one."""
    return (
        path_holds(row, mentions)
        and not any(path_holds(row, mentions, without=passage) for passage in row.passage_ids)
        and all(is_stated_once(step, mentions) for step in row.steps)
    )


def _reaches(mentions: Mentions, passages: Collection[int], start: str, end: str) -> bool:
    waiting = mentions.passages_about(entity_key(start)) & frozenset(passages)
    reached = set(waiting)
    while waiting:
        entities = {entity for passage in waiting for entity in mentions.linking_entities(passage)}
        waiting = frozenset(
            passage
            for passage in passages
            if passage not in reached and not entities.isdisjoint(mentions.linking_entities(passage))
        )
        reached |= waiting
    return any(mentions.occurs_in(end, passage) or _has_title(mentions, end, passage) for passage in reached)


def _has_title(mentions: Mentions, name: str, passage: int) -> bool:
    data = mentions.index.data
    return title_key(data.document_titles[int(data.passage_document_P[passage])]) == entity_key(name)


def id_of(question: str) -> str:
    """The id of a question: a hash of its text."""
    return content_id("question", question)[:16]


def unique(rows: Iterable[QuestionRow]) -> Iterator[QuestionRow]:
    """The rows without those that have the same text, and so the same id, as an earlier row."""
    ids: set[str] = set()
    for row in rows:
        if row.id not in ids:
            ids.add(row.id)
            yield row


class DuplicateFilter:
    """Detects near duplicates, and questions on several documents that use one document too often; `ids` are those of the added questions."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._uses: Counter[str] = Counter()
        self._words: dict[str, list[set[str]]] = {}

    def uses_exhausted_document(self, row: QuestionRow) -> bool:
        """Whether a question on several documents uses one that has reached its limit of such questions; always False for a question on one document."""
        return row.hops > 1 and any(self._uses[source] >= MAX_USES_OF_DOCUMENT for source in row.sources)

    def is_duplicate(self, row: QuestionRow) -> bool:
        """Whether an earlier question on one of the same documents has nearly the same words."""
        words = words_of(without_title(row.text))
        earlier = (other for source in row.sources for other in self._words.get(source, ()))
        return any(len(words & other) >= NEAR_DUPLICATE * len(words | other) for other in earlier)

    def add(self, row: QuestionRow) -> None:
        """Add a question to those that later ones are compared with."""
        self.ids.add(row.id)
        words = words_of(without_title(row.text))
        if row.hops > 1:
            self._uses.update(row.sources)
        for source in row.sources:
            self._words.setdefault(source, []).append(words)

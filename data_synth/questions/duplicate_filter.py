"""What the two ways of making questions share: ids, and keeping questions apart."""

from collections import Counter

from data_synth.questions.types import QuestionRow
from graph.extract.support import words_of
from graph.shared.ids import content_id

MAX_USES_OF_DOCUMENT = 3
NEAR_DUPLICATE = 0.8
"""Share of words from which on two questions over a common document are one."""


def id_of(question: str) -> str:
    """The id of a question: a hash of its words."""
    return content_id("question", question)[:16]


class DuplicateFilter:
    """The questions so far: no document is used often, and no two questions are near duplicates."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._words: dict[str, list[set[str]]] = {}

    def is_used_up(self, row: QuestionRow) -> bool:
        """Whether a document of the question has as many questions as it may have."""
        return any(self._uses[source] >= MAX_USES_OF_DOCUMENT for source in row.sources)

    def is_duplicate(self, row: QuestionRow) -> bool:
        """Whether an earlier question over one of its documents has nearly the same words."""
        words = words_of(row.text)
        rivals = (other for source in row.sources for other in self._words.get(source, ()))
        return any(len(words & other) >= NEAR_DUPLICATE * len(words | other) for other in rivals)

    def add(self, row: QuestionRow) -> None:
        """Remember a question."""
        words = words_of(row.text)
        self._uses.update(row.sources)
        for source in row.sources:
            self._words.setdefault(source, []).append(words)

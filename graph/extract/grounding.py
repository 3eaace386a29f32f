"""The location of a proposition in its passage, and the share of its words that the passage contains."""

from collections import Counter
from collections.abc import Iterable, Sequence

from graph.extract.entities import distinct_entities, entity_key
from graph.extract.extraction import Fact
from graph.text.sentences import Cells, split_units
from graph.text.word_forms import WORD, composed

MAX_SENTENCES = 3
MIN_GAIN = 2.0
"""The minimum weight of further shared words for a neighbouring sentence to join the span."""


def words_of(text: str) -> set[str]:
    """The words of a text, case-folded; in scripts without spaces every character is a word.

    >>> sorted(words_of("At 10:30, fooBar_baz")), len(words_of("東京都"))
    (['10', '30', 'at', 'baz', 'foobar'], 3)
    """
    return set(_sequence_of(text))


def _sequence_of(text: str) -> list[str]:
    return WORD.findall(composed(text).casefold())


def share_supported(text: str, source: str) -> float:
    """The share of the words of `text` that are in `source`; 0 for a text without words.

    >>> share_supported("Ada sails home", "Ada Marlow sails.")
    0.6666666666666666
    """
    words = words_of(text)
    return len(words & words_of(source)) / len(words) if words else 0.0


def best_span(proposition: str, passage: str, header: Cells = ()) -> tuple[int, int]:
    """Offsets in `passage` of the sentence (or up to 3 neighbouring ones) that shares the most words with the proposition.

    A shared word weighs 1 ÷ the number of sentences that contain it; of equally good sentences, the first is chosen. If
    no word is shared, the span is the whole passage. `header` as in `split_units`.
    """
    units = list(split_units(passage, header))
    words = [words_of(unit.text) for unit in units]
    frequency = Counter(word for of_unit in words for word in of_unit)
    needed = words_of(proposition)

    def weight(shared: Iterable[str]) -> float:
        return sum(1 / frequency[word] for word in shared)

    scores = [weight(needed & of_unit) for of_unit in words]
    if not any(scores):
        return 0, len(passage)
    first = last = scores.index(max(scores))
    while last - first + 1 < MAX_SENTENCES:
        missing = needed - set().union(*words[first : last + 1])
        gains = {at: weight(missing & words[at]) for at in (first - 1, last + 1) if 0 <= at < len(units)}
        neighbour = max(gains, key=lambda at: gains[at], default=first)
        if gains.get(neighbour, 0.0) < MIN_GAIN:
            break
        first, last = min(first, neighbour), max(last, neighbour)
    return units[first].start, units[last].end


def entities_within(text: str, entities: Sequence[str], others: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Those of `entities`, then those of `others`, that are in `text`; and how many of `entities` are not.

    An entity is in a text if all of its words are; for `others`, the words must also be in sequence (spelling may differ in case,
    brackets and a leading "the").
    """
    words = words_of(text)

    def is_present(entity: str) -> bool:
        needed = words_of(entity_key(entity))
        return bool(needed) and needed <= words

    present = [entity for entity in entities if is_present(entity)]
    sequence = f" {' '.join(_sequence_of(text))} "
    named = [other for other in others if f" {' '.join(_sequence_of(entity_key(other)))} " in sequence]
    return distinct_entities([*present, *filter(is_present, named)]), len(entities) - len(present)


def connects_entities(fact: Fact, entities: Iterable[str]) -> bool:
    """Whether the subject and the object of a fact are two different members of `entities`.

    >>> connects_entities(Fact("the Lantern", "was built by", "Ada"), ("Ada", "Lantern"))
    True
    """
    keys = {entity_key(entity) for entity in entities}
    subject, object_ = entity_key(fact.subject), entity_key(fact.object)
    return subject != object_ and subject in keys and object_ in keys

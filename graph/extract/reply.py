"""A model's reply as occurrences of propositions: only what the passage supports, part by part."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from graph.extract.support import best_span, ends_within, entities_within, share_supported
from graph.extract.types import Fact, Occurrence
from graph.shared.types import Passage
from graph.text.structured import BadReply, ReplyModel, at_most, parse_reply, plain, sound_items

MIN_SUPPORT = 0.5
"""Share of a proposition's words that must stand in its passage or in the document's title."""
MAX_NAMES, MAX_PROPOSITIONS, MAX_NAMES_OF_ONE, MAX_FACTS_OF_ONE = 64, 64, 48, 24
"""Bounds of lists, which a small model fills with one name without end; 64 names are some 500 tokens. By rules, no passage of HotpotQA
(8,256 of up to 200 tokens) has more than 43 names and 13 propositions, no proposition looked at more than 27 names."""


class FactReply(ReplyModel):
    subject: str
    relation: str
    object: str


class PropositionReply(ReplyModel):
    text: str
    entities: Annotated[list[str], sound_items(str), at_most("maxItems", MAX_NAMES_OF_ONE)] = Field(
        default_factory=list
    )
    topic: str = ""
    facts: Annotated[list[FactReply], sound_items(FactReply), at_most("maxItems", MAX_FACTS_OF_ONE)] = Field(
        default_factory=list
    )


class Reply(ReplyModel):
    entities: Annotated[list[str], sound_items(str), at_most("maxItems", MAX_NAMES)] = Field(default_factory=list)
    propositions: Annotated[
        list[PropositionReply], sound_items(PropositionReply), at_most("maxItems", MAX_PROPOSITIONS)
    ]


def read_reply(text: str, passage: Passage) -> tuple[tuple[Occurrence, ...], int]:
    """The occurrences of a reply that its passage supports, and how many parts were dropped; BadReply when none can be had."""
    dropped: list[object] = []
    reply = parse_reply(Reply, text, dropped)
    entities = [plain(entity, passage.text) for entity in reply.entities]
    occurrences: dict[str, Occurrence] = {}
    lost = len(dropped)
    for proposition in reply.propositions:
        occurrence, parts = _occurrence(proposition, entities, passage)
        lost += parts
        if occurrence is not None:
            occurrences.setdefault(occurrence.text, occurrence)
    if lost and not occurrences:
        raise BadReply("none of its propositions is both well formed and supported by the passage")
    return tuple(occurrences.values()), lost


def _occurrence(
    proposition: PropositionReply, entities: Sequence[str], passage: Passage
) -> tuple[Occurrence | None, int]:
    """One proposition as an occurrence, or None without support; and how many of its parts were dropped."""
    text = plain(proposition.text, passage.text)
    if share_supported(text, f"{passage.title} {passage.text}") < MIN_SUPPORT:
        return None, 1
    facts = [
        Fact(plain(fact.subject, passage.text), plain(fact.relation, passage.text), plain(fact.object, passage.text))
        for fact in proposition.facts
    ]
    ends = [end for fact in facts for end in (fact.subject, fact.object)]
    own = [plain(entity, passage.text) for entity in proposition.entities]
    named, lost = entities_within(text, own, [*ends, *entities])
    facts = [fact for fact in facts if fact.relation and ends_within(fact, named)]
    start, end = best_span(text, passage.text)
    topic = plain(proposition.topic, passage.text)
    occurrence = Occurrence(
        text, named, passage.start + start, passage.start + end, (topic,) if topic else (), tuple(facts)
    )
    return occurrence, lost + len(proposition.facts) - len(facts)

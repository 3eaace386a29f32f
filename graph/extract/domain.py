"""What a collection is about: entity types and topics, inferred once from a few of its passages (HLG §6.2).

They steer the extraction of every passage, so they are kept in the index and never inferred again.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from graph.shared.types import CompletionRequest, LanguageModel, Message, Passage
from graph.text.prompting import fill, quote_passage
from graph.text.structured import BadReply, ReplyModel, at_most, parse_reply, sound_items, strict_schema

SAMPLED_PASSAGES = 5
MAX_TOKENS = 400
MAX_WORDS = 12
_Word = Annotated[str, Field(min_length=1, max_length=60)]
Words = Annotated[
    list[_Word], sound_items(_Word), AfterValidator(lambda words: words[:MAX_WORDS]), at_most("maxItems", MAX_WORDS)
]


class Domain(ReplyModel):
    """Entity types and topics of a collection; none of either when they are not to be inferred, or could not be."""

    entity_types: Words = Field(default_factory=list)
    topics: Words = Field(default_factory=list)


def infer_domain(model: LanguageModel, passages: Sequence[Passage]) -> tuple[Domain, str]:
    """The domain of the collection that `passages` were sampled from, by one call; and why it is empty, if the reply was bad."""
    completion = model.complete([domain_request(passages)])[0]
    if completion.finish_reason == "refused":
        return Domain(), f"refused: {completion.text}"
    if completion.finish_reason == "length":
        return Domain(), f"the reply was cut at {MAX_TOKENS} tokens"
    try:
        return parse_reply(Domain, completion.text, []), ""
    except BadReply as problem:
        return Domain(), str(problem)


def domain_request(passages: Sequence[Passage]) -> CompletionRequest:
    """The call that asks for the domain."""
    quoted = "\n".join(quote_passage(passage.title, passage.text) for passage in passages)
    messages = (Message("system", fill("graph/domain.txt")), Message("user", quoted))
    return CompletionRequest(messages, MAX_TOKENS, schema=strict_schema(Domain))

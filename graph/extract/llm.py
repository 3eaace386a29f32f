"""Propositions extracted by a language model (ToPG §2.1, HLG §6.2): one call for the collection's domain, then one structured-output call per passage.

Calls run in waves (batches of up to WAVE_CALLS), two waves at a time. After an unusable reply, the call is repeated once, in the next
wave to start; a second unusable reply is a Failure. Only the parts of a reply that the passage supports are used. Every attempt has its
own seed, so that a new attempt is never answered from the ledger of finished calls."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from graph.extract.extraction import Failure, Occurrence, PendingDocument, Reading
from graph.extract.grounding import best_span, entities_within, share_supported
from graph.shared.ids import content_id
from graph.text.prompting import fill, quote, quote_passage, read_prompt
from graph.text.replies import (
    MAX_REPLY_CHARS,
    BadReply,
    ReplyModel,
    as_one_line,
    at_most,
    parse_reply,
    retry_of,
    sound_items,
    strict_schema,
)
from graph.text.sentences import is_complete, spell_out_rows, split_units
from graph.types import Completion, CompletionRequest, LanguageModel, Message, Passage

SAMPLED_PASSAGES = 5
MAX_DOMAIN_TOKENS = 400
MAX_DOMAIN_WORDS = 12
_Word = Annotated[str, Field(min_length=1, max_length=60)]
Words = Annotated[
    list[_Word],
    sound_items(_Word),
    AfterValidator(lambda words: words[:MAX_DOMAIN_WORDS]),
    at_most("maxItems", MAX_DOMAIN_WORDS),
]


class Domain(ReplyModel):
    """Entity types and topics of a collection; empty if they are not, or could not be, inferred."""

    entity_types: Words = Field(default_factory=list)
    topics: Words = Field(default_factory=list)


def infer_domain(model: LanguageModel, passages: Sequence[Passage]) -> tuple[Domain, str]:
    """The domain of the collection from which `passages` were sampled, inferred by one call; and, if the reply was unusable, the reason (else "")."""
    completion = model.complete([domain_request(passages)])[0]
    if completion.finish_reason == "refused":
        return Domain(), f"refused: {completion.text}"
    if completion.finish_reason == "length":
        return Domain(), f"the reply was cut at {MAX_DOMAIN_TOKENS} tokens"
    try:
        return parse_reply(Domain, completion.text, []), ""
    except BadReply as problem:
        return Domain(), str(problem)


def domain_request(passages: Sequence[Passage]) -> CompletionRequest:
    quoted = "\n".join(quote_passage(passage.title, _text_for_model(passage)) for passage in passages)
    messages = (Message("system", fill("graph/domain.txt")), Message("user", quoted))
    return CompletionRequest(messages, MAX_DOMAIN_TOKENS, schema=strict_schema(Domain))


def _text_for_model(passage: Passage) -> str:
    """The text of a passage as the model reads it: a table's rows with its header."""
    return spell_out_rows(passage.text, passage.header)


MIN_SUPPORT = 0.5
"""The minimum share of a proposition's words that must be in its passage or the document's title."""
MAX_PROPOSITIONS, MAX_NAMES_PER_PROPOSITION = 64, 27
"""Bounds on lists, because a small model may repeat one name without end. Rules extract at most 13 propositions from any of 8,256 passages of
HotpotQA (up to 200 tokens each), and no inspected proposition contains more than 27 names."""
MAX_PROPOSITION_CHARS, MIN_COPIED_SENTENCES = 500, 3
"""The maximum length of a proposition, and the minimum number of sentences with which it counts as a copy of the passage; small
models write such copies."""
Name = Annotated[str, at_most("maxLength", 80)]
_NO_NULL = BeforeValidator(lambda items: [] if items is None else items)
_NO_OTHER_TYPE = BeforeValidator(lambda text: text if isinstance(text, str) else "")


class PropositionReply(ReplyModel):
    """`facts` are not requested: retrieval does not use them, and they would make up half of a reply."""

    text: Annotated[str, at_most("maxLength", MAX_PROPOSITION_CHARS)]
    entities: Annotated[list[Name], sound_items(str), _NO_NULL, at_most("maxItems", MAX_NAMES_PER_PROPOSITION)] = Field(
        default_factory=list
    )
    topic: Annotated[Name, _NO_OTHER_TYPE] = ""


class Reply(ReplyModel):
    """`entities` of the whole passage are not requested: a small model fills such a list with one name."""

    propositions: Annotated[
        list[PropositionReply], sound_items(PropositionReply), at_most("maxItems", MAX_PROPOSITIONS)
    ]


def read_reply(text: str, passage: Passage, cut: bool = False) -> tuple[tuple[Occurrence, ...], int]:
    """The occurrences of a reply that its passage supports, and the number of dropped parts; BadReply if it has the wrong form, or if all parts were dropped.

    The last proposition of a reply that was `cut` is left out.
    """
    dropped: list[object] = []
    reply = parse_reply(Reply, text, dropped)
    occurrences: dict[str, Occurrence] = {}
    dropped_parts = len(dropped)
    for proposition in reply.propositions[: -1 if cut else None]:
        named = [as_one_line(entity, passage.text) for entity in proposition.entities]
        for part in _sentences_of(proposition):
            occurrence, lost = _occurrence(part, named, passage)
            dropped_parts += lost
            if occurrence is not None:
                occurrences.setdefault(occurrence.text, occurrence)
    if dropped_parts and not occurrences:
        raise BadReply("none of its propositions is both well formed and supported by the passage")
    return tuple(occurrences.values()), dropped_parts


def repeats_proposition(text: str) -> bool:
    """Whether a reply that was cut repeats a proposition; if so, nothing new is expected after the repetition.

    >>> repeats_proposition('{"propositions": [{"text": "It rains."}, {"text": "It rains."}, {"text": "It ra')
    True
    """
    try:
        texts = [as_one_line(proposition.text) for proposition in parse_reply(Reply, text, []).propositions[:-1]]
    except BadReply:
        return False
    return len(set(texts)) < len(texts)


def _sentences_of(proposition: PropositionReply) -> list[PropositionReply]:
    """The proposition itself, or its sentences if there are so many that it is a copy of the passage; without a last sentence that was cut."""
    text, units = proposition.text, list(split_units(proposition.text))
    if units and len(text) >= MAX_PROPOSITION_CHARS and not is_complete(units[-1].text):
        units.pop()
        text = text[: units[-1].end] if units else ""
    if len(units) < MIN_COPIED_SENTENCES:
        return [proposition.model_copy(update={"text": text})]
    return [proposition.model_copy(update={"text": unit.text, "entities": []}) for unit in units]


def _occurrence(proposition: PropositionReply, named: Sequence[str], passage: Passage) -> tuple[Occurrence | None, int]:
    """One proposition as an occurrence, or None without support; and the number of its dropped parts."""
    text = as_one_line(proposition.text, passage.text)
    if share_supported(text, f"{passage.title} {_text_for_model(passage)}") < MIN_SUPPORT:
        return None, 1
    entity_names = [as_one_line(entity, passage.text) for entity in proposition.entities]
    supported, dropped = entities_within(text, entity_names, named)
    start, end = best_span(text, passage.text, passage.header)
    topic = as_one_line(proposition.topic, passage.text)
    return Occurrence(text, supported, passage.start + start, passage.start + end, (topic,) if topic else ()), dropped


READER = "llm"
WAVE_CALLS = 16
WAVES_IN_FLIGHT = 2
RETRY_TEMPERATURE = 0.7
"""The temperature for passages that failed in an earlier run: at 0 the same model would repeat its reply."""


@dataclass(frozen=True)
class Prompt:
    """The settings of the prompt: few-shot examples, and the maximum length of a reply."""

    examples: str
    max_reply_tokens: int

    @property
    def version(self) -> str:
        """A hash of the prompts and the schema."""
        prompts = read_prompt("graph/extract.txt"), read_prompt("graph/again.txt")
        return content_id(*prompts, self.examples, str(strict_schema(Reply)))[:12]

    def request(self, passage: Passage, domain: Domain, attempt: int) -> CompletionRequest:
        """The first request of a run for one passage; `attempt` counts the failed calls for it in earlier runs."""
        types, topics = ", ".join(map(quote, domain.entity_types)), ", ".join(map(quote, domain.topics))
        system = fill(
            "graph/extract.txt",
            entity_types=f" (above all: {types})" if types else "",
            topics=f" (such as: {topics})" if topics else "",
            examples=self.examples,
        )
        quoted = quote_passage(passage.title, _text_for_model(passage))
        return CompletionRequest(
            (Message("system", system), Message("user", quoted)),
            max_tokens=self.max_reply_tokens,
            temperature=RETRY_TEMPERATURE if attempt else 0.0,
            seed=attempt,
            schema=strict_schema(Reply, propositions={"minItems": _count_sentences(passage.text)}),
        )


def _count_sentences(text: str) -> int:
    """The number of complete sentences in a text, at most MAX_PROPOSITIONS.

    At least that many propositions are requested, because a small model would merge all sentences into one.
    """
    return min(MAX_PROPOSITIONS, sum(is_complete(unit.text) for unit in split_units(text)))


@dataclass(frozen=True)
class _Call:
    passage: Passage
    request: CompletionRequest
    attempt: int
    last: bool


def read_by_model(
    documents: Iterator[PendingDocument], model: LanguageModel, prompt: Prompt, domain: Callable[[], Domain]
) -> Iterator[list[Reading]]:
    """Readings in groups, one group per finished wave of calls; `domain` is called for each pending document.

    Raises UserError if the model cannot answer at all; groups yielded before remain valid. With all arguments but `documents` bound, it is a ReadDocuments.
    """
    new = (call for document in documents for call in _first_calls(document, prompt, domain()))
    retries: deque[_Call] = deque()
    running: deque[tuple[list[_Call], Future[list[Completion]]]] = deque()
    with ThreadPoolExecutor(WAVES_IN_FLIGHT, thread_name_prefix="wave") as pool:
        try:
            while True:
                while len(running) < WAVES_IN_FLIGHT and (wave := _next_wave(retries, new)):
                    running.append((wave, pool.submit(model.complete, [call.request for call in wave])))
                if not running:
                    return
                wave, future = running.popleft()
                readings: list[Reading] = []
                for call, completion in zip(wave, future.result(), strict=True):
                    outcome = _outcome(call, completion)
                    retries.append(outcome) if isinstance(outcome, _Call) else readings.append(outcome)
                yield readings
        finally:
            pool.shutdown(cancel_futures=True)


def _first_calls(document: PendingDocument, prompt: Prompt, domain: Domain) -> Iterator[_Call]:
    for passage in document.passages:
        yield _Call(passage, prompt.request(passage, domain, document.attempts), document.attempts, last=False)


def _next_wave(retries: deque[_Call], new: Iterator[_Call]) -> list[_Call]:
    """The next calls: retries before new ones."""
    wave = [retries.popleft() for _ in range(min(len(retries), WAVE_CALLS))]
    return wave + list(islice(new, WAVE_CALLS - len(wave)))


def _outcome(call: _Call, completion: Completion) -> Reading | _Call:
    """The outcome of a completed call: a reading with occurrences, a retry, or a reading with a failure (without a retry if refused)."""
    if completion.finish_reason == "refused":
        return Reading(call.passage, READER, failure=Failure(f"refused: {completion.text}", "", call.attempt + 1))
    try:
        cut = completion.finish_reason == "length"
        if cut and not repeats_proposition(completion.text):
            raise BadReply(f"it was cut at {call.request.max_tokens:,} tokens, so write fewer and shorter propositions")
        occurrences, dropped = read_reply(completion.text, call.passage, cut)
    except BadReply as problem:
        attempts = call.attempt + 1
        if call.last:
            reply = as_one_line(completion.text)[:MAX_REPLY_CHARS]
            return Reading(call.passage, READER, failure=Failure(str(problem), reply, attempts))
        request = replace(retry_of(call.request, completion.text, str(problem)), seed=attempts)
        return _Call(call.passage, request, attempts, last=True)
    return Reading(call.passage, READER, occurrences, dropped)

"""The rows of training data, and the description of a kind of row that the writer, the dataset card and the validator use.

Rows are JSON lines that `datasets` loads; TRL's trainers accept preference and reading rows unchanged. Each kind of row has a `Form` (preferences, responses,
questions, reading, relevance, claims); code that streams, counts, describes or checks rows is written once, for all forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from graph.documents.questions import Question
from graph.types import Excerpt, Message

if TYPE_CHECKING:
    import pyarrow as pa


class Row(Protocol):
    """Every row has a unique id and belongs to a split (train, dev or test)."""

    @property
    def id(self) -> str: ...
    @property
    def split(self) -> str: ...


R = TypeVar("R", bound=Row)


def no_measures(rows: Sequence[Any]) -> dict[str, float]:
    """The measures of a form that has none."""
    del rows
    return {}


MALFORMED = (KeyError, TypeError, IndexError, AttributeError, ValueError)
"""The errors that reading a malformed row raises, for a missing key or a value of the wrong kind."""


@dataclass(frozen=True)
class Form(Generic[R]):
    """A kind of row. `name` is its command (`modegraph synth NAME`, or `made_by`), `title` and `about` open its dataset card.

    `from_json` raises KeyError for a missing key, TypeError, IndexError, AttributeError or ValueError for a malformed value.
    `problems` describes the faults that make a row unusable for training. `counts` gives the value of a row in each table of the card,
    `lengths` its lengths in words, `texts` the texts that are equal in duplicates. `measures` computes figures over a sample of rows.
    """

    name: str
    title: str
    about: str
    to_json: Callable[[R], dict[str, Any]]
    from_json: Callable[[Mapping[str, Any]], R]
    schema: Callable[[], pa.Schema]
    problems: Callable[[R], Sequence[str]]
    counts: Callable[[R], Mapping[str, str]]
    lengths: Callable[[R], Mapping[str, int]]
    texts: Callable[[R], Sequence[str]]
    measures: Callable[[Sequence[R]], Mapping[str, float]] = no_measures
    made_by: str = ""


@dataclass(frozen=True)
class Draft:
    """The input of a pair or of responses: a question, its gold answer, and its context."""

    question: Question
    answer: str
    excerpts: tuple[Excerpt, ...]


@dataclass(frozen=True)
class Dropped:
    """A row that was not made: `why` is the reason that the dataset card counts, `reply` the text of a model, if one wrote any."""

    why: str
    reply: str = field(default="", compare=False)


@dataclass(frozen=True)
class PreferenceRow:
    """One pair (GraphMPA §3.2, Eq. 7): a prompt over a context of `context_size` excerpts, and two answers to it.

    `gold_in_context` is the share of the gold documents that the context quotes; `hard_negative` is the kind of the
    rejected side ("" for the answer alone, as in the paper); `reasoner` names the writer of the reasoning (a model, rules or a reader), and
    `support` is the similarity of its sentences to the context (data_synth/preferences/support.py; None if it was not measured).
    """

    id: str
    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    question_id: str
    question: str
    answers: tuple[str, ...]
    kind: str
    split: str
    context_size: int
    context_ids: tuple[str, ...]
    gold_in_context: float
    reasoner: str
    hard_negative: str = ""
    support: float | None = None


@dataclass(frozen=True)
class ReadingRow:
    """One question over passages and the answer to learn. `gold_ids` are the gold passages in the context, none for "not in the documents"."""

    id: str
    prompt: tuple[Message, ...]
    completion: str
    question_id: str
    question: str
    answers: tuple[str, ...]
    kind: str
    split: str
    context_ids: tuple[str, ...]
    gold_ids: tuple[str, ...]


@dataclass(frozen=True)
class Sampling:
    """How the responses of a row were sampled from the policy: `samples` is the number of draws, `max_tokens` the limit of each, `seed` the base of their seeds.

    `as_drawn`: repeated and cut responses are included, as in the rounds of training.
    """

    samples: int
    temperature: float
    max_tokens: int
    seed: int
    as_drawn: bool = False


@dataclass(frozen=True)
class ResponseRow:
    """One prompt and K responses of one policy, with their rewards by component, before weighting.

    The responses are distinct, unless `sampling.as_drawn`; `cut` has the numbers (from 0) of those that were cut at the token limit, which are
    learned without an end token. `rewards[component][i]` is in [0, 1] and belongs to `responses[i]`; `policy` is the name of the
    model that wrote them.
    """

    id: str
    prompt: tuple[Message, ...]
    responses: tuple[str, ...]
    rewards: Mapping[str, tuple[float, ...]]
    question_id: str
    question: str
    answers: tuple[str, ...]
    kind: str
    split: str
    context_size: int
    context_ids: tuple[str, ...]
    sampling: Sampling
    policy: str
    cut: tuple[int, ...] = ()


def row_fields(row: Any) -> dict[str, Any]:
    """The fields of a row in order; tuples become lists, and nested dataclasses objects."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(row).items()}


def preference_to_json(row: PreferenceRow) -> dict[str, Any]:
    """A row in TRL's conversational format: prompt, chosen and rejected are lists of messages."""
    sides = {side: [message_to_json(Message("assistant", getattr(row, side)))] for side in ("chosen", "rejected")}
    return row_fields(row) | sides


def plain_preference_to_json(row: PreferenceRow) -> dict[str, Any]:
    """The same row in TRL's standard format: prompt, chosen and rejected are strings, with the prompt's turns joined by blank lines."""
    prompt = "\n\n".join(message.content for message in row.prompt)
    return preference_to_json(row) | {"prompt": prompt, "chosen": row.chosen, "rejected": row.rejected}


def preference_from_json(row: Mapping[str, Any]) -> PreferenceRow:
    """The inverse of both functions above; a plain prompt is one user turn. KeyError for a missing key (callers add file and line)."""
    return PreferenceRow(
        id=row["id"],
        prompt=turns_from_json(row["prompt"]),
        chosen=_answer_from_json(row["chosen"]),
        rejected=_answer_from_json(row["rejected"]),
        question_id=row["question_id"],
        question=row["question"],
        answers=tuple(row["answers"]),
        kind=row["kind"],
        split=row["split"],
        context_size=row["context_size"],
        context_ids=tuple(row["context_ids"]),
        gold_in_context=row["gold_in_context"],
        reasoner=row["reasoner"],
        hard_negative=row["hard_negative"],
        support=row.get("support"),
    )


def reading_to_json(row: ReadingRow) -> dict[str, Any]:
    """A row in the format of TRL's SFTTrainer: prompt and completion are lists of messages."""
    return row_fields(row) | {"completion": [message_to_json(Message("assistant", row.completion))]}


def reading_from_json(row: Mapping[str, Any]) -> ReadingRow:
    """The inverse of `reading_to_json`; raises as in `preference_from_json`."""
    return ReadingRow(
        id=row["id"],
        prompt=turns_from_json(row["prompt"]),
        completion=_answer_from_json(row["completion"]),
        question_id=row["question_id"],
        question=row["question"],
        answers=tuple(row["answers"]),
        kind=row["kind"],
        split=row["split"],
        context_ids=tuple(row["context_ids"]),
        gold_ids=tuple(row["gold_ids"]),
    )


def message_to_json(message: Message) -> dict[str, str]:
    """A chat turn in the format of OpenAI's API and of chat templates."""
    return {"role": message.role, "content": message.content}


def response_to_json(row: ResponseRow) -> dict[str, Any]:
    """A row as stored: prompt as messages, responses as texts, rewards as lists by component."""
    return row_fields(row) | {"rewards": {component: list(values) for component, values in row.rewards.items()}}


def response_from_json(row: Mapping[str, Any]) -> ResponseRow:
    """The inverse of `response_to_json`; raises as in `preference_from_json`."""
    return ResponseRow(
        id=row["id"],
        prompt=turns_from_json(row["prompt"]),
        responses=tuple(row["responses"]),
        rewards={component: tuple(values) for component, values in row["rewards"].items() if values is not None},
        question_id=row["question_id"],
        question=row["question"],
        answers=tuple(row["answers"]),
        kind=row["kind"],
        split=row["split"],
        context_size=row["context_size"],
        context_ids=tuple(row["context_ids"]),
        sampling=Sampling(**row["sampling"]),
        policy=row["policy"],
        cut=tuple(row.get("cut") or ()),
    )


def turns_from_json(prompt: Any) -> tuple[Message, ...]:
    """The turns of a prompt as stored; a string is one user turn."""
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    return tuple(Message(turn["role"], turn["content"]) for turn in prompt)


def _answer_from_json(side: Any) -> str:
    content: str = side if isinstance(side, str) else side[0]["content"]
    return content

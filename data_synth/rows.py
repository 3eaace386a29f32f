"""The rows of training data, and for each kind of row a `Form`, which the writer, the dataset card and the validator use.

Rows are JSON lines that the `datasets` library loads; TRL's trainers accept preference and reading rows unchanged. The forms are preferences, responses,
questions, reading, relevance and claims; code that streams, counts, describes or checks rows is written once, for all forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, get_origin, get_type_hints

from graph.documents.questions import SPLITS, Question
from graph.shared.ids import content_id
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
T = TypeVar("T")

SPLIT_OF = {"train": "train", "val": "dev", "validation": "dev", "dev": "dev", "test": "test"}
"""modegraph's name for each split of a published set."""


def sample_rows(rows: Sequence[R], count: int | None, seed: int) -> list[R]:
    """A sample of `count` rows in their original order, the same for the same ids and seed; all rows if `count` is None or too large."""
    by_hash = sorted(rows, key=lambda row: content_id(str(seed), row.id))
    sampled = {row.id for row in by_hash[:count]}
    return [row for row in rows if row.id in sampled]


MALFORMED = (KeyError, TypeError, IndexError, AttributeError, ValueError)
"""The errors that reading a malformed row raises, for a missing key or a value of the wrong kind."""


@dataclass(frozen=True)
class Form(Generic[R]):
    """A kind of row. Its command is `modegraph synth NAME`, or `made_by` if given; `title` and `about` open its dataset card.

    `from_json` raises KeyError for a missing key, TypeError, IndexError, AttributeError or ValueError for a malformed value.
    `problems` describes the faults that make a row unusable for training. `counts` gives the value of a row in each table of the card,
    `lengths` its lengths in words, `texts` the texts by which duplicates are found. `measures` computes figures from a sample of rows.
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
    measures: Callable[[Sequence[R]], Mapping[str, float]] = lambda rows: {}
    made_by: str = ""


@dataclass(frozen=True)
class Draft:
    """The input of a pair or of responses: a question, its gold answer, and its context."""

    question: Question
    answer: str
    excerpts: tuple[Excerpt, ...]


@dataclass(frozen=True)
class Dropped:
    """A row that was not made: `why` is the reason, under which the dataset card counts it, `reply` a sample of what a model wrote, if it wrote anything."""

    why: str
    reply: str = field(default="", compare=False)


def separate_dropped(rows: Iterable[T | Dropped]) -> tuple[list[T], list[Dropped]]:
    """The rows that were made, and those that were not."""
    results = list(rows)
    dropped = [row for row in results if isinstance(row, Dropped)]
    return [row for row in results if not isinstance(row, Dropped)], dropped


@dataclass(frozen=True)
class PreferenceRow:
    """One pair (GraphMPA §3.2, Eq. 7): a prompt with a context of `context_size` excerpts, and two answers to it.

    `gold_in_context` is the share of the gold documents that the context quotes; `hard_negative` is the kind of hard negative
    on the rejected side ("" if that side is the gold answer alone, as in the paper, or an answer without reasoning that readers found worse);
    `reasoner` names the writer of the reasoning (a model, rules or a reader), and `support` is the similarity of the reasoning's sentences
    to the context (data_synth/preferences/support.py; None if it was not measured).
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
    """One question with its passages, and the answer to learn. `gold_ids` are the gold passages in the context, none for "not in the documents"."""

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
    """How the responses of a row were sampled from the policy.

    `samples` is the number of responses per prompt, `max_tokens` the limit of each, `seed` the base of their seeds.
    `as_drawn`: repeated and cut responses are included, as in the rounds of `train ms` and `train dpo`.
    """

    samples: int
    temperature: float
    max_tokens: int
    seed: int
    as_drawn: bool = False


@dataclass(frozen=True)
class ResponseRow:
    """One prompt and K responses of one policy, with their rewards by component, before weighting.

    The responses are distinct, unless `sampling.as_drawn`; `cut` contains the numbers (from 0) of the responses that were cut at the
    token limit, which are trained on without an end token. `rewards[component][i]` is in [0, 1] and belongs to `responses[i]`; `policy` is the name of the
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


def split_files(folder: Path, extension: str = "jsonl") -> list[Path]:
    """The files of a folder that contain its splits train, dev and test, with this extension; a missing file is left out."""
    return [file for split in SPLITS if (file := folder / f"{split}.{extension}").is_file()]


def prompt_problems(row: PreferenceRow | ReadingRow | ResponseRow) -> list[str]:
    """A problem if a prompt does not end with a user turn."""
    return [] if row.prompt and row.prompt[-1].role == "user" else ["the prompt does not end with a user turn"]


def split_problems(row: Row) -> list[str]:
    """A problem if the split is unknown."""
    return [] if row.split in SPLITS else [f"split is {row.split!r}, expected one of {', '.join(SPLITS)}"]


field_types = cache(get_type_hints)
"""The types of a row's fields, in order."""


def messages_type() -> pa.DataType:
    """The column type of a list of messages."""
    import pyarrow as pa

    return pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def row_schema(kind: type, **columns: pa.DataType) -> pa.Schema:
    """The typed columns of a row as stored, in the order of its fields; `columns` gives the types of columns that are not derived from a field's type."""
    import pyarrow as pa

    types = {
        int: pa.int32(),
        bool: pa.bool_(),
        float: pa.float32(),
        float | None: pa.float32(),
        tuple[int, ...]: pa.list_(pa.int32()),
        tuple[str, ...]: pa.list_(pa.string()),
        tuple[Message, ...]: messages_type(),
    }
    return pa.schema(
        [(name, columns.get(name, types.get(hint, pa.string()))) for name, hint in field_types(kind).items()]
    )


def row_fields(row: Any) -> dict[str, Any]:
    """The fields of a row in order; tuples become lists, and nested dataclasses become dicts."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(row).items()}


def row_from_json(kind: type[R], row: Mapping[str, Any], **read: Callable[[Any], Any]) -> R:
    """The inverse of `row_fields`; `read` converts fields that are stored in another way. KeyError for a missing key (callers add file and line)."""
    values = {}
    for name, hint in field_types(kind).items():
        convert = read.get(name) or (tuple_from_json if get_origin(hint) is tuple else None)
        values[name] = convert(row[name]) if convert else row[name]
    return kind(**values)


def tuple_from_json(values: Any) -> tuple[Any, ...]:
    """The items of a list as stored; TypeError for a string, whose letters would be the items."""
    if isinstance(values, str):
        raise TypeError(f"expected a list, got {values!r:.60}")
    return tuple(values)


def preference_to_json(row: PreferenceRow) -> dict[str, Any]:
    """A row in TRL's conversational format: prompt, chosen and rejected are lists of messages."""
    sides = {side: [message_to_json(Message("assistant", getattr(row, side)))] for side in ("chosen", "rejected")}
    return row_fields(row) | sides


def plain_preference_to_json(row: PreferenceRow) -> dict[str, Any]:
    """The same row in TRL's standard format: prompt, chosen and rejected are strings, with the prompt's turns joined by blank lines."""
    prompt = "\n\n".join(message.content for message in row.prompt)
    return preference_to_json(row) | {"prompt": prompt, "chosen": row.chosen, "rejected": row.rejected}


def preference_from_json(row: Mapping[str, Any]) -> PreferenceRow:
    """The inverse of `preference_to_json` and `plain_preference_to_json`; a plain prompt becomes one user turn. KeyError for a missing key."""
    sides = {"chosen": _answer_from_json, "rejected": _answer_from_json}
    return row_from_json(PreferenceRow, {"support": None, **row}, prompt=turns_from_json, **sides)


def reading_to_json(row: ReadingRow) -> dict[str, Any]:
    """A row in the format of TRL's SFTTrainer: prompt and completion are lists of messages."""
    return row_fields(row) | {"completion": [message_to_json(Message("assistant", row.completion))]}


def reading_from_json(row: Mapping[str, Any]) -> ReadingRow:
    """The inverse of `reading_to_json`; raises as in `preference_from_json`."""
    return row_from_json(ReadingRow, row, prompt=turns_from_json, completion=_answer_from_json)


def message_to_json(message: Message) -> dict[str, str]:
    """A chat turn in the format of OpenAI's API and of chat templates."""
    return {"role": message.role, "content": message.content}


def response_to_json(row: ResponseRow) -> dict[str, Any]:
    """A row as stored: prompt as messages, responses as texts, rewards as lists by component."""
    return row_fields(row) | {"rewards": {component: list(values) for component, values in row.rewards.items()}}


def response_from_json(row: Mapping[str, Any]) -> ResponseRow:
    """The inverse of `response_to_json`; raises as in `preference_from_json`."""
    return row_from_json(
        ResponseRow,
        {"cut": None, **row},
        prompt=turns_from_json,
        rewards=_rewards_from_json,
        sampling=lambda sampling: Sampling(**sampling),
        cut=lambda cut: tuple(cut or ()),
    )


def turns_from_json(prompt: Any) -> tuple[Message, ...]:
    """The turns of a prompt as stored; a string is one user turn."""
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    return tuple(Message(turn["role"], turn["content"]) for turn in prompt)


def _answer_from_json(side: Any) -> str:
    content: str = side if isinstance(side, str) else side[0]["content"]
    return content


def _rewards_from_json(rewards: Mapping[str, Sequence[float] | None]) -> dict[str, tuple[float, ...]]:
    return {component: tuple(values) for component, values in rewards.items() if values is not None}

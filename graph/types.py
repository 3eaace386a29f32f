"""The types shared by all packages: contents of an index, results of retrieval, interfaces of models.

All dataclasses are frozen. Character offsets count Unicode code points of `Document.text`, start inclusive, end exclusive.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
IdBytes = NDArray[np.bytes_]
"""Ids as 32 hexadecimal digits each."""

Encode = Callable[[Sequence[str]], Floats]
"""Texts to unit vectors: N texts -> float32[N, D]."""


@dataclass(frozen=True)
class Prompts:
    """The encoder's prefixes for questions and for texts of the index."""

    query: str = ""
    passage: str = ""


class Encoder(Protocol):
    """A sentence encoder: `encode` for texts of an index, `encode_queries` for questions; for no texts, both return [0, D].

    `fingerprint` changes whenever the same text could get another vector, for example when the `prompts` change.
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def prompts(self) -> Prompts: ...
    def encode(self, texts: Sequence[str]) -> Floats: ...
    def encode_queries(self, texts: Sequence[str]) -> Floats: ...
    def count_tokens(self, text: str) -> int: ...


OpenEncoder = Callable[[str], Encoder]
"""Opens an encoder by its name or folder, as in the setting `encoder` of an index."""


@dataclass(frozen=True)
class Document:
    """One source text. `source` is the user's name for it: a path below the indexed folder, or the row's id.

    `metadata` contains the values that filters test: strings, numbers, booleans or lists of these, by key.
    """

    source: str
    title: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Passage:
    """A slice of one document: `text == document.text[start:end]`; `order` counts the document's passages from 0.

    For a passage retrieved from a document with pages, `page` is the page on which it starts, counted from 1. For a passage that begins inside a
    table, `header` is the header of the table.
    """

    id: str
    source: str
    title: str
    order: int
    start: int
    end: int
    text: str
    page: int | None = None
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """An occurrence of a proposition: the passage, the character offsets in its document, and the page, as in Passage."""

    passage_id: str
    source: str
    start: int
    end: int
    page: int | None = None


@dataclass(frozen=True)
class Proposition:
    """One self-contained statement, its entities, and all its occurrences."""

    id: str
    text: str
    entities: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Summary:
    """A summary of a large chunk or a community; `members` are the ids of all passages below it."""

    id: str
    layer: int
    text: str
    members: tuple[str, ...]


T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Scored(Generic[T]):
    """An item and the score it was ranked by (higher is better)."""

    item: T
    score: float


@dataclass(frozen=True)
class Trace:
    """The steps and the cost of a retrieval. `seconds` excludes the time of the encoder, `encoder_seconds`.

    `replayed_calls` is the number of `model_calls` that were answered from a ledger; the figures include the tokens and the time of the original calls.
    """

    mode: str
    steps: tuple[str, ...] = ()
    seconds: float = 0.0
    encoder_seconds: float = 0.0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    replayed_calls: int = 0
    stopped: str = ""
    """Why the retrieval stopped early, in words; the evidence contains the results found by then."""


@dataclass(frozen=True)
class Finding:
    """An intermediate answer of a model: the question, the answer, the ids of its passages, and a score from 0 to 1."""

    question: str
    answer: str
    passage_ids: tuple[str, ...]
    score: float


@dataclass(frozen=True)
class Absence:
    """The probability that the documents do not cover a question. If `abstained`, the answer says so and no model is called."""

    probability: float
    abstained: bool


@dataclass(frozen=True)
class Evidence:
    """The results of one retrieval, each list best first.

    `paths` describe in words how passages were reached, one path per passage in the same order, or are empty if the mode only scores
    passages; `findings` are intermediate answers of a model, if one was used; `absence` is None if it was not requested, for
    questions about the whole collection, and if only summaries were found.
    """

    query: str
    passages: tuple[Scored[Passage], ...] = ()
    propositions: tuple[Scored[Proposition], ...] = ()
    summaries: tuple[Scored[Summary], ...] = ()
    paths: tuple[tuple[str, ...], ...] = ()
    findings: tuple[Finding, ...] = ()
    absence: Absence | None = None
    trace: Trace = field(default_factory=lambda: Trace(mode=""))


@dataclass(frozen=True)
class Excerpt:
    """One numbered excerpt in a prompt, and the place that a citation of it points to.

    For a passage or proposition, `source[start:end]` is its location, and `page` its page, if the document has pages; for a
    summary `source` is empty and `members` contains the ids of the summarised passages. `header` as in Passage.
    """

    id: str
    title: str
    text: str
    source: str = ""
    start: int = 0
    end: int = 0
    members: tuple[str, ...] = ()
    page: int | None = None
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class CompletionRequest:
    """One call of a language model. `schema` is a JSON schema that the server enforces if it can."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    schema: Mapping[str, Any] | None = None


FinishReason = Literal["stop", "length", "refused"]
"""How a call ended: the model finished, its text was cut at `max_tokens`, or the server refused this request."""


@dataclass(frozen=True)
class Completion:
    """The result of a call. For a refused request, `text` is the server's reason.

    `replayed_seconds` is set when a ledger answered the call: its share of the extra time that the batch would have taken without the ledger.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    replayed_seconds: float | None = field(default=None, compare=False)


AnswerForm = Literal["cited", "quoted", "reasoned"]
"""In order: a few words with their citations; the answer, then the sentences that support it; the sentences, then the answer (GraphMPA,
Appendix L)."""


class LanguageModel(Protocol):
    """A chat model that runs in any engine.

    `complete` returns completions in the order of the requests, refused ones included, and raises UserError when it cannot continue.
    `window` is the token limit of a prompt and its answer together, None if the engine does not report it. `prompt_tokens` counts the
    tokens of a chat as the model reads it, or overestimates them. `form` is the answer form that the model was trained for, "reasoned" if
    no training run records one.
    """

    @property
    def name(self) -> str: ...
    @property
    def form(self) -> AnswerForm: ...
    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]: ...
    def count_tokens(self, text: str) -> int: ...
    def window(self) -> int | None: ...
    def prompt_tokens(self, messages: Sequence[Message]) -> int: ...


Needs = Literal["code", "encoder", "model"]
"""What a function needs on a worker: only code, an encoder (shared by the threads of a process) or a model (not shared)."""


class Workers(Protocol):
    """Applies functions to batches and returns the results in the order of the batches.

    A function must be picklable and free of side effects: it is called again with a batch whose worker was lost. Work that needs an
    encoder or a model runs on a GPU, if there is one. `models` is how many batches that need a model run in parallel.
    """

    @property
    def models(self) -> int: ...
    def map(self, function: Callable[[T], R], batches: Iterable[T], needs: Needs = "code") -> Iterator[R]: ...


class OpenModel(Protocol):
    """Opens a model by its SPEC (`hf:PATH_OR_NAME`, `openai:NAME@URL`). The command line passes such a function to the packages.

    Several SPECs must name servers of one model. With `ledger`, finished calls are stored in that file and never repeated. With `workers`,
    an hf: model is opened and run by them.
    """

    def __call__(
        self, spec: str | Sequence[str], ledger: Path | None = None, workers: Workers | None = None
    ) -> LanguageModel: ...

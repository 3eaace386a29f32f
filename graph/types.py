"""The nouns of the whole suite: what an index holds, what a retriever returns, what a language model is.

Everything is frozen. Character offsets count Unicode code points of `Document.text`, start inclusive, end exclusive.
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
    """What an encoder is given before a question, and before a text of the index."""

    query: str = ""
    passage: str = ""


class Encoder(Protocol):
    """A sentence encoder: `encode` for texts of an index, `encode_queries` for questions; no texts give [0, D].

    `fingerprint` changes whenever the same text could get another vector, with the `prompts` too.
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def prompts(self) -> Prompts: ...
    def encode(self, texts: Sequence[str]) -> Floats: ...
    def encode_queries(self, texts: Sequence[str]) -> Floats: ...
    def count_tokens(self, text: str) -> int: ...


OpenEncoder = Callable[[str], Encoder]
"""An encoder SPEC to a ready encoder."""


@dataclass(frozen=True)
class Document:
    """One source text. `source` is the user's name for it: a path below the indexed folder, or the row's id.

    `metadata` is what filters ask for: text, numbers, truth values or lists of these, by key.
    """

    source: str
    title: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Passage:
    """A slice of one document: `text == document.text[start:end]`; `order` counts the document's passages from 0.

    What was retrieved from a document with pages tells the `page` that it begins on, counted from 1.
    """

    id: str
    source: str
    title: str
    order: int
    start: int
    end: int
    text: str
    page: int | None = None


@dataclass(frozen=True)
class Span:
    """Where a proposition stands: the passage, the character offsets in its document, and its page, as of a Passage."""

    passage_id: str
    source: str
    start: int
    end: int
    page: int | None = None


@dataclass(frozen=True)
class Proposition:
    """One self-contained statement, the entities in it, and every place it was read from."""

    id: str
    text: str
    entities: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Summary:
    """A text that stands for many: a large chunk's or a community's summary; `members` are the passages below it."""

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
    """What a retrieval did and what it cost. Seconds exclude the encoder, which has its own figure.

    Of `model_calls`, `replayed_calls` were answered from a ledger: they count with the tokens and the time that they took when they
    were made, but for `untimed_calls`, whose time is not known.
    """

    mode: str
    steps: tuple[str, ...] = ()
    seconds: float = 0.0
    encoder_seconds: float = 0.0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    replayed_calls: int = 0
    untimed_calls: int = 0
    stopped: str = ""
    """Why the retrieval ended before it was done, in words; what it had found until then is in the evidence."""


@dataclass(frozen=True)
class Finding:
    """An answer that a model gave on the way: to which question, from which passages (ids), and how good, from 0 to 1."""

    question: str
    answer: str
    passage_ids: tuple[str, ...]
    score: float


@dataclass(frozen=True)
class Absence:
    """How likely it is, from 0 to 1, that the documents hold nothing on a question, and whether it is answered so, without a model."""

    probability: float
    abstained: bool


@dataclass(frozen=True)
class Evidence:
    """What one retrieval found, each list best first.

    `paths` tell in words how passages were reached, one path a passage in the same order, or none where there is nothing to
    tell but the score; `findings` are answers that a model gave on the way, if one was asked; `absence` is None where nobody asked
    for it, and for questions about the whole collection.
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
    """One numbered quotation of a prompt, and what a citation of it resolves to.

    For a passage or proposition, `source[start:end]` is where it was read, and `page` the page, if it has pages; for a summary
    `source` is empty and `members` names the passages it sums up.
    """

    id: str
    title: str
    text: str
    source: str = ""
    start: int = 0
    end: int = 0
    members: tuple[str, ...] = ()
    page: int | None = None


@dataclass(frozen=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class CompletionRequest:
    """One call of a language model. `schema` is a JSON schema that the server must enforce, if it can."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    schema: Mapping[str, Any] | None = None


FinishReason = Literal["stop", "length", "refused"]
"""How a call ended: the model was done, its text was cut at `max_tokens`, or the server would not take this very request."""


@dataclass(frozen=True)
class Replay:
    """That a completion is of an earlier call. `seconds` are what this call, made now, would add to the time of those asked with it;
    None where its time was not kept.
    """

    seconds: float | None


@dataclass(frozen=True)
class Completion:
    """What came back. Of a refused request, `text` is the server's reason; `replay` is set by a ledger that kept the call."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    replay: Replay | None = field(default=None, compare=False)


AnswerForm = Literal["cited", "quoted", "reasoned"]
"""A few words with their citations; the answer, then the sentences that hold it; the sentences first (GraphMPA, Appendix L)."""


class LanguageModel(Protocol):
    """A chat model behind any engine.

    `complete` answers in the order asked, a refused request among others too, and raises UserError when it cannot go on.
    `window` is how many tokens a prompt and its answer may have together, None where the engine does not tell. `prompt_tokens` counts
    a chat as the model reads it; where that cannot be known it estimates, rather too high. `form` is that of the answers which the
    model was trained to give, "reasoned" where no run says.
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
"""What a function given to Workers runs: code alone, an encoder, which threads of a process may share, or a model, which they may not."""


class Workers(Protocol):
    """Where work is done: functions applied to batches, whose results come in the order of the batches, whoever is done first.

    A function can be pickled, and changes nothing but what it returns: it is called again with a batch whose worker was lost. What
    needs an encoder or a model goes where there is a GPU, if any is. `models` is how many batches that need a model go side by side.
    """

    @property
    def models(self) -> int: ...
    def map(self, function: Callable[[T], R], batches: Iterable[T], needs: Needs = "code") -> Iterator[R]: ...


class OpenModel(Protocol):
    """A model SPEC (`hf:PATH_OR_NAME`, `openai:NAME@URL`) to a ready model; the command line passes one in.

    Several SPECs are servers of one model. With `ledger`, finished calls are kept in that file and never made again. With `workers`,
    a model that runs in a process is opened and run by them.
    """

    def __call__(
        self, spec: str | Sequence[str], ledger: Path | None = None, workers: Workers | None = None
    ) -> LanguageModel: ...

"""Arguments and results of the tools; the protocol's schemas are generated from these classes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from graph.answer.attribution import Quote
from graph.answer.support import NotChecked, Unsupported
from graph.shared.modes import Mode
from serve.http.encoding import StrictModel, Text
from serve.http.routes.documents import NewDocument
from serve.server.retriever import MAX_K, Condition

Question = Annotated[Text, Field(min_length=1, max_length=8_000, description="the question, in plain words")]
Collection = Annotated[
    Text | None, Field(max_length=200, description="name of the collection, if the server has several")
]


class Arguments(StrictModel):
    """Arguments of every tool."""

    collection: Collection = None


class Search(Arguments):
    """How to search for passages."""

    mode: Mode | None = Field(
        None, description="how to search: auto chooses, hops follows links between documents, dense is plain similarity"
    )
    k: int | None = Field(
        None, ge=1, le=MAX_K, description="how many passages to find; by default the server's setting"
    )
    where: list[Condition] = Field(
        [], max_length=16, description="conditions on documents, such as year>=1990 or source=reports/*"
    )


class SearchArguments(Search):
    query: Question


class QuestionArguments(Search):
    question: Question


class AskArguments(QuestionArguments):
    model: Annotated[Text, Field(max_length=200)] | None = Field(
        None, description="model that answers; the server's first model by default"
    )


class FetchArguments(Arguments):
    id: Text = Field(min_length=1, max_length=1000, description="the id of a result of search, or a document's source")
    start: int | None = Field(
        None, ge=0, description="character of the document to start at; by default the start of the passage or document"
    )


class AddArguments(NewDocument):
    """A document to add, and its collection."""

    model_config = ConfigDict(extra="forbid")

    collection: Collection = None


class Result(BaseModel):
    """A passage: characters start to end of the document `source`, and the page, if any; `url` opens it."""

    id: str
    title: str
    url: str
    text: str
    source: str
    start: int
    end: int
    page: int | None
    score: float


class SearchResults(BaseModel):
    """The passages for a query, best first."""

    results: list[Result]
    mode: str


class FetchedText(BaseModel):
    """Characters start to end of the text of a document; there is more where `end` is less than `length`."""

    id: str
    title: str
    url: str
    text: str
    source: str
    start: int
    end: int
    length: int
    metadata: dict[str, Any]


class PassagePath(BaseModel):
    """The steps from the question to a passage."""

    id: str
    title: str
    source: str
    start: int
    end: int
    steps: tuple[str, ...]


class Explanation(BaseModel):
    """The steps of a search, and the path to each passage, best first."""

    mode: str
    search: tuple[str, ...]
    ways: list[PassagePath]


class Citation(BaseModel):
    """A passage that the answer cites as [number], and its page, if any; for a summary, `source` is empty and `members` are its passages.

    `attributed`: the model cited nothing, and the server found the passage.
    """

    number: int
    id: str
    title: str
    source: str
    start: int
    end: int
    text: str
    members: tuple[str, ...]
    page: int | None
    attributed: bool
    quotes: tuple[Quote, ...]


class CheckedAnswer(BaseModel):
    """An answer. `removed` are cited numbers without a passage, removed from the text; `left_out` counts passages that did not fit the model's window.

    If the model wrote no answer (`answered` false), the nearest passage is quoted instead. `unsupported` are the sentences that the
    passages do not seem to support, `not_checked` those that could not be checked, and `checked` counts the checked sentences (null: no check).
    """

    answer: str
    reason: str
    citations: list[Citation]
    removed: tuple[int, ...]
    left_out: int
    cut_off: bool
    answered: bool
    unsupported: tuple[Unsupported, ...]
    not_checked: tuple[NotChecked, ...]
    checked: int | None


class AddResult(BaseModel):
    """The document is in the index; `written` is 0 if it was there already, unchanged."""

    source: str
    written: int

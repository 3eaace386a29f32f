"""What the routes of documents take and answer with, as the OpenAPI page describes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, field_validator

from serve.http.documents.uploads import MAX_SOURCE_CHARS, source_problem
from serve.http.shared.encoding import Text

Scalar = Text | bool | int | Annotated[float, Field(allow_inf_nan=False)]
Key = Annotated[Text, StringConstraints(min_length=1, max_length=100)]


class DocumentInfo(BaseModel):
    """A document of the index, without its text."""

    source: str
    title: str
    metadata: dict[str, Any]


class DocumentList(BaseModel):
    """Some of the documents, by source; `total` is how many there are. `index` and `generation` as in what a search answers."""

    index: str
    generation: int
    total: int
    documents: list[DocumentInfo]


class PassageInfo(BaseModel):
    """A passage of a document, characters start to end of its text."""

    id: str
    order: int
    start: int
    end: int
    text: str


class DocumentText(DocumentInfo):
    """A document with its passages in order."""

    passages: list[PassageInfo]


class NewDocument(BaseModel):
    """A document to add; one with the same source is replaced."""

    source: Text = Field(min_length=1, max_length=MAX_SOURCE_CHARS, description="its name, unique in the index")
    text: Text = Field(min_length=1)
    title: Text = Field("", max_length=1000)
    metadata: dict[Key, Scalar | list[Scalar]] = Field(default={}, description="what filters can ask for")

    @field_validator("source")
    @classmethod
    def _plain(cls, value: str) -> str:
        problem = source_problem(value)
        if problem:
            raise ValueError(problem)
        return value

    @field_validator("metadata")
    @classmethod
    def _own_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value.keys() & {"source", "title"}:
            raise ValueError("metadata cannot have the keys source and title: those are the document's own")
        return value


class NewDocuments(BaseModel):
    """Documents to add in one go."""

    documents: list[NewDocument] = Field(min_length=1, max_length=10_000)


class WriteResult(BaseModel):
    """What a change did; `index` and `generation` are those in use now."""

    index: str
    generation: int
    report: dict[str, Any]

"""What /v1/feedback takes: four kinds of things that a reader can say of answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from graph.feedback.types import Better, Correction, GivenAnswer, Preference, Rating, RightPassage, Said, Vote
from serve.http.routes.retriever import MAX_K
from serve.http.shared.encoding import Text

MAX_TEXT = 20_000
NAME = "[A-Za-z0-9_.-]{8,64}"
"""What a user may be called, as a pattern."""
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Id = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
Words = Annotated[Text, StringConstraints(max_length=MAX_TEXT)]
SomeWords = Annotated[Text, StringConstraints(max_length=MAX_TEXT, pattern=r"\S")]


class Shown(BaseModel):
    """An answer as a reader saw it."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[Text, StringConstraints(min_length=1, max_length=200)]
    text: SomeWords = Field(description="`content` of the message")
    reasoning: Words = Field("", description="`reasoning_content` of the message")
    context_ids: list[Id] = Field(default=[], max_length=2 * MAX_K, description="`retrieval.context_ids`")
    mode: Annotated[Text, StringConstraints(max_length=50)] = Field("", description="`retrieval.mode`")

    def answer(self) -> GivenAnswer:
        """As it is kept."""
        return GivenAnswer(self.model, self.text, self.reasoning, tuple(self.context_ids), self.mode)


class Given(BaseModel):
    """What every entry says."""

    model_config = ConfigDict(extra="forbid")

    user: Name = Field(
        description="who says it: a name of your choice; whoever knows it can read and delete the entries"
    )
    consent: bool = Field(description="whether the entry may become training data")
    question: SomeWords = Field(description="the question as it was searched for: `retrieval.question`")


class VoteGiven(Given):
    """Whether an answer is good."""

    kind: Literal["vote"]
    answer: Shown
    rating: Rating

    def said(self) -> Said:
        """As it is kept."""
        return Vote(self.answer.answer(), self.rating)


class CorrectionGiven(Given):
    """What the answer should have been, by which passages."""

    kind: Literal["correction"]
    answer: Shown
    corrected: SomeWords
    reasoning: Words = ""
    passage_ids: list[Id] = Field(default=[], max_length=MAX_K, description="the passages that say so")

    def said(self) -> Said:
        """As it is kept."""
        return Correction(self.answer.answer(), self.corrected, self.reasoning, tuple(self.passage_ids))


class PassageGiven(Given):
    """The passage that answers the question."""

    kind: Literal["passage"]
    passage_id: Id
    shown_ids: list[Id] = Field(default=[], max_length=MAX_K, description="all passages that were shown")

    def said(self) -> Said:
        """As it is kept."""
        return RightPassage(self.passage_id, tuple(self.shown_ids))


class PreferenceGiven(Given):
    """Which of two answers is better."""

    kind: Literal["preference"]
    first: Shown
    second: Shown
    better: Better

    def said(self) -> Said:
        """As it is kept."""
        return Preference(self.first.answer(), self.second.answer(), self.better)


FeedbackRequest = Annotated[VoteGiven | CorrectionGiven | PassageGiven | PreferenceGiven, Field(discriminator="kind")]

"""/v1/questions: questions about the documents with their answers, made by rules, for a reader to correct and approve as test questions."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from serve.server.proposals import MAX_PROPOSALS, ProposedQuestion
from serve.server.services import RequestedCollection


class ProposedQuestions(BaseModel):
    """Some of the proposed questions; `total` counts all of them. `index` and `generation` are as in the response of a search."""

    index: str
    generation: int
    total: int
    questions: tuple[ProposedQuestion, ...]


def questions_router() -> APIRouter:
    """The router of /v1/questions; a separate thread makes the questions, one collection at a time, so that searches do not wait."""
    router = APIRouter(prefix="/v1", tags=["retrieval"])
    thread = ThreadPoolExecutor(1, "questions")

    @router.get("/questions")
    async def questions(
        view: RequestedCollection,
        count: Annotated[int, Query(ge=1, le=MAX_PROPOSALS, description="maximum number of questions")] = 10,
        offset: Annotated[int, Query(ge=0, le=10_000_000, description="number of questions to skip")] = 0,
    ) -> ProposedQuestions:
        """Questions for a questions file, made by rules from sentences that answer them; none if no rule applies, as in languages other than English."""
        current = view.generation
        proposals = await asyncio.get_running_loop().run_in_executor(thread, lambda: current.proposals)
        page = proposals[offset : offset + count]
        return ProposedQuestions(
            index=current.identity, generation=current.number, total=len(proposals), questions=page
        )

    return router

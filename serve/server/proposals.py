"""Questions about a collection, made by the rules of `modegraph synth questions`, each about one fact.

A reader may ask them, or approve them as test questions.

Legend: U documents, P passages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from data_synth.questions.by_rules import all_template_questions
from data_synth.questions.question_form import question_to_json
from graph.index.filters import restrict
from graph.index.index import Index

MAX_PROPOSALS = 200
MAX_PASSAGES = 2_000
"""Passages to read, from evenly spaced documents, so that the proposals take a few seconds, however large the index is."""
SUGGESTION_PASSAGES = 300
"""Passages to read for suggestions, which a page waits for."""
MAX_SUGGESTION_CHARS = 90


class ProposedQuote(BaseModel):
    """A sentence, `quote`, that contains an answer; `id` is the source of its document."""

    id: str
    quote: str


class ProposedQuestion(BaseModel):
    """A row of a questions file: `gold_ids` are the sources of the documents that answer it."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold_ids: tuple[str, ...]
    evidence: tuple[ProposedQuote, ...]
    type: str


def propose_questions(index: Index, max_passages: int = MAX_PASSAGES) -> tuple[ProposedQuestion, ...]:
    """Up to MAX_PROPOSALS questions, each answered by one sentence, alternating between documents; the same index always gives the same questions.

    A question that the rules generate more than once, for example from two documents, is left out.
    """
    sample_U = sample_documents(index.data.passage_document_P, len(index.sources()), max_passages)
    sample = replace(index, data=restrict(index.data, sample_U))
    rows = list(islice(all_template_questions(sample, hops=(1,), seed=0), MAX_PROPOSALS))
    counts = Counter(row.id for row in rows)
    return tuple(ProposedQuestion.model_validate(question_to_json(row)) for row in rows if counts[row.id] == 1)


def suggest_questions(index: Index, count: int) -> tuple[str, ...]:
    """Up to `count` short questions, about different documents, for a reader who does not know the collection yet.

    Questions with a capitalised name come first, those that quote a document's title last. If possible, no two suggestions begin with the same word.
    The same index always gives the same questions.
    """
    proposals = propose_questions(index, SUGGESTION_PASSAGES)
    short = [each for each in proposals if len(each.question) <= MAX_SUGGESTION_CHARS and "<" not in each.question]
    short.sort(key=lambda each: ("“" in each.question, not re.search(r" [A-Z]", each.question)))
    chosen: list[ProposedQuestion] = []
    for openings_differ in (True, False):
        for candidate in short:
            documents = {other.gold_ids for other in chosen}
            openings = {opening_of(other) for other in chosen if openings_differ}
            if len(chosen) < count and candidate.gold_ids not in documents and opening_of(candidate) not in openings:
                chosen.append(candidate)
    return tuple(each.question for each in chosen)


def opening_of(proposal: ProposedQuestion) -> str:
    """The first word of a question."""
    return proposal.question.split()[0]


def sample_documents(passage_document_P: NDArray[np.int64], documents: int, max_passages: int) -> NDArray[np.bool_]:
    """Every n-th document, so that the sample has about `max_passages` passages: bool[U]; `passage_document_P` is the document of each passage.

    >>> sample_documents(np.repeat(np.arange(4), 1_000), 4, 2_000).tolist()
    [True, False, True, False]
    """
    step = max(1, math.ceil(len(passage_document_P) / max_passages))
    sample_U: NDArray[np.bool_] = np.arange(documents) % step == 0
    return sample_U

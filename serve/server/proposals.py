"""Questions that a reader may approve as test questions of a collection: by the rules of `modegraph synth questions`, about one fact each.

Legend: U documents, P passages.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from data_synth.questions.by_rules import template_questions
from data_synth.questions.question_form import question_to_json
from graph.index.index import Index
from graph.index.restrict import restrict

MOST_PROPOSALS = 200
MOST_PASSAGES = 2_000
"""Passages to read, from evenly spaced documents, so that the proposals take some seconds whatever the size of the index."""


class ProposedQuote(BaseModel):
    """The sentence `quote` of the document `id`, which holds an answer."""

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


def propose_questions(index: Index) -> tuple[ProposedQuestion, ...]:
    """Up to MOST_PROPOSALS questions, each answered by one sentence, alternating documents; the same for the same index.

    A question is left out if sentences of several sampled documents answer it.
    """
    sample = replace(
        index, data=restrict(index.data, sample_documents(index.data.passage_document_P, len(index.sources())))
    )
    rows = list(template_questions(sample, MOST_PROPOSALS, hops=(1,), seed=0))
    counts = Counter(row.id for row in rows)
    return tuple(ProposedQuestion.model_validate(question_to_json(row)) for row in rows if counts[row.id] == 1)


def sample_documents(passage_document_P: NDArray[np.int64], documents: int) -> NDArray[np.bool_]:
    """Every n-th document, so that they have about MOST_PASSAGES passages: bool[U]; `passage_document_P` is the document of each passage.

    >>> sample_documents(np.repeat(np.arange(4), 1_000), 4).tolist()
    [True, False, True, False]
    """
    step = max(1, math.ceil(len(passage_document_P) / MOST_PASSAGES))
    sample_U: NDArray[np.bool_] = np.arange(documents) % step == 0
    return sample_U

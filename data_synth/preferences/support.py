"""Whether a context supports reasoning: the normalised similarity of the reasoning's sentences to the context, and the share of the
reasoning's entities that the context names.

Legend: S sentences of the reasoning, N propositions of the context, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from data_synth.rows import Draft
from graph.answer.citations import check_citations
from graph.extract.entities import find_entities
from graph.extract.grounding import words_of
from graph.index.normalised_similarity import normalised_similarity
from graph.retrieve.parts.ranking import expand_rows
from graph.store.columns.moved import find_ids
from graph.text.sentences import split_units
from graph.types import Excerpt, Floats

if TYPE_CHECKING:
    from graph.index.index import Index

MIN_SIMILARITY, MIN_NAMED = 0.45, 0.3
"""Chosen on PubMedQA's conclusions: compared with their own abstracts, 5 % have a similarity below .48, and 5 % a share of names below .24; compared with
other abstracts, 1 % have a similarity above .38. Measured as MiniLM's cosines, which hardly differ from its normalised similarity."""


@dataclass(frozen=True)
class Support:
    """How far a context supports reasoning. `normalised_similarity`: mean, over the sentences of the reasoning, of the normalised
    similarity to the most similar proposition of the context; `named`: the share of the reasoning's entities that occur in the context, the question
    or the answer.
    """

    normalised_similarity: float
    named: float

    @property
    def holds(self) -> bool:
        return self.normalised_similarity >= MIN_SIMILARITY and self.named >= MIN_NAMED


MeasureSupport = Callable[[Sequence[Draft], Sequence[str]], Sequence[Support]]
"""Maps drafts and their reasoning to the support of each by its own context."""


@dataclass(frozen=True)
class SupportScorer:
    """Measures reasoning against contexts of one index, using its stored proposition vectors."""

    index: Index

    def of_drafts(self, drafts: Sequence[Draft], reasons: Sequence[str]) -> list[Support]:
        """The support of each draft's reasoning by its own context (a MeasureSupport); entities of the question or the answer count as named."""
        split_reasons = [sentences_of(reason) for reason in reasons]
        distinct = list(dict.fromkeys(sentence for sentences in split_reasons for sentence in sentences))
        vectors_SD = dict(zip(distinct, self.index.encode_texts(distinct), strict=True))
        measured = []
        for draft, reason, sentences in zip(drafts, reasons, split_reasons, strict=True):
            reason_SD = [vectors_SD[text] for text in sentences]
            texts = [f"{excerpt.title} {excerpt.text}" for excerpt in draft.excerpts]
            known = f"{draft.question.text} {draft.answer}"
            similarity = mean_similarity(self.index, reason_SD, self._vectors_of(draft.excerpts))
            measured.append(Support(similarity, share_named(reason, [*texts, known])))
        return measured

    def _vectors_of(self, context: Sequence[Excerpt]) -> Floats:
        """Vectors of the propositions that a context quotes, and of those in the passages that it quotes or summarises: float32[N, D]."""
        data = self.index.data
        ids = [item_id for excerpt in context for item_id in (excerpt.members or (excerpt.id,))]
        passages = np.array([self._passage_rows[key] for key in ids if key in self._passage_rows], np.int64)
        of_passages = expand_rows(data.passage_proposition_PN, passages)[1]
        quoted = find_ids(data.proposition_ids, ids)
        rows = np.unique(np.concatenate([of_passages, quoted[quoted >= 0]]))
        return np.asarray(data.proposition_vectors_ND[rows], np.float32)

    @cached_property
    def _passage_rows(self) -> dict[str, int]:
        return {passage_id: row for row, passage_id in enumerate(self.index.data.passage_ids)}


def sentences_of(reason: str) -> list[str]:
    """The sentences of a text, without citations.

    >>> sentences_of("Ada built it [2]. It burned in 1911 [1].")
    ['Ada built it.', 'It burned in 1911.']
    """
    return [unit.text for unit in split_units(check_citations(reason, 0).text)]


def mean_similarity(index: Index, sentences_SD: Sequence[Floats], context_ND: Floats) -> float:
    """Mean over sentences of the normalised similarity to the most similar proposition (unit vectors); 0 without sentences or propositions."""
    if not len(sentences_SD) or not len(context_ND):
        return 0.0
    return float(normalised_similarity(index, (np.stack(sentences_SD) @ context_ND.T).max(axis=1)).mean())


def share_named(reason: str, texts: Sequence[str]) -> float:
    """The share of the entities in `reason` of which all words occur in one of the texts; 1 without entities.

    >>> share_named("Ada Marlow built the Lantern.", ["Who built the Lantern?", "Marlow Yard"])
    0.5
    """
    entities = find_entities(f"x {check_citations(reason, 0).text}")
    text_words = [words_of(text) for text in texts]
    found = sum(any(words_of(entity) <= words for words in text_words) for entity in entities)
    return found / len(entities) if entities else 1.0

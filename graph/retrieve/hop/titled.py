"""Links to documents whose title says an entity together with words of the question: "Alcohol laws of Indiana" for a question about the alcohol
laws of a state that turns out to be Indiana.

A link through a shared entity loses for the many that share it (links.py). Such a title singles its document out of them, so nothing is lost.

Legend: P passages, X links, Y those looked at.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from graph.index.index import Index
from graph.retrieve.parts.gather import entries_in
from graph.retrieve.parts.links import Links, mention_loss
from graph.retrieve.parts.rank import top_rows
from graph.shared.types import Floats
from graph.text.bm25 import terms_of
from graph.verify.vocabulary import FUNCTION_WORDS
from graph.verify.words import form_of

TITLE_GAIN = 0.05
"""Besides what a link is not to lose."""
ASKED_SHARE = 0.5
"""Of the title's words beside the entity's, how many the question has at least."""
COULD_RISE = 50
"""Links are looked at that could bring their passage among so many of the best."""


def raise_by_titles(index: Index, links: Links, question: str, own_P: Floats) -> Links:
    """The links with what titles that say their entity and words of the question make of them."""
    data, asked = index.data, said_forms(question)
    raise_X = mention_loss(entries_in(index.entity_proposition_EN, links.entity_X)) + TITLE_GAIN
    least = own_P[top_rows(own_P, COULD_RISE)].min(initial=np.inf)
    look_Y = np.flatnonzero((links.title_X == 0) & (links.worth_X + raise_X > least))
    documents, document_Y = np.unique(data.passage_document_P[links.to_passage_X[look_Y]], return_inverse=True)
    entities, entity_Y = np.unique(links.entity_X[look_Y], return_inverse=True)
    titles = [said_forms(data.document_titles[row]) for row in documents.tolist()]
    names = [said_forms(data.entity_texts[row]) for row in entities.tolist()]
    pairs = zip(entity_Y.tolist(), document_Y.tolist(), strict=True)
    told_Y = np.array([tells_more(names[entity], titles[document], asked) for entity, document in pairs], np.bool_)
    worth_X = links.worth_X.copy()
    worth_X[look_Y] += np.where(told_Y, raise_X[look_Y], 0).astype(np.float32)
    return replace(links, worth_X=worth_X)


def tells_more(name: frozenset[str], title: frozenset[str], asked: frozenset[str]) -> bool:
    """Whether a title says the name of an entity that the question does not, and besides it mostly words of the question.

    >>> asked = said_forms("What time does the state where Corran High is stop selling alcohol?")
    >>> [tells_more(said_forms("Indiana"), said_forms(title), asked) for title in ("Alcohol laws of Indiana", "Indiana", "History of Indiana")]
    [True, False, False]
    """
    rest = title - name
    return bool(name and rest) and name <= title and not name <= asked and len(rest & asked) >= ASKED_SHARE * len(rest)


@lru_cache(maxsize=65_536)
def said_forms(text: str) -> frozenset[str]:
    """What the words of a text that say something have in common with their other forms; kept, as titles come again from question to question."""
    return frozenset(form_of(term) for term in terms_of(text) if term not in FUNCTION_WORDS)

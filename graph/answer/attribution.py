"""The passage sentences that best support each sentence of an answer: from the passages that the answer cites or, if it cites none, from all.

Support is the weighted share of an answer sentence's words that occur in a passage sentence or, with less weight, in the passage's title or the
sentence before. A quote shows where to look; the verifier judges whether the passage supports the sentence (support.py)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from graph.answer.citations import check_citations
from graph.answer.prompt import is_no_answer
from graph.answer.support import MAX_WORDS, POLAR, Statement, numbers_to_read, premise_of, refuses, statements_of
from graph.answer.verifier import NAME_WEIGHT
from graph.text.sentences import Unit
from graph.text.word_forms import Words, form
from graph.types import Excerpt

CONTEXT_WEIGHT = 0.7
"""Weight of a word that occurs in the passage's title or the preceding sentence, but not in the sentence itself."""
QUESTION_WEIGHT_FOR_FRAGMENT, QUESTION_WEIGHT_FOR_SENTENCE = 1.0, 0.1
"""Weights of the question's words in the scores of a fragment and of a full sentence."""
MIN_SHARE, MIN_QUESTION_SHARE = 0.6, 0.1
"""A quote must contain at least these shares (`_share`) of the words of the sentence that it supports and, for a fragment, of the question."""
MAX_STATEMENTS = 100
"""Sentences of a reason and its answer beyond this number get no quotes."""
_SOURCE = r"\b(?:(?:context|document|excerpt|passage|source|text)s?|information provided|provided information)"
_SAY = r"(?:\w+ly )?(?:answer|contain|give|include|indicate|mention|provide|say|specif|state|tell)\w*"
_SAID = r"(?:\w+ly )?(?:determined|found|given|included|mentioned|provided|specified|stated)"
_REFUSAL = re.compile(
    rf"{_SOURCE} (?:do|does|did)(?: not|n't) {_SAY}|\b(?:no|neither|none of the) {_SOURCE} {_SAY}"
    rf"|{_SOURCE} (?:{_SAY} nothing|(?:{_SAY} no|lacks?) (?:\w+ )*(?:answer|details|information|mention))\b"
    rf"|(?:\b(?:cannot|no|not|nothing)\b|n't\b)(?:[^,;]* {_SAID})? (?:in|by) (?:the|these|any) (?:\w+ )?{_SOURCE}\b"
    rf"|\b(?:it|this|how|wh[aeioy]\w*)\b[^,;]* (?:is|are|was|were)(?: not|n't) {_SAID}\W*$"
    r"|\b(?:there is (?:no|not any|not enough)|not enough) (?:\w+ )?(?:context|information|mention)\b"
    r"|\b(?:i|we) (?:do not|don't) know\b"
)
"""The usual ways to say that the passages do not contain the answer."""


@dataclass(frozen=True)
class Quote:
    """A passage sentence (characters start to end of the passage's text) and the sentence of the answer that it supports (`statement`)."""

    statement: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Citation(Excerpt):
    """A cited excerpt and its sentences that best support sentences of the answer.

    `attributed`: modegraph found the excerpt, because the model cited nothing.
    """

    attributed: bool = False
    quotes: tuple[Quote, ...] = ()

    def sentence(self, quote: Quote) -> Excerpt:
        """A quoted sentence as an excerpt, with the sentence's offsets in the document, or the whole excerpt's if the excerpt restates its source."""
        sentence = replace(self, text=quote.text)
        if self.end - self.start != len(self.text):
            return sentence
        return replace(sentence, start=self.start + quote.start, end=self.start + quote.end)


def cite_excerpts(
    question: str, reason: str, answer: str, excerpts: Sequence[Excerpt], unsupported: Collection[str] = ()
) -> dict[int, Citation]:
    """The excerpts that a reason and its answer (both with checked citations) cite, by number in order of first use.

    If they cite none, the excerpts attributed to the sentences of the answer, except the `unsupported` sentences.
    """
    parts = (reason, answer)
    cited = dict.fromkeys(number for part in parts for number in check_citations(part, len(excerpts)).cited)
    if not cited:
        return attribute(question, answer, excerpts, unsupported)
    finder, quotes = _Finder(question, excerpts), dict[int, list[Quote]]()
    statements = chain(*(statements_of(part, len(excerpts), question) for part in parts))
    for statement in islice(statements, MAX_STATEMENTS):
        for number in statement.cited:
            if found := finder.best(statement, (number,)):
                quotes.setdefault(number, []).append(found[1])
    return {number: _citation(excerpts[number - 1], quotes.get(number, ())) for number in cited}


def attribute(
    question: str, answer: str, excerpts: Sequence[Excerpt], unsupported: Collection[str] = ()
) -> dict[int, Citation]:
    """The excerpts that best support the sentences of an answer, by number in the order of those sentences; none for a refusal.

    Sentences that are `unsupported`, refuse to answer or have more than MAX_WORDS words are skipped. Only excerpts of documents count, not summaries
    or a model's findings, and at most MAX_CHARS (support.py) characters of excerpts are read.

    >>> passages = [Excerpt("1", "Tarn", "Tarn is a village.", "a.md"), Excerpt("2", "Ferry", "It was built in Tarn. It sank.", "b.md")]
    >>> [(number, found.quotes[0].text) for number, found in attribute("Where was the ferry built?", "Tarn", passages).items()]
    [(2, 'It was built in Tarn.')]
    """
    if is_no_answer(answer):
        return {}
    finder, quotes = _Finder(question, excerpts), dict[int, list[Quote]]()
    documents = [number for number, excerpt in enumerate(excerpts, start=1) if excerpt.source]
    for statement in islice(statements_of(answer, len(excerpts), question), MAX_STATEMENTS):
        if statement.text in unsupported or len(statement.words.split()) > MAX_WORDS or _refuses(statement.words):
            continue
        if found := finder.best(statement, documents):
            quotes.setdefault(found[0], []).append(found[1])
    return {number: _citation(excerpts[number - 1], found, attributed=True) for number, found in quotes.items()}


def _citation(excerpt: Excerpt, quotes: Sequence[Quote], attributed: bool = False) -> Citation:
    return Citation(**vars(excerpt), attributed=attributed, quotes=tuple(dict.fromkeys(quotes)))


def _refuses(words: str) -> bool:
    """Whether a sentence seems to say that the passages do not contain the answer.

    >>> [_refuses(text) for text in ("How much it cost isn’t stated.", "The text lacks this information.", "The documents say nothing about it.")]
    [True, True, True]
    >>> _refuses("No document may leave the workshop."), _refuses("Tools are not provided.")
    (False, False)
    """
    return refuses(words) or _REFUSAL.search(words.casefold().replace("’", "'")) is not None


@dataclass(frozen=True)
class _Candidate:
    """A sentence of excerpt `number`, the `forms` of its words, and its `context`: the forms of the words in the title and in the previous sentence."""

    number: int
    unit: Unit
    forms: frozenset[str]
    context: frozenset[str]


def _candidates(number: int, excerpt: Excerpt) -> Iterator[_Candidate]:
    premise, before = premise_of(excerpt), frozenset[str]()
    title = frozenset(map(form, Words.of(excerpt.title).stem_set))
    for unit, words in zip(premise.units, premise.words_N, strict=True):
        forms = frozenset(map(form, words.stem_set))
        if unit.kind != "heading":
            yield _Candidate(number, unit, forms, title | before)
        before = forms


class _Finder:
    """Finds the excerpt sentence that shares the most words with a statement and with the question that the statement answers."""

    def __init__(self, question: str, excerpts: Sequence[Excerpt]) -> None:
        self._candidates = [
            candidate for number in numbers_to_read(excerpts) for candidate in _candidates(number, excerpts[number - 1])
        ]
        self._sentences_with = Counter(chain.from_iterable(candidate.forms for candidate in self._candidates))
        self._question = self._weights(question)

    def best(self, statement: Statement, numbers: Collection[int]) -> tuple[int, Quote] | None:
        """(number, quote) for the best sentence of the excerpts `numbers`; None if no sentence shares enough words."""
        claim = self._claim(statement)
        question = {word: weight for word, weight in self._question.items() if word not in claim}
        question_weight = QUESTION_WEIGHT_FOR_FRAGMENT if statement.is_fragment else QUESTION_WEIGHT_FOR_SENTENCE
        min_question_share = MIN_QUESTION_SHARE if statement.is_fragment else 0.0

        def score(candidate: _Candidate) -> float:
            share, question_share = _share(claim, candidate), _share(question, candidate)
            enough = share >= MIN_SHARE and question_share >= min_question_share
            return share + question_weight * question_share if enough else 0.0

        candidates = [candidate for candidate in self._candidates if candidate.number in numbers]
        chosen = max(candidates, key=score, default=None)
        if chosen is None or not claim or score(chosen) == 0.0:
            return None
        return chosen.number, Quote(statement.text, chosen.unit.text, chosen.unit.start, chosen.unit.end)

    def _claim(self, statement: Statement) -> dict[str, float]:
        """The weighted words of a statement; for a bare yes or no, those of its question."""
        is_polar = statement.is_fragment and bool(POLAR.intersection(Words.of(statement.words).lower))
        return self._weights(statement.words) or (self._question if is_polar else {})

    def _weights(self, text: str) -> dict[str, float]:
        """The content words of a text, except POLAR, as forms with weights: ln(1 + sentences ÷ (1 + sentences with the word)), more for names and numbers."""
        words, weights = Words.of(text), dict[str, float]()
        for at in words.content:
            if words.lower[at] not in POLAR:
                word = form(words.stems[at])
                rarity = math.log(1 + len(self._candidates) / (1 + self._sentences_with[word]))
                weights[word] = rarity * (NAME_WEIGHT if words.is_name(at) or words.is_number(at) else 1)
        return weights


def _share(weights: Mapping[str, float], candidate: _Candidate) -> float:
    """The weighted share of the words that occur in a sentence or, with CONTEXT_WEIGHT, only in its context; 1 if there are no words."""
    found = sum(
        weight * (1 if word in candidate.forms else CONTEXT_WEIGHT if word in candidate.context else 0)
        for word, weight in weights.items()
    )
    return found / sum(weights.values()) if weights else 1.0

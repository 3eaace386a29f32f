"""The reasoning of a chosen answer (GraphMPA §3.2): composed by rules from gold sentences, or written by a model and filtered."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from data_synth.contexts import task_of
from data_synth.rows import Draft, Dropped
from data_synth.texts import CACHED_PASSAGES, occurs_in, one_line, plain, words_of
from graph.answer.citations import check_citations
from graph.answer.prompt import parse_answer
from graph.text.bm25 import terms_of
from graph.text.prompting import fill, quote
from graph.text.sentences import Unit, split_units
from graph.text.word_forms import SENTENCE_ENDS, count_words
from graph.types import Completion, CompletionRequest, Excerpt, LanguageModel, Message, Passage

UNSUPPORTED = "no sentence supports the answer"
NOT_SHOWN = "the context does not contain every evidence sentence"
CUT = "reasoning cut at the token limit"
REFUSED = "request refused by the model's server"
MALFORMED = "not of the form ###Reason: … ###Answer: …"
EMPTY = "no reasoning"
WRONG = "an answer other than the gold one"
COPY = "reasoning copies the question"
LEAK = "reasoning says that the answer was given"
WITHOUT_ANSWER = "no sentence of evidence or context contains the answer"

CHOICES = (frozenset({"yes", "no", "maybe"}), frozenset({"true", "false"}))
CACHED_SENTENCES = 16_384
"""How many sentences' terms are cached."""
SPAN_WORDS = 12
MAX_REASON_TOKENS = 256
COPY_RATIO = 0.9
_LEAK = re.compile(
    r"\b(?:given|provided|known|gold|stated|supplied) (?:the )?(?:correct |right |final )?answer\b"
    r"|\banswer (?:is|was|has been) (?:already )?(?:given|provided|known|supplied|stated)\b"
    r"|\b(?:was|am|were|been) (?:told|given) (?:that )?the (?:correct |right |final )?answer\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Statement:
    """One supporting sentence: `quote` as written in the document `source`, `text` as worded in the reasoning."""

    source: str
    quote: str
    text: str


def compose_reason(draft: Draft, passages_of: Callable[[str], Sequence[Passage]]) -> str | Dropped:
    """The question's evidence sentences, each citing the excerpt that contains it; then, if these lack an answer that is a span, a sentence that contains it.

    Dropped if the excerpts lack one of these sentences: every sentence of the reasoning must be in its context. Without evidence quotes, each gold document
    contributes its sentence most similar to question, reasoning and answer; `passages_of` returns a document's passages. If there is nothing to quote,
    the reasoning that came with the question is used, although no passage contains it; Dropped if there is none. Without a context, quotes are not cited.
    """
    statements = statements_of(draft, passages_of)
    if not statements:
        return plain(draft.question.reasoning) or Dropped(UNSUPPORTED)
    if draft.excerpts and not all(containing_excerpts(statement, draft.excerpts) for statement in statements):
        return Dropped(NOT_SHOWN)
    sentences = list(dict.fromkeys(cite_statement(statement, draft.excerpts) for statement in statements))
    if is_span(draft.answer) and not any(holds_answer(sentence, draft.answer) for sentence in sentences):
        answer_statement = sentence_with(draft.answer, draft.excerpts)
        if answer_statement is None:
            return Dropped(WITHOUT_ANSWER)
        sentences.append(cite_statement(answer_statement, draft.excerpts))
    return " ".join(sentences)


def is_span(answer: str) -> bool:
    """Whether an answer is a few words that a text can contain: neither a choice such as yes nor whole sentences.

    >>> is_span("14 May 1911"), is_span("Yes")
    (True, False)
    """
    return count_words(answer) <= SPAN_WORDS and not choices_of(answer)


def choices_of(answer: str) -> frozenset[str]:
    """The set of CHOICES that contains an answer; empty if none does."""
    return next((choices for choices in CHOICES if normalise_answer(answer) in choices), frozenset())


def holds_answer(text: str, answer: str) -> bool:
    """Whether a text contains the words of an answer in sequence.

    >>> holds_answer("It was built in 1911 [2].", "1911"), holds_answer("It was built in 1911.", "191")
    (True, False)
    """
    return occurs_in(answer, words_of(check_citations(text, 0).text))


def sentence_with(answer: str, excerpts: Sequence[Excerpt]) -> Statement | None:
    """The first sentence of the excerpts that contains an answer; None if there is none."""
    for excerpt in excerpts:
        for unit in units_of(excerpt):
            if holds_answer(unit.text, answer):
                return Statement(excerpt.source, unit.text, unit.line)
    return None


def statements_of(draft: Draft, passages_of: Callable[[str], Sequence[Passage]]) -> list[Statement]:
    """The question's evidence quotes, or without any, the sentence of each gold document closest to question, reasoning and answer."""
    question = draft.question
    if question.evidence:
        return [Statement(quoted.source, quoted.text, quoted.text) for quoted in question.evidence]
    query = f"{question.text} {question.reasoning} {draft.answer}"
    return closest_statements(query, question.gold_sources, passages_of)


def cite_statement(statement: Statement, excerpts: Sequence[Excerpt]) -> str:
    """The statement as a sentence, with [n] before its closing mark if excerpt n contains it.

    An excerpt of the statement's own document is preferred to others that contain it.
    """
    sentence = plain(statement.text)
    containing = containing_excerpts(statement, excerpts)
    from_source = [n for n in containing if excerpts[n - 1].source == statement.source]
    return cite(sentence, (from_source or containing)[:1]) if sentence else ""


def cite(sentence: str, numbers: Iterable[int]) -> str:
    """A sentence with [n] for each number before its closing mark, a full stop if it has none.

    >>> cite("Did it sink?", [1]), cite("It sank", [2, 1]), cite("建于1846年。", [1])
    ('Did it sink [1]?', 'It sank [2] [1].', '建于1846年 [1]。')
    """
    words = sentence.rstrip(f".!?{SENTENCE_ENDS}")
    return f"{words}{''.join(f' [{number}]' for number in numbers)}{sentence[len(words) :] or '.'}"


def containing_excerpts(statement: Statement, excerpts: Sequence[Excerpt]) -> list[int]:
    """The numbers of the excerpts that contain a statement."""
    return [n for n, excerpt in enumerate(excerpts, start=1) if one_line(statement.quote) in one_line(excerpt.text)]


def closest_statements(
    query: str, sources: Sequence[str], passages_of: Callable[[str], Sequence[Passage]]
) -> list[Statement]:
    """The sentence of each document closest to `query`, in the documents' order; none for a document that shares no word with it."""
    sentences = [(source, unit) for source in sources for passage in passages_of(source) for unit in units_of(passage)]
    scores = tfidf_cosines(query, [unit.text for _, unit in sentences])
    best: dict[str, tuple[float, Unit]] = {}
    for (source, unit), score in zip(sentences, scores, strict=True):
        if score > 0 and (source not in best or score > best[source][0]):
            best[source] = (score, unit)
    return [Statement(source, best[source][1].text, best[source][1].line) for source in sources if source in best]


def tfidf_cosines(query: str, sentences: Sequence[str]) -> list[float]:
    """Cosine of binary TF-IDF vectors, not divided by the norm of `query`: Σ_{w ∈ S∩Q} i_w² / ‖S‖, i_w = ln(1 + N / n_w).

    S and Q are the sets of terms of a sentence and of `query`; n_w of the N sentences contain the term w.

    >>> [round(score, 3) for score in tfidf_cosines("lantern", ["the lantern", "the sea", "fog"])]
    [1.157, 0.0, 0.0]
    """
    terms = [_distinct_terms(sentence) for sentence in sentences]
    count = Counter(term for sentence in terms for term in sentence)
    weight = {term: math.log(1 + len(sentences) / n) ** 2 for term, n in count.items()}
    query_terms = _distinct_terms(query)
    norms = [math.sqrt(sum(weight[term] for term in sentence)) for sentence in terms]
    shared = [sum(weight[term] for term in sorted(sentence & query_terms)) for sentence in terms]
    return [part / norm if norm else 0.0 for part, norm in zip(shared, norms, strict=True)]


@lru_cache(maxsize=CACHED_SENTENCES)
def _distinct_terms(sentence: str) -> frozenset[str]:
    return frozenset(terms_of(sentence))


def model_reasons(drafts: Sequence[Draft], model: LanguageModel) -> list[str | Dropped]:
    """The reasoning that `model` writes for each draft, given the gold answer, filtered by `check_reason`."""
    requests = [CompletionRequest((reasoner_message(draft),), MAX_REASON_TOKENS, seed=0) for draft in drafts]
    return [check_reason(completion, draft) for completion, draft in zip(model.complete(requests), drafts, strict=True)]


def reasoner_message(draft: Draft) -> Message:
    """The prompt of data_synth/prompts/reasoner.txt, with the same numbered passages as the row's own prompt."""
    return Message("user", fill("data_synth/reasoner.txt", question_over_passages=task_of(draft), answer=draft.answer))


def check_reason(completion: Completion, draft: Draft) -> str | Dropped:
    """The reasoning of a completion, without citations of passages that do not exist; Dropped when it fails a filter."""
    if completion.finish_reason == "refused":
        return Dropped(REFUSED)
    if completion.finish_reason == "length":
        return Dropped(CUT)
    parsed = parse_answer(completion.text)
    if not parsed.well_formed:
        return Dropped(MALFORMED)
    reason = check_citations(quote(parsed.reason), len(draft.excerpts)).text.strip()
    if not terms_of(reason):
        return Dropped(EMPTY)
    if normalise_answer(parsed.answer) not in {normalise_answer(answer) for answer in draft.question.answers}:
        return Dropped(WRONG)
    if SequenceMatcher(None, one_line(reason).lower(), one_line(draft.question.text).lower()).ratio() >= COPY_RATIO:
        return Dropped(COPY)
    if _LEAK.search(reason):
        return Dropped(LEAK)
    return reason


def normalise_answer(text: str) -> str:
    """An answer normalised for comparison: quoted, without case, citations and outer punctuation.

    >>> normalise_answer(" Yes. [1]") == normalise_answer("yes")
    True
    """
    return " ".join(check_citations(quote(text), 0).text.casefold().split()).strip(f" .!?,;:\"'“”‘’{SENTENCE_ENDS}")


@lru_cache(maxsize=CACHED_PASSAGES)
def units_of(passage: Passage | Excerpt) -> tuple[Unit, ...]:
    """The sentences and table rows of a passage, without its headings."""
    return tuple(unit for unit in split_units(passage.text, passage.header) if unit.kind != "heading")

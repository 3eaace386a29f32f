"""Whether the passages of a prompt support an answer, sentence by sentence, and the answer without unsupported sentences.

A sentence is checked against the passages that it cites, or against all if it cites none; a short one is checked together
with its question (`claim_of`). A sentence is not checked if it says too little or has more than MAX_WORDS words, if its passages
together have more than MAX_CHARS characters, or if it is not in the Latin script; nor is one that shares few words with its passages,
unless both seem to be English. Removing a sentence also removes its line if only a list marker, or nothing, would remain on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, get_args

from graph.answer.citations import CitationGate, Mark, check_citations
from graph.answer.model_verifier import is_model, open_model_verifier
from graph.answer.prompt import NOT_FOUND, split_form
from graph.answer.verifier import Premise, Verifier, missing_words, word_verifier
from graph.errors import UserError
from graph.text.sentences import LIST_ITEM, begins_with_row, split_blocks, split_units
from graph.text.word_forms import FOREIGN_FUNCTION_WORDS, FUNCTION_WORDS, SENTENCE_ENDS, Words, count_words, form
from graph.types import Excerpt

MIN_WORDS, MIN_CONTENT_WORDS, MAX_WORDS = 4, 2, 200
MAX_FRAGMENT_WORDS = 8
"""A longer text is judged without its question, even if it does not end as a sentence does."""
MAX_CHARS = 200_000
"""The maximum number of characters of passages to compare a sentence with: about 33,000 English words."""
_CLOSING = r"[*_~`\"'”’»)\]」』）]"
"""Closing quotation marks, brackets, emphasis and code."""
_SENTENCE_END = re.compile(rf"[.!?:;…{SENTENCE_ENDS}]{_CLOSING}*\s*$")
"""Punctuation that ends a sentence, with closing marks."""
_OTHER_LETTER = re.compile(r"[^\W\d_A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
"""A letter of a script other than Latin."""
CACHED_PREMISES = 256
"""The maximum number of passages whose words are cached: 19 MB for passages of 120 words."""
Handling = Literal["mark", "drop", "ignore"]
"""How to handle an unsupported sentence."""
Obstacle = Literal["says too little", "is too long", "is in another language", "has too much text to compare with"]
"""Why a sentence cannot be checked."""
POLAR = frozenset({"yes", "no", "maybe"})
"""Answers whose truth cannot be judged from the words of a passage."""


@dataclass(frozen=True)
class Unsupported:
    """A sentence that its passages do not seem to support: characters start to end of `part` of the answer.

    For a dropped sentence, start and end are both the offset where it was. `probability` is the probability that it is unsupported; `cited` are the
    passages that the sentence cites; `missing` are its names and numbers that occur in none of the passages that it was checked against.
    """

    part: str
    text: str
    start: int
    end: int
    probability: float
    cited: tuple[int, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class NotChecked:
    """A sentence that no verifier can judge, so it is marked neither supported nor unsupported: characters start to end of `part` of the answer."""

    part: str
    text: str
    start: int
    end: int
    because: Obstacle


@dataclass(frozen=True)
class Statement:
    """A sentence of a text: characters start to end, its `words` (the text without citations), its `claim` (from `claim_of`), and the passages it cites."""

    text: str
    start: int
    end: int
    words: str
    claim: str
    cited: tuple[int, ...]

    @property
    def is_fragment(self) -> bool:
        """Whether the sentence is judged together with its question."""
        return self.claim != self.words


def open_verifier(spec: str) -> Verifier:
    """The verifier that `spec` names: a language model (`is_model`) or a word-based one ("": the shipped one); UserError for anything else."""
    return open_model_verifier(spec) if is_model(spec) else word_verifier(spec)


def verifier_for(handling: str, spec: str) -> Verifier | None:
    """The verifier that `spec` names; None for "ignore"; UserError for a `handling` that is not a Handling."""
    if handling not in get_args(Handling):
        raise UserError(f"--unsupported {handling}", "mark, drop or ignore", "fix the option")
    return None if handling == "ignore" else open_verifier(spec)


class SupportChecker:
    """Checks the sentences of texts against the excerpts that the texts were written from; without a verifier or excerpts, checks none.

    Fragments are checked together with the `question` that they answer; without a question, those of fewer than MIN_WORDS words are not checked.
    """

    def __init__(self, excerpts: Sequence[Excerpt], verifier: Verifier | None, question: str = "") -> None:
        self._excerpts, self._verifier, self._question = excerpts, verifier, question

    def unsupported(self, part: str, text: str) -> list[Unsupported]:
        """The sentences of a text (with checked citations) that the excerpts do not seem to support; `part` names the text."""
        return [
            Unsupported(
                part,
                sentence.text,
                sentence.start,
                sentence.end,
                round(probability, 3),
                sentence.cited,
                self._missing(sentence),
            )
            for sentence, probability in self._judge(text)
            if self._is_unsupported(probability)
        ]

    def not_checked(self, part: str, text: str) -> list[NotChecked]:
        """The sentences of a text (with checked citations) that cannot be judged, except those that say only that something is not in the documents."""
        return [
            NotChecked(part, sentence.text, sentence.start, sentence.end, obstacle)
            for sentence in self._statements(text)
            if (obstacle := self.obstacle(sentence)) is not None
        ]

    def count_checked(self, text: str) -> int | None:
        """How many sentences of a text (with checked citations) can be judged; None without a verifier or excerpts."""
        if self._verifier is None or not self._excerpts:
            return None
        return sum(self.obstacle(sentence) is None for sentence in self._statements(text))

    def share_supported(self, response: str) -> float | None:
        """The share of the judged sentences of a response (reason and answer) that the excerpts support; None if none was judged."""
        texts = (part.text for part in split_form(response) if part.kind != "thinking" and part.text)
        parts = (check_citations(text, len(self._excerpts)).text for text in texts)
        unsupported = [self._is_unsupported(probability) for part in parts for _, probability in self._judge(part)]
        return unsupported.count(False) / len(unsupported) if unsupported else None

    def _judge(self, text: str) -> Iterator[tuple[Statement, float]]:
        """The sentences of a text (with checked citations) that can be judged, each with the probability that it is unsupported."""
        for sentence in self._statements(text):
            if self._verifier is not None and self.obstacle(sentence) is None:
                claims, premise = [sentence.claim], self._premise(sentence)
                yield sentence, float(self._verifier.judge(claims, premise, sentence.is_fragment)[0])

    def _statements(self, text: str) -> Iterator[Statement]:
        """The sentences to judge, without those that say only that something is not in the documents."""
        if self._verifier is not None and self._excerpts:
            for sentence in statements_of(text, len(self._excerpts), self._question):
                if not refuses(sentence.words):
                    yield sentence

    def obstacle(self, sentence: Statement) -> Obstacle | None:
        """Why a verifier cannot judge a sentence; None if it can."""
        words = Words.of(sentence.words)
        if sentence.is_fragment and all(words.lower[at] in POLAR for at in words.content):
            return "says too little"
        if sum(map(_chars, self._passages(sentence))) > MAX_CHARS:
            return "has too much text to compare with"
        if _is_foreign_script(words) or _is_foreign(Words.of(sentence.claim), self._premise(sentence)):
            return "is in another language"
        return obstacle_to(sentence.claim)

    def _missing(self, sentence: Statement) -> tuple[str, ...]:
        """The `missing_words` of a sentence. The first word of a fragment may be a name, if it is not POLAR and no lower-case word follows it."""
        words, text = Words.of(sentence.words), sentence.words
        if sentence.is_fragment and not POLAR.intersection(words.lower[:1]) and not "".join(words.words[1:2]).islower():
            text = f"x {text}"
        return missing_words(text, self._premise(sentence))

    def _is_unsupported(self, probability: float) -> bool:
        return self._verifier is not None and probability >= self._verifier.threshold

    def _passages(self, sentence: Statement) -> Sequence[Excerpt]:
        return [self._excerpts[number - 1] for number in sentence.cited] or self._excerpts

    def _premise(self, sentence: Statement) -> Premise:
        return Premise.join(map(premise_of, self._passages(sentence))) if sentence.cited else self._whole_premise

    @cached_property
    def _whole_premise(self) -> Premise:
        return Premise.join(map(premise_of, self._excerpts))


def numbers_to_read(excerpts: Iterable[Excerpt]) -> Iterator[int]:
    """The numbers of the excerpts to read, in order; an excerpt that would bring the total above MAX_CHARS is left out."""
    remaining = MAX_CHARS
    for number, excerpt in enumerate(excerpts, start=1):
        if _chars(excerpt) <= remaining:
            remaining -= _chars(excerpt)
            yield number


def _chars(excerpt: Excerpt) -> int:
    return len(excerpt.title) + len(excerpt.text)


@lru_cache(CACHED_PREMISES)
def premise_of(excerpt: Excerpt) -> Premise:
    """An excerpt in the form that claims are checked against; cached, because a server often retrieves the same passages."""
    return Premise.of([(excerpt.title, excerpt.text)], excerpt.header)


def statements_of(text: str, passages: int, question: str = "") -> Iterator[Statement]:
    """The sentences of an answer to `question` (with checked citations), except headings and sentences without words."""
    for start, words_end, end in _spans(text):
        gate = CitationGate(0)
        words = gate.feed(text[start:words_end]) + gate.finish()
        gate.feed(text[words_end:end])
        gate.finish()
        if any(map(str.isalnum, words)):
            cited = tuple(number for number in gate.removed if 1 <= number <= passages)
            yield Statement(text[start:end], start, end, words, claim_of(words, question), cited)


_CITED = r"\[\d+\](?:(?:[-–,;/& ]|and)*\[\d+\])*"
_TAIL = re.compile(
    rf"(?P<close>(?:{_CLOSING}+(?=[\s\[(（]|\Z))?)"
    rf"(?:[^\S\n]*(?:[-–,;/&]?[^\S\n]*{_CITED}|[(（](?:\w+[.:]? )?{_CITED}\.?[)）])(?!\s*[*_`\"'“‘]*[a-zß-ÿα-ωа-я,;]))?"
)
"""Closing marks after a sentence, and citations that do not begin the next: `** [1]`, `([1], [2])`, `(see [1])`; not `, [2] says`."""


def _spans(text: str) -> list[tuple[int, int, int]]:
    """The start of each sentence and row of a text, the end of its words, and the end of the citations after it. `split_units` leaves some closing marks
    and citations to the next sentence: `**It sank.** [1] It burned. ([2])`."""
    spans: list[tuple[int, int, int]] = []
    for unit in split_units(text):
        start = unit.start
        if spans and unit.kind == "sentence":
            first, words_end, end = spans[-1]
            tail = _TAIL.match(text, end)
            if tail is not None and tail.end() > start:
                spans[-1] = (first, tail.end("close") if words_end == end else words_end, tail.end())
                start = unit.end - len(text[tail.end() : unit.end].lstrip())
        if unit.kind != "heading" and start < unit.end:
            spans.append((start, unit.end, unit.end))
    return spans


def obstacle_to(claim: str) -> Obstacle | None:
    """Why a verifier cannot judge a claim, regardless of the passages; None if it can."""
    words = Words.of(claim)
    if max(len(claim.split()), len(words.words)) > MAX_WORDS:
        return "is too long"
    if _is_foreign_script(words):
        return "is in another language"
    return "says too little" if len(claim.split()) < MIN_WORDS or len(words.content) < MIN_CONTENT_WORDS else None


_CLAUSE_END = re.compile(rf"[;:—]|\b(?:although|but|though|whereas|while|yet)\b|(?<={NOT_FOUND})(?:,| and\b)")


def refuses(words: str) -> bool:
    """Whether a sentence says that something is not in the documents, and nothing else.

    >>> refuses("Sadly, its price is not in the documents."), refuses("Its price is not in the documents, but it cost 5,000 pounds.")
    (True, False)
    """
    plain = words.casefold()
    clauses = _CLAUSE_END.split(plain)
    return NOT_FOUND in plain and all(NOT_FOUND in each or len(each.split()) < MIN_WORDS for each in clauses)


def _is_foreign_script(words: Words) -> bool:
    """Whether most content words are in a script other than Latin."""
    return 2 * sum(_OTHER_LETTER.search(words.words[at]) is not None for at in words.content) > len(words.content)


def _is_foreign(words: Words, premise: Premise) -> bool:
    """Whether most words of a sentence occur nowhere in the passages, and the sentence or the passages seem not to be in English."""
    if 2 * sum(form(stem) in premise.forms for stem in words.stems) >= len(words.stems):
        return False
    passages = premise.words_N
    return (
        _has_foreign_function_words([words])
        or _has_foreign_function_words(passages)
        or 2 * sum(_is_foreign_script(each) for each in passages) > len(passages)
    )


def _has_foreign_function_words(texts: Sequence[Words]) -> bool:
    """Whether texts have more function words of other languages than of English."""
    lower = [word for words in texts for word in words.lower]
    return sum(word in FOREIGN_FUNCTION_WORDS for word in lower) > sum(word in FUNCTION_WORDS for word in lower)


def claim_of(sentence: str, question: str) -> str:
    """The claim of a sentence: its text, preceded by the question if the text is a fragment.

    A fragment has fewer than MIN_WORDS words, or at most MAX_FRAGMENT_WORDS words and no punctuation at the end.

    >>> claim_of("the shipbuilder Ida Marlow of Tarn", "Who built it?")
    'Who built it? the shipbuilder Ida Marlow of Tarn'
    >>> claim_of("Ida Marlow of Tarn built it.", "Who built it?")
    'Ida Marlow of Tarn built it.'
    """
    words = count_words(sentence)
    is_fragment = words < MIN_WORDS or (words <= MAX_FRAGMENT_WORDS and not _SENTENCE_END.search(sentence))
    return f"{question} {sentence}" if question and is_fragment else sentence


Span = tuple[int, int]
_SPACES, _REST, _LINE_ENDS = re.compile(" *"), re.compile(r"[^\n]*"), re.compile(r"\n*")


class SupportGate:
    """Streams text with checked citations, without the sentences that `checker` finds unsupported.

    The output does not depend on how the text is split into pieces. A sentence is output once its paragraph or list item has
    ended, a table once the block after it has ended. `part` names the text.
    """

    def __init__(self, part: str, checker: SupportChecker) -> None:
        self._part, self._checker = part, checker
        self._pending = self._blank = self._last = ""
        self._consumed = self._output_chars = 0
        self._pending_marks: list[Mark] = []
        self._marks: list[Mark] = []
        self._dropped: list[Unsupported] = []

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The citations in the output so far, in order."""
        return tuple(self._marks)

    @property
    def dropped(self) -> list[Unsupported]:
        """The sentences that were removed, each at the offset where it was."""
        return [_moved(sentence, min(sentence.start, self._output_chars)) for sentence in self._dropped]

    def feed(self, text: str, marks: Iterable[Mark] = ()) -> str:
        """The output that `text` completes; `marks` are the citations in `text`, their offsets counted from the start of the input."""
        self._pending += text
        self._pending_marks += marks
        return self._release(settled_length(self._pending)) if "\n" in text else ""

    def finish(self) -> str:
        """The remaining output, at the end of the text."""
        return self._release(len(self._pending))

    def _release(self, end: int) -> str:
        block, self._pending = self._pending[:end], self._pending[end:]
        unsupported = self._checker.unsupported(self._part, block)
        cuts = spans_to_cut(block, unsupported, self._last + self._blank)
        start = self._output_chars + len(self._blank)
        self._dropped += [_moved(each, start + offset_without(each.start, cuts)) for each in unsupported]
        decided = [mark for mark in self._pending_marks if mark.start < self._consumed + end]
        self._pending_marks = self._pending_marks[len(decided) :]
        for mark in decided:
            at = mark.start - self._consumed
            if not any(first <= at < last for first, last in cuts):
                self._marks.append(mark.shifted(start + offset_without(at, cuts) - mark.start))
        self._consumed += end
        text = self._blank + without_spans(block, cuts)
        output = text.rstrip()
        self._blank = text[len(output) :]
        self._output_chars += len(output)
        self._last = output[-1:] or self._last
        return output


def without_unsupported(text: str, unsupported: Sequence[Unsupported]) -> tuple[str, tuple[Unsupported, ...]]:
    """The text without the unsupported sentences, and those sentences, each at the offset where it was.

    >>> without_unsupported("It burned. It sank. It is gone.", [Unsupported("reason", "It sank.", 11, 19, 0.9, (), ())])[0]
    'It burned. It is gone.'
    """
    cuts = spans_to_cut(text, unsupported, "")
    output = without_spans(text, cuts).rstrip()
    return output, tuple(_moved(each, min(offset_without(each.start, cuts), len(output))) for each in unsupported)


def lacks_sentences(text: str) -> bool:
    """Whether a text consists of headings, headers of tables and marks at most, so that nothing in it can be judged.

    >>> [lacks_sentences(text) for text in ("# Ferries", "| Stop | Fare |\\n|---|---|", "---", "# Ferries\\n\\nIt burned.")]
    [True, True, True, False]
    """
    return next(statements_of(text, 0), None) is None


def _moved(sentence: Unsupported, offset: int) -> Unsupported:
    return replace(sentence, start=offset, end=offset)


def settled_length(text: str) -> int:
    """How many characters at the start of an unfinished text belong to complete blocks: paragraphs, headings, list items, and tables with the
    block after them.

    The empty lines after a block belong to it.
    """
    blocks = pairwise(split_blocks(text))
    return max((start for (before, _), (_, start) in blocks if not begins_with_row(before)), default=0)


def spans_to_cut(text: str, sentences: Sequence[Unsupported], before: str) -> list[Span]:
    """The spans to cut, in order, so that these sentences are removed; `before` is the output that precedes the text."""
    spans: list[Span] = []
    for sentence in sentences:
        end = _SPACES.match(text, sentence.end).end()  # type: ignore[union-attr]
        if spans and spans[-1][1] >= sentence.start:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((sentence.start, end))
    cuts: list[Span] = []
    for span in spans:
        cuts.append(_widen(text, span, before + without_spans(text[: span[0]], cuts)))
    return cuts


def without_spans(text: str, cuts: Sequence[Span]) -> str:
    ends = [0, *(last for _, last in cuts)]
    starts = [*(first for first, _ in cuts), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def offset_without(at: int, cuts: Sequence[Span]) -> int:
    """The offset of character `at` after these cuts; for a character within a cut, the offset of the cut."""
    return at - sum(min(last, at) - first for first, last in cuts if first < at)


def _widen(text: str, span: Span, before: str) -> Span:
    """A span extended to its whole line if the rest of the line is at most a list marker, or to the blanks before it if it ends a line.

    A whole line is cut with its line break and, at the start of a paragraph, with the empty lines that follow. `before` is the text
    that remains before the span.
    """
    first, last = span
    line_end = _REST.match(text, last).end()  # type: ignore[union-attr]
    head = before[before.rfind("\n") + 1 :]
    if text[last:line_end].strip():
        return span
    if head.strip() and not LIST_ITEM.fullmatch(head):
        return max(0, first - (len(head) - len(head.rstrip(" ")))), last
    above = before[: len(before) - len(head)]
    next_line = _LINE_ENDS.match(text, line_end).end()  # type: ignore[union-attr]
    return max(0, first - len(head)), next_line if not above or above.endswith("\n\n") else min(line_end + 1, next_line)


ROW = '"passages" (a list of strings), "sentence" (a string) and "supported" (true or false); "question", "kind", "split" and "id" are optional'


@dataclass(frozen=True)
class SupportRow:
    """Passages, a sentence, whether the passages support it, and the question that it answers ("": none)."""

    passages: tuple[str, ...]
    sentence: str
    supported: bool
    kind: str = ""
    split: str = ""
    id: str = ""
    question: str = ""

    @property
    def claim(self) -> str:
        """The `claim_of` the sentence."""
        return claim_of(self.sentence, self.question)

    @property
    def is_fragment(self) -> bool:
        """Whether the sentence is judged together with its question."""
        return self.claim != self.sentence


def support_row(row: Mapping[str, Any], where: str) -> SupportRow:
    """Parse a row; UserError naming `where` if it is malformed."""
    passages, sentence, question = row.get("passages"), row.get("sentence"), row.get("question")
    texts = [text for text in passages if isinstance(text, str)] if isinstance(passages, list) else []
    if texts != passages or not isinstance(sentence, str) or not isinstance(row.get("supported"), bool):
        raise UserError(f"{where}: not a labelled sentence", ROW, "fix the row")
    kind, split, row_id = (str(row.get(name) or "") for name in ("kind", "split", "id"))
    about = question if isinstance(question, str) else ""
    return SupportRow(tuple(texts), sentence, row["supported"], kind, split, row_id, about)

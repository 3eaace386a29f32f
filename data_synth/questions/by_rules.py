"""Questions without a model: candidates of every kind in turn; a question with several hops is used only if all of its passages,
and no others, are needed to answer it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from random import Random

from data_synth.questions.check import DuplicateFilter, id_of, needs_all, unique
from data_synth.questions.facts import Sentences, fact_questions, stems_of
from data_synth.questions.index_statements import IndexStatements, read_index
from data_synth.questions.phrases import kind_by_name
from data_synth.questions.question_form import BY_TEMPLATES, QuestionRow, named_in, without_title
from data_synth.questions.tables import table_questions
from data_synth.questions.templates import (
    Candidate,
    Template,
    bridge_questions,
    comparison_questions,
    intersection_questions,
    shuffled,
)
from data_synth.questions.words import PLACES
from data_synth.relevance.split import spread_documents
from graph.extract.entities import MONTHS, find_entities
from graph.index.index import Index

UNANSWERABLE = "unanswerable"
_INTERCHANGEABLE = """
accident book|burglary book|fire book
adopted|repealed
annual leave|compassionate leave|maternity leave|parental leave|paternity leave|sabbatical leave|study leave|sick leave
apprentice|intern|volunteer|pensioner
archived|shredded
assembly|packing|finishing
backup|printout
bicycle|caravan|motorcycle|tractor|truck|van
bonus|commission|dividend|gratuity
boots|goggles|gloves|harnesses|visors
breakfast|dinner|lunch|supper
built|demolished
canteen|crèche|gymnasium|laundry|sauna|chapel
car park|coach park
collected|shredded
daily allowance|clothing allowance
data protection|radiation protection
emptied|painted
expense claim|insurance claim
fire drill|flood drill
fire extinguisher|defibrillator
founded|dissolved|nationalised
front office|back office
hotel|hostel
how deep is|how heavy is|how thick is|how wide is|how long is|how high is
inspected|repainted
installed|dismantled
introduced|abolished
laptop|projector|scanner|tablet
launched|scrapped
library|aquarium|planetarium|museum|observatory
main dish|side dish
main gate|northern gate|western gate
managing director|technical director
mileage rate|exchange rate
monthly|fortnightly|quarterly
opened|demolished
parked|washed
parking permit|work permit
pension fund|investment fund
reviewed|frozen
safety officer|noise officer|training officer
sick pay|holiday pay
soup|dessert|salad
stored|burned
telephone number|fax number
trial period|qualifying period
wages|royalties
works council|supervisory board
written|translated
"""
INTERCHANGEABLE = tuple(line.split("|") for line in _INTERCHANGEABLE.strip().splitlines())
"""Groups of words that can replace each other in a question."""
_DATED = re.compile(rf"(?:{MONTHS}|\w+days?|Christmas|Easter|New Year)\b")
_INVENTED = """
Aldermoor Brennick Caldray Dunmere Eskerly Farrowdale Gillamont Hestwick Ivelstone Jarrowmere Keldrith Lorimer Maddock Northolme
Ostwin Penhallow Quarrendon Rushwick Silverdene Thornbury Ulverscroft Vennick Wexcombe Yarnfield
"""
INVENTED = tuple(_INVENTED.split())


def near_miss(row: QuestionRow, sentences: Sentences, rng: Random) -> QuestionRow | None:
    """A row's question, changed in one respect so that the index does not answer it; None if no change is possible.

    A name, or else a word of INTERCHANGEABLE, is replaced by one that the index does not contain.
    """
    text = next(chain(_other_names(row, sentences, rng), _other_words(row, sentences, rng)), None)
    if text is None:
        return None
    near = tuple(replace(step, given="", found="") for step in row.steps)
    return replace(
        row, id=id_of(text), text=text, answers=(), kind=UNANSWERABLE, hops=0, chains=(), bridges=(), near=near
    )


def _other_names(row: QuestionRow, sentences: Sentences, rng: Random) -> Iterator[str]:
    plain = without_title(row.text)
    for name in find_entities(f"x {plain[0].lower()}{plain[1:]}"):
        if name not in plain or any(map(str.isdigit, name)) or _DATED.match(name):
            continue
        other = _other_name(name, sentences, rng)
        if other is not None:
            yield row.text.replace(name, other)


def _other_name(name: str, sentences: Sentences, rng: Random) -> str | None:
    """A similar name that the index does not contain; the last word of `name` stays if it is a noun for a place or a type. None if there is no such name."""
    words = name.split()
    if not words[0][:1].isupper():
        return None
    invented = next((one for one in shuffled(INVENTED, rng) if one.casefold() not in sentences.text), None)
    if invented is None:
        return None
    names_kind = len(words) > 1 and (words[-1].casefold() in PLACES or kind_by_name(name).noun)
    return " ".join([invented, words[-1]] if names_kind else [*words[:-1], invented])


def _other_words(row: QuestionRow, sentences: Sentences, rng: Random) -> Iterator[str]:
    plain = without_title(row.text)
    for group in shuffled(INTERCHANGEABLE, rng):
        for words in group:
            match = re.search(rf"(?<!\w){words}(?P<plural>s?)(?!\w)", plain, re.IGNORECASE)
            others = [other for other in group if match and other != words and not _occurs(other, sentences)]
            if match is not None and others:
                other = rng.choice(others)
                other = other.capitalize() if match[0][0].isupper() else other
                before = _with_article(plain[: match.start()], other)
                changed = f"{before}{other}{match['plural']}{plain[match.end() :]}"
                if not sentences.documents_with(stems_of(changed), ""):
                    yield changed + row.text[len(plain) :]


def _occurs(words: str, sentences: Sentences) -> bool:
    """Whether the index contains the words: several words as they are, a single word in any of its forms."""
    return words in sentences.text if " " in words else sentences.has_word(words)


def _with_article(before: str, word: str) -> str:
    """The text before a word, with its article adapted to the word."""
    match = re.search(r"(?<!\w)([Aa])n? $", before)
    return before if match is None else f"{before[: match.start()]}{match[1]}{'n' if word[0] in 'aeio' else ''} "


TEMPLATES: dict[str, Template] = {
    "single": fact_questions,
    "table": table_questions,
    "bridge": bridge_questions,
    "comparison": comparison_questions,
    "intersection": intersection_questions,
}
MAX_WORDS = 60
MAX_COMPARISONS, MAX_OF_ONE_ATTRIBUTE, ALWAYS_ALLOWED = 0.5, 1 / 3, 5
"""The largest share of comparisons among all questions, the largest share of one attribute ("born") among comparisons, and the number of each
that is always allowed."""


def template_questions(
    index: Index,
    count: int,
    hops: Sequence[int],
    seed: int,
    unanswerable: float = 0.0,
    splits: Mapping[str, str] | None = None,
) -> Iterator[QuestionRow]:
    """Up to `count` questions with the given numbers of hops, alternating kinds and hops; fewer if the index yields no more.

    `unanswerable` is the share of questions that the index does not answer. All questions about a document are in its split (by default
    that of `spread_documents`), so none uses documents of two splits.
    """
    rows = unique(all_template_questions(index, hops, seed, splits))
    yield from islice(rows if unanswerable == 0 else _with_near_misses(rows, index, unanswerable, seed), count)


def all_template_questions(
    index: Index, hops: Sequence[int], seed: int, splits: Mapping[str, str] | None = None
) -> Iterator[QuestionRow]:
    """All rows that `template_questions` chooses from, including some with the same question and id that are about different documents."""
    splits = splits if splits is not None else spread_documents(index.sources(), seed)
    statements = read_index(index, splits)
    builder = _QuestionBuilder(statements, splits, DuplicateFilter(), Counter())
    waiting = [
        [
            (kind, builder.rows(make(statements, hop_count, Random(f"{seed} {kind} {hop_count}"))))
            for kind, make in TEMPLATES.items()
        ]
        for hop_count in sorted(set(hops))
    ]
    return builder.alternate(waiting)


def to_row(candidate: Candidate, splits: Mapping[str, str]) -> QuestionRow | None:
    """A candidate as a row; None if it gives its answer (unless it is a comparison) or a bridge away, is too long, uses a document twice, or
    uses documents of two splits."""
    text = (candidate.text[0].upper() + candidate.text[1:]).replace("??", "?")
    steps = list(dict.fromkeys(step for chain in candidate.chains for step in chain))
    gives_away = [*candidate.bridges, *([candidate.answer] if candidate.kind != "comparison" else [])]
    repeats_source = len({step.source for step in steps}) < len(steps)
    document_splits = {splits[step.source] for step in steps}
    is_too_long = len(text.split()) > MAX_WORDS
    if repeats_source or len(document_splits) > 1 or is_too_long or any(named_in(name, text) for name in gives_away):
        return None
    return QuestionRow(
        id=id_of(text),
        text=text,
        answers=(candidate.answer, *candidate.others),
        kind=candidate.kind,
        hops=len(steps),
        split=document_splits.pop(),
        chains=candidate.chains,
        bridges=tuple(dict.fromkeys(candidate.bridges)),
        writer=BY_TEMPLATES,
    )


@dataclass(frozen=True)
class _QuestionBuilder:
    """Builds rows from candidates; `counts` are the numbers of rows so far, by kind and attribute."""

    statements: IndexStatements
    splits: Mapping[str, str]
    duplicates: DuplicateFilter
    counts: Counter[str]

    def rows(self, candidates: Iterator[Candidate]) -> Iterator[QuestionRow]:
        """The candidates that pass the checks, as rows; the checks depend on the rows so far."""
        for candidate in candidates:
            row = to_row(candidate, self.splits)
            if row is None or self.duplicates.uses_exhausted_document(row) or self.duplicates.is_duplicate(row):
                continue
            if row.hops > 1 and not needs_all(row, self.statements.mentions):
                continue
            attributes = [candidate.attribute] if candidate.attribute else []
            comparisons = self.counts["comparison"]
            if any(self._is_too_many(one, comparisons, MAX_OF_ONE_ATTRIBUTE) for one in attributes):
                continue
            self.duplicates.add(row)
            self.counts.update(("all", row.kind, *attributes))
            yield row

    def alternate(self, waiting: Sequence[list[tuple[str, Iterator[QuestionRow]]]]) -> Iterator[QuestionRow]:
        """One row of each number of hops in turn, alternating kinds, until no rows are left except comparisons beyond MAX_COMPARISONS."""
        while rows := [row for row in map(self._next, waiting) if row is not None]:
            yield from rows

    def _next(self, kinds: list[tuple[str, Iterator[QuestionRow]]]) -> QuestionRow | None:
        """The next row of the first kind that has one and is not too frequent; its kind moves to the end of the queue."""
        for position, (kind, rows) in enumerate(kinds):
            if kind == "comparison" and self._is_too_many(kind, self.counts["all"], MAX_COMPARISONS):
                continue
            row = next(rows, None)
            if row is not None:
                kinds.append(kinds.pop(position))
                return row
        return None

    def _is_too_many(self, what: str, total: int, share: float) -> bool:
        return self.counts[what] >= max(ALWAYS_ALLOWED, share * total)


def _with_near_misses(rows: Iterator[QuestionRow], index: Index, share: float, seed: int) -> Iterator[QuestionRow]:
    """The rows; while the share of unanswerable ones is below `share`, each row is followed by its near miss, if it has a new one."""
    sentences, rng = Sentences(index), Random(f"{seed} unanswerable")
    ids: set[str] = set()
    for count, row in enumerate(rows, start=1):
        yield row
        near = near_miss(row, sentences, rng) if len(ids) < share / (1 - share) * count else None
        if near is not None and near.id not in ids:
            ids.add(near.id)
            yield near

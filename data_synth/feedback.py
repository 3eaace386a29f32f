"""`modegraph data import feedback`: what readers said of answers (graph/feedback), as preference and relevance rows.

First the last entry of each reader that may be learned from, then which answer is better, then preference rows, then questions with gold
passages, then both datasets in one split. An answer without a reasoning gets one by rules: the sentence closest to question and answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from data_synth.contexts import gold_share
from data_synth.dataset.summary import Summary
from data_synth.dataset.write import check_folder, write_dataset
from data_synth.preferences.hard_negatives import WORSE
from data_synth.preferences.preference_form import PREFERENCES, preference_problems
from data_synth.preferences.preferences import BY_RULES
from data_synth.preferences.reasons import UNSUPPORTED, cite_statement, closest_statements
from data_synth.relevance.relevance_form import RELEVANCE, SPLIT_BY, GoldQuestion, RelevanceRow
from data_synth.relevance.relevance_rows import relevance_rows
from data_synth.relevance.split import make_split
from data_synth.rows import Draft, Dropped, Form, PreferenceRow
from graph.answer.context import of_passage, of_proposition, of_summary
from graph.answer.prompt import answer_messages, format_answer
from graph.documents.questions import Question, Quote
from graph.errors import UserError
from graph.feedback import Correction, Feedback, GivenAnswer, Preference, RightPassage, Vote, read_feedback
from graph.index.index import Index
from graph.shared.ids import content_id, shown_id
from graph.text.prompting import quote
from graph.types import Excerpt, Passage

NO_CONSENT = "no consent to training"
SUPERSEDED = "said anew later by the same reader"


def latest_entries(entries: Iterable[Feedback]) -> tuple[list[Feedback], list[Dropped]]:
    """The entries to learn from, oldest first, and what was dropped.

    An entry without consent also takes back what the same reader said of the same thing before.
    """
    last: dict[tuple[object, ...], Feedback] = {}
    dropped: list[Dropped] = []
    for entry in entries:
        key = (entry.user, question_key(entry.question), *_subject_key(entry))
        if last.pop(key, None) is not None:
            dropped.append(Dropped(SUPERSEDED))
        if entry.consent:
            last[key] = entry
        else:
            dropped.append(Dropped(NO_CONSENT))
    return list(last.values()), dropped


def question_key(question: str) -> str:
    """What makes two questions the same: their words, whatever their case and the space between them."""
    return " ".join(question.casefold().split())


def _subject_key(entry: Feedback) -> tuple[object, ...]:
    """What an entry speaks of; a reader has one opinion of it."""
    match entry.said:
        case Vote(answer):
            return ("vote", answer_key(answer))
        case Correction(answer):
            return ("correction", answer_key(answer))
        case RightPassage(passage_id):
            return ("passage", passage_id)
        case Preference(first, second):
            return ("preference", frozenset((answer_key(first), answer_key(second))))


def answer_key(answer: GivenAnswer) -> tuple[object, ...]:
    """What makes two answers the same, whoever wrote them: their words and what they were written from."""
    return (answer.text, answer.reasoning, answer.context_ids)


DIFFERENT_PASSAGES = "a preference between answers from different passages"
NO_DIFFERENCE = "a preference for neither answer"
EQUAL_ANSWERS = "two answers in the same words"
NO_COUNTERPART = "a vote on a prompt without an answer of the opposite vote"
DISPUTED = "answers that as many readers put one way as the other"
READER_MODEL = "a reader"
"""The model of an answer that a reader wrote."""


@dataclass(frozen=True)
class AnswerPair:
    """Of two answers to `question` over the same passages, the better one; `passage_ids` are those that a reader named for it."""

    question: str
    chosen: GivenAnswer
    rejected: GivenAnswer
    passage_ids: tuple[str, ...] = ()


def judge_answers(entries: Iterable[Feedback]) -> tuple[list[AnswerPair], list[Dropped]]:
    """Each pair once, the way that most readers put it, in the order in which they were first told apart."""
    told, dropped = _stated_pairs(entries)
    pairs: defaultdict[tuple[object, ...], list[AnswerPair]] = defaultdict(list)
    for each in told:
        pairs[question_key(each.question), frozenset((answer_key(each.chosen), answer_key(each.rejected)))].append(each)
    better: list[AnswerPair] = []
    for of_pair in pairs.values():
        sides = Counter(answer_key(each.chosen) for each in of_pair).most_common()
        if len(sides) == 2 and sides[0][1] == sides[1][1]:
            dropped.append(Dropped(DISPUTED))
        else:
            better.append(next(each for each in of_pair if answer_key(each.chosen) == sides[0][0]))
    return better, dropped


def _stated_pairs(entries: Iterable[Feedback]) -> tuple[list[AnswerPair], list[Dropped]]:
    told: list[AnswerPair] = []
    dropped: list[Dropped] = []
    voted: list[tuple[str, Vote]] = []
    for entry in entries:
        match entry.said:
            case Preference(first, second, better):
                pair = (first, second) if better == "first" else (second, first)
                problem = NO_DIFFERENCE if better == "neither" else _problem(*pair)
                told += [] if problem else [AnswerPair(entry.question, *pair)]
                dropped += [Dropped(problem)] if problem else []
            case Correction(answer, corrected, reasoning, passage_ids):
                right = GivenAnswer(READER_MODEL, corrected, reasoning, answer.context_ids, answer.mode)
                problem = _problem(right, answer)
                told += [] if problem else [AnswerPair(entry.question, right, answer, passage_ids)]
                dropped += [Dropped(problem)] if problem else []
            case Vote():
                voted.append((entry.question, entry.said))
    from_votes = list(_from_votes(voted))
    told += [each for each in from_votes if isinstance(each, AnswerPair)]
    dropped += [each for each in from_votes if isinstance(each, Dropped)]
    return told, dropped


def _problem(chosen: GivenAnswer, rejected: GivenAnswer) -> str:
    """Why two answers make no pair, or ""."""
    if chosen.context_ids != rejected.context_ids:
        return DIFFERENT_PASSAGES
    return EQUAL_ANSWERS if (chosen.text, chosen.reasoning) == (rejected.text, rejected.reasoning) else ""


def _from_votes(voted: Iterable[tuple[str, Vote]]) -> Iterator[AnswerPair | Dropped]:
    """Each answer that more readers are against, behind the one that most are for, of the same question and passages."""
    prompts: defaultdict[tuple[object, ...], list[tuple[str, Vote]]] = defaultdict(list)
    for question, vote in voted:
        prompts[question_key(question), vote.answer.context_ids].append((question, vote))
    for of_prompt in prompts.values():
        answers = {answer_key(vote.answer): vote.answer for _, vote in of_prompt}
        net = net_votes(vote for _, vote in of_prompt)
        best = max(net, key=lambda key: net[key])
        worse = [key for key in net if net[key] < 0]
        if net[best] <= 0 or not worse:
            yield from (Dropped(NO_COUNTERPART) for _ in of_prompt)
        else:
            yield from (AnswerPair(of_prompt[0][0], answers[best], answers[key]) for key in worse)


def net_votes(votes: Iterable[Vote]) -> Mapping[tuple[object, ...], int]:
    """Readers for each answer less those against it."""
    net: Counter[tuple[object, ...]] = Counter()
    for vote in votes:
        net[answer_key(vote.answer)] += 1 if vote.rating == "up" else -1
    return net


PASSAGE_GONE = "a passage that the index no longer holds"
MISSHAPEN = "no row to learn from: "
_READ = "read"
"""The one source that a reasoning by rules is asked to quote: all passages that it may."""


class Lookup:
    """What an index holds under the ids that feedback names."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def excerpt(self, one: str) -> Excerpt | None:
        """A passage, proposition or summary as a prompt quotes it; None where the index does not hold it."""
        if (passage := self.passage(one)) is not None:
            return of_passage(passage)
        if one in self._propositions:
            proposition = self._index.proposition(self._propositions[one])
            source = proposition.spans[0].source
            title = next((each.title for each in self._index.passages_of(source)), "")
            return of_proposition(proposition, {source: title})
        if one in self._summaries:
            return of_summary(self._index.summary(self._summaries[one]))
        return None

    def passage(self, one: str) -> Passage | None:
        """A passage; None where the index does not hold it."""
        row = self._passages.get(one)
        return None if row is None else self._index.passage(row)

    @cached_property
    def _passages(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self._index.data.passage_ids)}

    @cached_property
    def _propositions(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self._index.data.proposition_ids)}

    @cached_property
    def _summaries(self) -> dict[str, int]:
        return {one: row for row, one in enumerate(self._index.data.summary_ids)}


def question_id(question: str) -> str:
    """The id of a question that readers asked."""
    return f"feedback-{shown_id(content_id('feedback', question_key(question)))}"


def preference_rows(
    better: Iterable[AnswerPair], lookup: Lookup, split: Mapping[str, str], gold: Mapping[str, Sequence[str]]
) -> Iterator[PreferenceRow | Dropped]:
    """A row for each pair; `split` and the `gold` documents are by the id of the question."""
    for each in better:
        excerpts = [lookup.excerpt(one) for one in each.chosen.context_ids]
        whole = [excerpt for excerpt in excerpts if excerpt is not None]
        named = [lookup.passage(one) for one in each.passage_ids]
        if len(whole) < len(excerpts) or None in named:
            yield Dropped(PASSAGE_GONE)
            continue
        one = question_id(each.question)
        passages = [passage for passage in named if passage is not None]
        question = Question(one, each.question, (quote(each.chosen.text),), tuple(gold.get(one, ())), split=split[one])
        yield pair_row(each, Draft(question, question.answers[0], tuple(whole)), passages)


def pair_row(better: AnswerPair, draft: Draft, named: Sequence[Passage]) -> PreferenceRow | Dropped:
    """The row of one pair over the excerpts of `draft`; `named` are passages that a reader named for the better answer."""
    question, excerpts = draft.question, draft.excerpts
    reason: str | Dropped = better.chosen.reasoning.strip() or reason_by_rules(draft, named)
    if isinstance(reason, Dropped):
        return reason
    chosen, rejected = format_answer(reason, draft.answer), format_given_answer(better.rejected)
    row = PreferenceRow(
        id=f"{question.id}#{len(excerpts)}@{shown_id(content_id(chosen, rejected))}",
        prompt=answer_messages(question.text, excerpts),
        chosen=chosen,
        rejected=rejected,
        question_id=question.id,
        question=question.text,
        answers=question.answers,
        kind=question.kind,
        split=question.split,
        context_size=len(excerpts),
        context_ids=tuple(excerpt.id for excerpt in excerpts),
        gold_in_context=gold_share(question.gold_sources, excerpts),
        reasoner=better.chosen.model if better.chosen.reasoning.strip() else BY_RULES,
        hard_negative=WORSE if better.rejected.reasoning.strip() else "",
    )
    problems = preference_problems(row)
    return Dropped(f"{MISSHAPEN}{problems[0]}") if problems else row


def reason_by_rules(draft: Draft, named: Sequence[Passage]) -> str | Dropped:
    """The sentence of the `named` passages, or else of those read, that is closest to question and answer, cited where it was read."""
    read = [Passage(each.id, _READ, each.title, 0, each.start, each.end, each.text) for each in draft.excerpts]
    wanted = f"{draft.question.text} {draft.answer}"
    statements = closest_statements(wanted, (_READ,), lambda _: named or read)
    return " ".join(cite_statement(one, draft.excerpts) for one in statements) or Dropped(UNSUPPORTED)


def format_given_answer(answer: GivenAnswer) -> str:
    """An answer in the form of training, or the answer alone where it came without a reasoning."""
    text = quote(answer.text)
    return format_answer(answer.reasoning, text) if answer.reasoning.strip() else text


def gold_questions(entries: Sequence[Feedback], lookup: Lookup) -> tuple[list[GoldQuestion], list[Dropped]]:
    """Every question once, with its right passages as quotes (none, where nobody named one), and the documents shown beside them."""
    asked: dict[str, str] = {}
    right: defaultdict[str, dict[Quote, None]] = defaultdict(dict)
    shown: defaultdict[str, dict[str, None]] = defaultdict(dict)
    dropped: list[Dropped] = []
    for entry in entries:
        one = question_key(entry.question)
        asked.setdefault(one, entry.question)
        named, beside = _named_passages(entry)
        for passage in map(lookup.passage, named):
            if passage is None:
                dropped.append(Dropped(PASSAGE_GONE))
            else:
                right[one][Quote(passage.source, passage.text)] = None
        for passage in filter(None, map(lookup.passage, beside)):
            shown[one][passage.source] = None
    return [_gold_question(text, list(right[one]), shown[one]) for one, text in asked.items()], dropped


def _named_passages(entry: Feedback) -> tuple[Sequence[str], Sequence[str]]:
    """The passages that an entry calls right, and those that were shown."""
    match entry.said:
        case RightPassage(passage_id, shown_ids):
            return (passage_id,), shown_ids
        case Correction(answer, _, _, passage_ids):
            return passage_ids, answer.context_ids if passage_ids else ()
        case _:
            return (), ()


def _gold_question(text: str, right: Sequence[Quote], shown: Iterable[str]) -> GoldQuestion:
    sources = tuple(dict.fromkeys(quoted.source for quoted in right))
    question = Question(question_id(text), text, (), sources, tuple(right))
    return GoldQuestion(question, tuple(source for source in shown if source not in sources))


NEGATIVES = 64
SEED = 0
"""As `synth relevance` has them."""
DATASETS: Mapping[str, Form[Any]] = {"preferences": PREFERENCES, "relevance": RELEVANCE}
"""The folders below --out."""


def check_out(out: Path) -> None:
    """UserError unless all of DATASETS can be written below `out`."""
    for name in DATASETS:
        check_folder(out / name)


def import_feedback(index: Index, out: Path) -> dict[str, Summary]:
    """Write DATASETS below `out` from the feedback of `index`. UserError where there is no feedback.

    The same feedback gives the same rows. A dataset without rows is written too: it takes the place of one from entries that were deleted.
    """
    entries = read_feedback(index.folder)
    if not entries:
        found = f"{index.folder}: no feedback"
        raise UserError(found, "an index that readers were served from", "serve it with `modegraph serve --feedback`")
    check_out(out)
    told, lost = latest_entries(entries)
    lookup = Lookup(index)
    asked, gone = gold_questions(told, lookup)
    split = make_split(index, asked, SEED).questions if asked else {}
    better, unpaired = judge_answers(told)
    gold = {each.question.id: each.gold_sources for each in asked}
    known = [replace(each, stated_split=split[each.question.id]) for each in asked if each.gold_sources]
    origin = {
        "Index": index.folder.name,
        "Encoder": index.encoder_source.fingerprint,
        "Feedback": f"{len(entries):,} entries of {len({each.user for each in entries}):,} readers",
        "Seed": str(SEED),
    }
    rows: dict[str, Iterable[Any]] = {
        "preferences": chain(lost, unpaired, preference_rows(better, lookup, split, gold)),
        "relevance": chain(gone, _passage_labelled_rows(index, known)),
    }
    more = {"relevance": {SPLIT_BY: "passages"}}
    return {
        name: _write_below(out / name, rows[name], form, {**origin, **more.get(name, {})})
        for name, form in DATASETS.items()
    }


def _passage_labelled_rows(index: Index, known: Sequence[GoldQuestion]) -> Iterator[RelevanceRow | Dropped]:
    """Rows whose gold is a passage as a whole, though it is given as a quote."""
    if known:
        for row in relevance_rows(index, known, make_split(index, known, SEED), NEGATIVES):
            yield row if isinstance(row, Dropped) else replace(row, labelled_by="passage")


def _write_below(folder: Path, rows: Iterable[Any], form: Form[Any], origin: Mapping[str, str]) -> Summary:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return write_dataset(folder, rows, form, origin)

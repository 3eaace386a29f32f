"""`modegraph data import feedback`: readers' feedback on answers (graph/feedback.py), as preference and relevance rows.

The steps: select the last entry of each reader on each subject, if the reader consented; decide which of two answers is better; make preference
rows, and questions with gold passages; write both datasets with the same split of questions. If the better answer has no reasoning, rules select
the sentence closest to question and answer as its reasoning."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from data_synth.dataset.write import SUMMARY, Summary, check_folder, write_dataset
from data_synth.preferences.hard_negatives import NONE_SAYS_SO, WORSE
from data_synth.preferences.preference_form import PREFERENCES, preference_problems
from data_synth.preferences.preferences import BY_RULES, preference_row
from data_synth.preferences.reasons import UNSUPPORTED, cite_statement, closest_statements
from data_synth.relevance.relevance_form import RELEVANCE, SPLIT_BY, GoldQuestion, RelevanceRow
from data_synth.relevance.relevance_rows import relevance_rows
from data_synth.relevance.split import make_split
from data_synth.rows import Draft, Dropped, PreferenceRow, separate_dropped
from graph.answer.context import of_passage, of_proposition, of_summary
from graph.answer.prompt import NOT_FOUND, format_answer, is_no_answer
from graph.documents.questions import Question, Quote
from graph.errors import UserError
from graph.feedback import Correction, Feedback, GivenAnswer, Preference, RightPassage, Vote, read_feedback
from graph.index.index import Index, row_of
from graph.shared.ids import content_id, shown_id
from graph.text.prompting import quote
from graph.types import Excerpt, Passage

NO_CONSENT = "no consent to training"
SUPERSEDED = "superseded by a later entry of the same reader"


def latest_entries(entries: Iterable[Feedback]) -> tuple[list[Feedback], list[Dropped]]:
    """The entries to make rows from, oldest first, and one Dropped for each of the others.

    An entry without consent also withdraws the same reader's earlier entry on the same subject.
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
    """The key that identifies a question: its words, ignoring case and white space."""
    return " ".join(question.casefold().split())


def _subject_key(entry: Feedback) -> tuple[object, ...]:
    """The subject of an entry, on which each reader has one opinion."""
    match entry.content:
        case Vote(answer):
            return ("vote", answer_key(answer))
        case Correction(answer):
            return ("correction", answer_key(answer))
        case RightPassage(passage_id):
            return ("passage", passage_id)
        case Preference(first, second):
            return ("preference", frozenset((answer_key(first), answer_key(second))))


def answer_key(answer: GivenAnswer) -> tuple[object, ...]:
    """The key that identifies an answer, whoever wrote it: its text, reasoning and context."""
    return (answer.text, answer.reasoning, answer.context_ids)


DIFFERENT_PASSAGES = "a preference between answers from different passages"
NO_DIFFERENCE = "a preference for neither answer"
EQUAL_ANSWERS = "two answers in the same words"
NO_COUNTERPART = "a vote on a question for which readers favour no answer or reject none"
DISPUTED = "answers on which readers are evenly divided"
READER_MODEL = "a reader"
"""Used in place of a model's name for an answer that a reader wrote."""


@dataclass(frozen=True)
class AnswerPair:
    """The better and the worse of two answers to `question` from the same passages; `passage_ids`: the passages that a reader gave for the better answer."""

    question: str
    chosen: GivenAnswer
    rejected: GivenAnswer
    passage_ids: tuple[str, ...] = ()


def judge_answers(entries: Iterable[Feedback]) -> tuple[list[AnswerPair], list[Dropped]]:
    """Each pair of answers once, in the order of its first comparison, and the dropped comparisons and pairs.

    The better answer is the one preferred in most comparisons of the pair; the votes on the two answers together count as one comparison.
    """
    pairs, dropped = separate_dropped(_pairs_of(entries))
    groups: defaultdict[tuple[object, ...], list[AnswerPair]] = defaultdict(list)
    for pair in pairs:
        answers = frozenset((answer_key(pair.chosen), answer_key(pair.rejected)))
        groups[question_key(pair.question), answers].append(pair)
    judged: list[AnswerPair] = []
    for group in groups.values():
        sides = Counter(answer_key(pair.chosen) for pair in group).most_common()
        if len(sides) == 2 and sides[0][1] == sides[1][1]:
            dropped.append(Dropped(DISPUTED))
        else:
            judged.append(next(pair for pair in group if answer_key(pair.chosen) == sides[0][0]))
    return judged, dropped


def _pairs_of(entries: Iterable[Feedback]) -> Iterator[AnswerPair | Dropped]:
    votes: list[tuple[str, Vote]] = []
    for entry in entries:
        match entry.content:
            case Preference(first, second, better):
                ordered = (first, second) if better == "first" else (second, first)
                yield Dropped(NO_DIFFERENCE) if better == "neither" else _pair(entry.question, *ordered)
            case Correction(answer, corrected, reasoning, passage_ids):
                right = GivenAnswer(READER_MODEL, corrected, reasoning, answer.context_ids, answer.mode)
                yield _pair(entry.question, right, answer, passage_ids)
            case Vote():
                votes.append((entry.question, entry.content))
    yield from _from_votes(votes)


def _pair(
    question: str, chosen: GivenAnswer, rejected: GivenAnswer, passage_ids: tuple[str, ...] = ()
) -> AnswerPair | Dropped:
    if chosen.context_ids != rejected.context_ids:
        return Dropped(DIFFERENT_PASSAGES)
    if (chosen.text, chosen.reasoning) == (rejected.text, rejected.reasoning):
        return Dropped(EQUAL_ANSWERS)
    return AnswerPair(question, chosen, rejected, passage_ids)


def _from_votes(votes: Iterable[tuple[str, Vote]]) -> Iterator[AnswerPair | Dropped]:
    """For each question and set of passages: the answer with the most net votes, paired with each answer whose net votes are negative.

    Dropped for each vote on a question and passages without such a pair.
    """
    prompts: defaultdict[tuple[object, ...], list[tuple[str, Vote]]] = defaultdict(list)
    for question, vote in votes:
        prompts[question_key(question), vote.answer.context_ids].append((question, vote))
    for prompt_votes in prompts.values():
        answers = {answer_key(vote.answer): vote.answer for _, vote in prompt_votes}
        net = net_votes(vote for _, vote in prompt_votes)
        best = max(net, key=lambda key: net[key])
        worse = [key for key in net if net[key] < 0]
        if net[best] <= 0 or not worse:
            yield from (Dropped(NO_COUNTERPART) for _ in prompt_votes)
        else:
            yield from (AnswerPair(prompt_votes[0][0], answers[best], answers[key]) for key in worse)


def net_votes(votes: Iterable[Vote]) -> Mapping[tuple[object, ...], int]:
    """Votes for each answer minus votes against it."""
    net: Counter[tuple[object, ...]] = Counter()
    for vote in votes:
        net[answer_key(vote.answer)] += 1 if vote.rating == "up" else -1
    return net


PASSAGE_GONE = "a passage that is no longer in the index"
EXCERPT_GONE = (
    "an excerpt that is not in the index: it was deleted, or a model wrote it, as in the modes global, local and plan"
)
MALFORMED = "not usable for training: "
_ALL_PASSAGES = "read"
"""A placeholder for the sources of all passages that reasoning by rules may quote."""


def find_excerpt(index: Index, item_id: str) -> Excerpt | None:
    """A passage, proposition or summary as a prompt quotes it; None if it is not in the index."""
    if (passage := find_passage(index, item_id)) is not None:
        return of_passage(passage)
    if (row := row_of(index.data, "proposition", item_id)) is not None:
        proposition = index.proposition(row)
        source = proposition.spans[0].source
        title = next((passage.title for passage in index.passages_of(source)), "")
        return of_proposition(proposition, {source: title})
    row = row_of(index.data, "summary", item_id)
    return None if row is None else of_summary(index.summary(row))


def find_passage(index: Index, passage_id: str) -> Passage | None:
    """A passage; None if it is not in the index."""
    row = row_of(index.data, "passage", passage_id)
    return None if row is None else index.passage(row)


def question_id(question: str) -> str:
    """The id of a question from feedback."""
    return f"feedback-{shown_id(content_id('feedback', question_key(question)))}"


def preference_rows(
    pairs: Iterable[AnswerPair], index: Index, split: Mapping[str, str], gold: Mapping[str, Sequence[str]]
) -> Iterator[PreferenceRow | Dropped]:
    """A row for each pair, or the reason why there is none; `split` and the `gold` documents are keyed by question id."""
    for pair in pairs:
        excerpts = [each for one in pair.chosen.context_ids if (each := find_excerpt(index, one))]
        passages = [passage for one in pair.passage_ids if (passage := find_passage(index, one))]
        if len(excerpts) < len(pair.chosen.context_ids) or len(passages) < len(pair.passage_ids):
            yield Dropped(PASSAGE_GONE if len(passages) < len(pair.passage_ids) else EXCERPT_GONE)
            continue
        key = question_id(pair.question)
        answer, kind = quote(pair.chosen.text), ""
        if is_no_answer(answer):
            answer, kind = NOT_FOUND, "unanswerable"
        question = Question(key, pair.question, (answer,), tuple(gold.get(key, ())), kind=kind, split=split[key])
        yield pair_row(pair, Draft(question, answer, tuple(excerpts)), passages)


def pair_row(pair: AnswerPair, draft: Draft, passages: Sequence[Passage]) -> PreferenceRow | Dropped:
    """The row of one pair, with the excerpts of `draft` as context, or the reason why there is none.

    `passages` are those that a reader gave for the better answer.
    """
    reason: str | Dropped = pair.chosen.reasoning.strip() or reason_by_rules(draft, passages)
    if isinstance(reason, Dropped):
        return reason
    chosen, rejected = format_answer(reason, draft.answer), format_given_answer(pair.rejected)
    row = preference_row(
        draft,
        f"@{shown_id(content_id(chosen, rejected))}",
        chosen,
        rejected,
        pair.chosen.model if pair.chosen.reasoning.strip() else BY_RULES,
        WORSE if pair.rejected.reasoning.strip() else "",
    )
    problems = preference_problems(row)
    return Dropped(f"{MALFORMED}{problems[0]}") if problems else row


def reason_by_rules(draft: Draft, passages: Sequence[Passage]) -> str | Dropped:
    """The sentence closest to question and answer, from `passages` or else from the context, cited if it is in the context; Dropped if there is none.

    For the answer "not in the documents", the reason is that none of the passages says so.
    """
    if draft.answer == NOT_FOUND:
        return NONE_SAYS_SO
    context = [Passage(one.id, _ALL_PASSAGES, one.title, 0, one.start, one.end, one.text) for one in draft.excerpts]
    query = f"{draft.question.text} {draft.answer}"
    statements = closest_statements(query, (_ALL_PASSAGES,), lambda _: passages or context)
    return " ".join(cite_statement(one, draft.excerpts) for one in statements) or Dropped(UNSUPPORTED)


def format_given_answer(answer: GivenAnswer) -> str:
    """An answer in the training format, or the answer alone if it has no reasoning."""
    text = quote(answer.text)
    return format_answer(answer.reasoning, text) if answer.reasoning.strip() else text


def gold_questions(entries: Sequence[Feedback], index: Index) -> tuple[list[GoldQuestion], list[Dropped]]:
    """Every question once, with a quote for each passage that readers marked as right, and the other documents that they were shown.

    A Dropped stands for each marked passage that is no longer in the index.
    """
    texts: dict[str, str] = {}
    right: defaultdict[str, dict[Quote, None]] = defaultdict(dict)
    shown: defaultdict[str, dict[str, None]] = defaultdict(dict)
    dropped: list[Dropped] = []
    for entry in entries:
        key = question_key(entry.question)
        texts.setdefault(key, entry.question)
        right_ids, shown_ids = _passage_ids(entry)
        for passage_id in right_ids:
            passage = find_passage(index, passage_id)
            if passage is None:
                dropped.append(Dropped(PASSAGE_GONE))
            else:
                right[key][Quote(passage.source, passage.text)] = None
        found = (find_passage(index, passage_id) for passage_id in shown_ids)
        shown[key].update((passage.source, None) for passage in found if passage)
    return [_gold_question(text, list(right[key]), shown[key]) for key, text in texts.items()], dropped


def _passage_ids(entry: Feedback) -> tuple[Sequence[str], Sequence[str]]:
    """The ids of the passages that an entry marks as right, and of those that were shown; none if the entry marks no passage."""
    match entry.content:
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
"""The defaults of `synth relevance`."""


def import_feedback(index: Index, out: Path) -> dict[str, Summary]:
    """Write the datasets `preferences` and `relevance` below `out` from the feedback of `index`.

    UserError if there is no feedback and no such dataset to replace. The same feedback gives the same rows. A dataset without rows is
    written too: it replaces one made from entries that have since been deleted.
    """
    entries = read_feedback(index.folder)
    folders = {name: out / name for name in ("preferences", "relevance")}
    if not entries and not any((folder / SUMMARY).exists() for folder in folders.values()):
        expected, remedy = "an index whose readers have given feedback", "serve it with `modegraph serve --feedback`"
        raise UserError(f"{index.folder}: no feedback", expected, remedy)
    for folder in folders.values():
        check_folder(folder)
    latest, dropped = latest_entries(entries)
    questions, gone = gold_questions(latest, index)
    split = make_split(index, questions, SEED).questions if questions else {}
    pairs, unpaired = judge_answers(latest)
    gold = {one.question.id: one.gold_sources for one in questions}
    with_gold = [replace(one, stated_split=split[one.question.id]) for one in questions if one.gold_sources]
    origin = {
        "Index": index.folder.name,
        "Encoder": index.encoder_source.fingerprint,
        "Feedback": f"{len(entries):,} entries of {len({entry.user for entry in entries}):,} readers",
        "Seed": str(SEED),
    }
    answered = chain(dropped, unpaired, preference_rows(pairs, index, split, gold))
    labelled = chain(gone, _passage_labelled_rows(index, with_gold))
    made_by = "data import feedback"
    pair_form, label_form = replace(PREFERENCES, made_by=made_by), replace(RELEVANCE, made_by=made_by)
    return {
        "preferences": write_dataset(folders["preferences"], answered, pair_form, origin),
        "relevance": write_dataset(folders["relevance"], labelled, label_form, {**origin, SPLIT_BY: "passages"}),
    }


def _passage_labelled_rows(index: Index, questions: Sequence[GoldQuestion]) -> Iterator[RelevanceRow | Dropped]:
    """Relevance rows marked as labelled by passage, because each quote is a whole gold passage."""
    if questions:
        for row in relevance_rows(index, questions, make_split(index, questions, SEED), NEGATIVES):
            yield row if isinstance(row, Dropped) else replace(row, labelled_by="passage")

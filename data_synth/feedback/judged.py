"""Which answer of a prompt is better than which, by all that readers said of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from data_synth.feedback.last_word import folded, written
from data_synth.types import Dropped
from graph.feedback.types import Correction, Feedback, GivenAnswer, Preference, Vote

OTHER_PASSAGES = "a preference between answers from different passages"
NO_DIFFERENCE = "a preference for neither answer"
SAME = "two answers in the same words"
ALONE = "a vote on a prompt without an answer of the opposite vote"
DISPUTED = "answers that as many readers put one way as the other"
A_READER = "a reader"
"""The model of an answer that a reader wrote."""


@dataclass(frozen=True)
class Better:
    """Of two answers to `question` over the same passages, the better one; `passage_ids` are those that a reader named for it."""

    question: str
    chosen: GivenAnswer
    rejected: GivenAnswer
    passage_ids: tuple[str, ...] = ()


def judge(entries: Iterable[Feedback]) -> tuple[list[Better], list[Dropped]]:
    """Each pair once, the way that most readers put it, in the order in which they were first told apart."""
    told, dropped = _told(entries)
    pairs: defaultdict[tuple[object, ...], list[Better]] = defaultdict(list)
    for each in told:
        pairs[folded(each.question), frozenset((written(each.chosen), written(each.rejected)))].append(each)
    better: list[Better] = []
    for of_pair in pairs.values():
        sides = Counter(written(each.chosen) for each in of_pair).most_common()
        if len(sides) == 2 and sides[0][1] == sides[1][1]:
            dropped.append(Dropped(DISPUTED))
        else:
            better.append(next(each for each in of_pair if written(each.chosen) == sides[0][0]))
    return better, dropped


def _told(entries: Iterable[Feedback]) -> tuple[list[Better], list[Dropped]]:
    told: list[Better] = []
    dropped: list[Dropped] = []
    voted: list[tuple[str, Vote]] = []
    for entry in entries:
        match entry.said:
            case Preference(first, second, better):
                pair = (first, second) if better == "first" else (second, first)
                problem = NO_DIFFERENCE if better == "neither" else _problem(*pair)
                told += [] if problem else [Better(entry.question, *pair)]
                dropped += [Dropped(problem)] if problem else []
            case Correction(answer, corrected, reasoning, passage_ids):
                right = GivenAnswer(A_READER, corrected, reasoning, answer.context_ids, answer.mode)
                problem = _problem(right, answer)
                told += [] if problem else [Better(entry.question, right, answer, passage_ids)]
                dropped += [Dropped(problem)] if problem else []
            case Vote():
                voted.append((entry.question, entry.said))
    from_votes = list(_from_votes(voted))
    told += [each for each in from_votes if isinstance(each, Better)]
    dropped += [each for each in from_votes if isinstance(each, Dropped)]
    return told, dropped


def _problem(chosen: GivenAnswer, rejected: GivenAnswer) -> str:
    """Why two answers make no pair, or ""."""
    if chosen.context_ids != rejected.context_ids:
        return OTHER_PASSAGES
    return SAME if (chosen.text, chosen.reasoning) == (rejected.text, rejected.reasoning) else ""


def _from_votes(voted: Iterable[tuple[str, Vote]]) -> Iterator[Better | Dropped]:
    """Each answer that more readers are against, behind the one that most are for, of the same question and passages."""
    prompts: defaultdict[tuple[object, ...], list[tuple[str, Vote]]] = defaultdict(list)
    for question, vote in voted:
        prompts[folded(question), vote.answer.context_ids].append((question, vote))
    for of_prompt in prompts.values():
        answers = {written(vote.answer): vote.answer for _, vote in of_prompt}
        net = net_votes(vote for _, vote in of_prompt)
        best = max(net, key=lambda key: net[key])
        worse = [key for key in net if net[key] < 0]
        if net[best] <= 0 or not worse:
            yield from (Dropped(ALONE) for _ in of_prompt)
        else:
            yield from (Better(of_prompt[0][0], answers[best], answers[key]) for key in worse)


def net_votes(votes: Iterable[Vote]) -> Mapping[tuple[object, ...], int]:
    """Readers for each answer less those against it."""
    net: Counter[tuple[object, ...]] = Counter()
    for vote in votes:
        net[written(vote.answer)] += 1 if vote.rating == "up" else -1
    return net

"""Questions about one fact of an index: what one sentence answers, worded so that its subject is named and no other sentence answers it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from random import Random

from data_synth.questions.index_statements import IndexStatements, Place
from data_synth.questions.question_form import Step, named_in
from data_synth.questions.sentences import Fact, facts_of, topic_of
from data_synth.questions.templates import Candidate, shuffled, starts, values_at
from graph.extract.entities import entity_key
from graph.index.index import Index

MOST_OF_A_SENTENCE = 2
"""Questions that may rest on one sentence."""
_PRONOUNS = {
    "He": "he",
    "She": "she",
    "His": "he",
    "Her": "she",
    "It": "it",
    "Its": "it",
    "They": "they",
    "Their": "they",
}
_PRONOUN = re.compile(rf"^(?P<one>{'|'.join(_PRONOUNS)}) (?=\w)")
_VESSELS = frozenset(["boat", "cutter", "ferry", "launch", "ship", "vessel", "yacht"])
_PLAIN = """
a about according after all an and are around as at be been before by can did do does every each far few for from had has have how
if in into is it its last least long many may more most much must of off often on only or over per shall should since so than that
date day days month months percentage the their time times to until up was week were what when where which who whom whose will with within year
"""
_PLAIN_WORDS = frozenset(_PLAIN.split())
_ENDING = re.compile(r"(?:ing|ies|ied|ed|es|s|d|e|y)$")


class Sentences:
    """The sentences of an index by the words in them, and how words are written in it."""

    def __init__(self, index: Index) -> None:
        data = index.data
        self._words: list[frozenset[str]] = []
        self._texts: list[str] = []
        self._documents: list[int] = []
        self._by_word: defaultdict[str, set[int]] = defaultdict(set)
        for at, passage in enumerate(data.occurrence_passage_M):
            offset = int(data.passage_start_P[passage])
            start, end = int(data.occurrence_start_M[at]) - offset, int(data.occurrence_end_M[at]) - offset
            self._add(data.passage_texts[passage][start:end], int(data.passage_document_P[passage]))

    def _add(self, text: str, document: int) -> None:
        words = stems_of(text)
        for word in words:
            self._by_word[word].add(len(self._words))
        self._words.append(words)
        self._texts.append(text)
        self._documents.append(document)

    @cached_property
    def text(self) -> str:
        """All sentences in one, case folded."""
        return "\n".join(self._texts).casefold()

    @cached_property
    def names_inside(self) -> Counter[str]:
        """Words that have a capital inside a sentence, where only names have one."""
        return Counter(word for text in self._texts for word in re.findall(r"(?<=[a-z,;] )[A-Z][\w'’-]*", text))

    @cached_property
    def small_inside(self) -> Counter[str]:
        """Words without a capital."""
        return Counter(word for text in self._texts for word in re.findall(r"(?<![\w'’-])[a-z][\w'’-]*", text))

    def is_name(self, word: str) -> bool:
        """Whether a word has its capital inside sentences too, more often than none."""
        return self.names_inside[word] > self.small_inside[word.casefold()]

    def has_word(self, word: str) -> bool:
        """Whether any sentence has a word, in any of its forms."""
        return bool(self._by_word.get(stem_of(word)))

    def documents_saying(self, words: frozenset[str], but: str) -> set[int]:
        """The documents with a sentence, another one than `but`, that has all the words."""
        if not words:
            return set()
        rows = set.intersection(*(self._by_word.get(word, set()) for word in words))
        return {self._documents[row] for row in rows if self._texts[row] != but}


@dataclass(frozen=True)
class _PlacedFact:
    fact: Fact
    place: Place


def stem_of(word: str) -> str:
    """A word without its ending, as far as needed to know it again: "opened" and "opens" are one."""
    word = word.casefold()
    return _ENDING.sub("", word) if len(word) > 4 else word.removesuffix("s")


def stems_of(text: str) -> frozenset[str]:
    """The words of a text that say something.

    >>> sorted(stems_of("When was the yard opened?"))
    ['open', 'yard']
    """
    words = re.findall(r"\w+(?:[.,:]\d+)*", text.casefold())
    return frozenset(stem_of(word) for word in words if word not in _PLAIN_WORDS)


def fact_questions(readings: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Every question that one sentence alone answers, the documents by turns. None for more `hops` than one."""
    if hops != 1:
        return
    sentences = Sentences(readings.mentions.index)
    of_values = _by_values(readings, rng)
    turns = [
        shuffled([*of_values.get(document, ()), *_of_document(readings, sentences, document, rng)], rng)
        for document in shuffled(sorted(readings.statements), rng)
    ]
    for together in zip_longest(*turns):
        yield from (candidate for candidate in together if candidate is not None)


def _by_values(readings: IndexStatements, rng: Random) -> dict[int, list[Candidate]]:
    """What the documents about one thing say of it in dates and sizes."""
    found: dict[int, list[Candidate]] = {}
    for start in starts(readings, rng):
        if start.document in readings.openings:
            name = readings.openings[start.document]
            found[start.document] = [
                Candidate("single", value.asked.replace("{}", name), value.text, ((step,),), ())
                for value, step in values_at(readings, start)
            ]
    return found


def _of_document(readings: IndexStatements, sentences: Sentences, document: int, rng: Random) -> Iterator[Candidate]:
    uses: Counter[str] = Counter()
    for found in shuffled(list(_facts(readings, sentences, document)), rng):
        candidate = _candidate(readings, sentences, document, found)
        if candidate is not None and uses[found.place.quote] < MOST_OF_A_SENTENCE:
            uses[found.place.quote] += 1
            yield candidate


def _facts(readings: IndexStatements, sentences: Sentences, document: int) -> Iterator[_PlacedFact]:
    opening = readings.openings.get(document, "")
    names = set(opening.split())

    def is_name(word: str) -> bool:
        return word in names or sentences.is_name(word)

    earlier: Place | None = None
    topic: tuple[str, str] | None = None
    for place in readings.statements[document]:
        text = " ".join(place.quote.split())
        begins = earlier is None or not _follows(readings, earlier, place)
        topic = (opening, _pronoun_for(readings, document)) if begins and opening else None if begins else topic
        earlier = place
        pronoun = _PRONOUN.match(text)
        if pronoun is None:
            topic = topic_of(text, is_name) or _opening_topic(readings, document, text)
        elif topic is not None and _means(topic, opening, _PRONOUNS[pronoun["one"]], _pronoun_for(readings, document)):
            text, topic = _with_name(text, pronoun, topic[0]), (topic[0], _PRONOUNS[pronoun["one"]])
        else:
            topic = None
            continue
        for fact in facts_of(text, is_name):
            if fact.answers[0] in place.quote:
                yield _PlacedFact(fact, place)


def _means(topic: tuple[str, str], opening: str, pronoun: str, own: str) -> bool:
    """Whether a pronoun stands for the topic of the sentence before, and cannot stand for the thing that the document is about."""
    return pronoun in topic[1].split() and (not opening or topic[0] == opening or pronoun not in own.split())


def _follows(readings: IndexStatements, earlier: Place, place: Place) -> bool:
    """Whether a sentence comes next after another one in the same paragraph."""
    if earlier.passage != place.passage:
        return False
    text = readings.mentions.index.data.passage_texts[place.passage]
    between = text[text.find(earlier.quote) + len(earlier.quote) : text.find(place.quote)]
    return not between.strip() and "\n\n" not in between


def _opening_topic(readings: IndexStatements, document: int, text: str) -> tuple[str, str] | None:
    """The one thing that a document is about, where a sentence opens with it."""
    opening = readings.openings.get(document)
    if not opening or not text.startswith(f"{opening[0].upper()}{opening[1:]}"):
        return None
    return opening, _pronoun_for(readings, document)


def _pronoun_for(readings: IndexStatements, document: int) -> str:
    """The pronouns that can stand for what a document is about."""
    kind = readings.kinds[document]
    return "he she" if kind.person else "she it" if kind.noun in _VESSELS else "it"


def _with_name(text: str, pronoun: re.Match[str], topic: str) -> str:
    """A sentence with a name in the place of its first pronoun."""
    rest = text[pronoun.end() :]
    one = pronoun["one"]
    own = one in ("Its", "His", "Their") or (one == "Her" and not re.match(r"(?:was|is|had|has|were)\b", rest))
    if own and re.search(r" (?:of|in|at|on|for) ", topic):
        return text
    mark = "" if not own else "’" if topic.endswith("s") else "’s"
    return f"{topic[0].upper()}{topic[1:]}{mark} {rest}"


def _candidate(readings: IndexStatements, sentences: Sentences, document: int, found: _PlacedFact) -> Candidate | None:
    """A fact as a question that stands by itself; None where another sentence may answer it, or nothing names its subject."""
    fact, place = found.fact, found.place
    title, question = readings.title(document), fact.question
    rivals = sentences.documents_saying(stems_of(question), place.quote)
    named = any(word[:1].isupper() for word in (fact.subject or question.partition(" ")[2]).split())
    if document in rivals or (named and rivals):
        return None
    if (
        named
        and fact.subject
        and sentences.documents_saying(stems_of(f"{fact.subject} {fact.answers[0]}"), place.quote) - {document}
    ):
        return None
    if not named and (rivals or _needs_title(readings, document, fact)):
        twins = len(readings.mentions.documents_called.get(entity_key(title), ())) > 1
        if twins or "“" in title or "?" in title or not fact.subject or named_in(fact.answers[0], title):
            return None
        question = f"{question.removesuffix('?')}, according to “{title}”?"
    data = readings.mentions.index.data
    step = Step(
        fact.subject or title,
        fact.answers[0],
        data.document_sources[document],
        data.passage_ids[place.passage],
        place.quote,
    )
    return Candidate("single", question, fact.answers[0], ((step,),), (), fact.answers[1:])


def _needs_title(readings: IndexStatements, document: int, fact: Fact) -> bool:
    """Whether a subject without a name ("the journey", in a document about the tram) needs its document beside it.

    Where a document is about one thing, what else it speaks of belongs to that; elsewhere "the …" does, unless its words are those of a
    title without names ("Canteen and parking").
    """
    if not fact.subject or document in readings.openings:
        return True
    title = readings.title(document)
    is_topic = not any(word[:1].isupper() for word in title.split()[1:])
    shared = stems_of(fact.subject) & stems_of(title) if is_topic else frozenset()
    return fact.subject.startswith("the ") and not shared

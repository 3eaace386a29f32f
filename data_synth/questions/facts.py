"""Questions that each ask for one fact of an index, answered by a single sentence: they name the subject, and no other sentence answers them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from random import Random

from data_synth.questions.index_statements import IndexStatements, Occurrence, occurrence_text
from data_synth.questions.question_form import named_in
from data_synth.questions.sentences import Fact, facts_of, topic_of
from data_synth.questions.templates import Candidate, in_turn, shuffled, starts, step_at, values_at
from graph.index.index import Index
from graph.text.word_forms import FUNCTION_WORDS

MAX_PER_SENTENCE = 2
"""Maximum number of questions from one sentence."""
_PRONOUN = re.compile(r"^(?P<pronoun>He|She|His|Her|It|Its|They|Their) (?=\w)")
_POSSESSIVES = {"his": "he", "her": "she", "its": "it", "their": "they"}
_VESSELS = frozenset(["boat", "cutter", "ferry", "launch", "ship", "vessel", "yacht"])
_COMMON = """
a about according after all an and are around as at be been before by can did do does every each far few for from had has have how
if in into is it its last least long many may more most much must of off often on only or over per shall should since so than that
date day days month months percentage the their time times to until up was week were what when where which who whom whose will with within year
"""
_COMMON_WORDS = frozenset(_COMMON.split())
"""Words that do not count as content words."""
_ENDING = re.compile(r"(?:ing|ies|ied|ed|es|s|d|e|y)$")


class Sentences:
    """The sentences of an index, searchable by word stems, with counts of capitalised and lower-case words, and the whole text of the index."""

    def __init__(self, index: Index) -> None:
        data = self._data = index.data
        self._texts: list[str] = []
        self._documents: list[int] = []
        self._by_stem: defaultdict[str, set[int]] = defaultdict(set)
        for i, passage in enumerate(data.occurrence_passage_M):
            text = occurrence_text(data, i)
            for stem in stems_of(text):
                self._by_stem[stem].add(len(self._texts))
            self._texts.append(text)
            self._documents.append(int(data.passage_document_P[passage]))

    @cached_property
    def text(self) -> str:
        """The titles and passages of the index, including headings, as one text, with its case folded and white space reduced to single spaces."""
        texts = "\n".join([*self._data.document_titles, *self._data.passage_texts])
        return " ".join(texts.casefold().split())

    @cached_property
    def _stems(self) -> frozenset[str]:
        return stems_of(self.text)

    @cached_property
    def capitalised_counts(self) -> Counter[str]:
        """Counts of capitalised words inside sentences, where only names are capitalised."""
        return Counter(word for text in self._texts for word in re.findall(r"(?<=[a-z,;] )[A-Z][\w'’-]*", text))

    @cached_property
    def lower_case_counts(self) -> Counter[str]:
        """Counts of words without a capital."""
        return Counter(word for text in self._texts for word in re.findall(r"(?<![\w'’-])[a-z][\w'’-]*", text))

    def is_name(self, word: str) -> bool:
        """Whether a word is capitalised inside sentences more often than not."""
        return self.capitalised_counts[word] > self.lower_case_counts[word.casefold()]

    def has_heading(self, text: str) -> bool:
        """Whether a heading seems to run into a sentence ("after excision Proctoscopies are").

        The indication is a content word or an acronym before a capitalised word that is not a name.
        """
        for match in re.finditer(r"(?P<before>[^\W_][\w'’-]*) (?P<word>[A-Z][a-z'’-]+)(?= [a-z])", text):
            before = match["before"]
            follows_noun = before not in FUNCTION_WORDS and (before.islower() or (before.isupper() and len(before) > 1))
            if follows_noun and not self.is_name(match["word"]):
                return True
        return False

    def has_word(self, word: str) -> bool:
        """Whether a title, heading or sentence contains a word in any of its forms."""
        return stem_of(word) in self._stems

    def documents_with(self, stems: frozenset[str], excluding: str) -> set[int]:
        """The documents with a sentence, other than `excluding`, that contains words of all these stems; empty without stems."""
        if not stems:
            return set()
        rows = set.intersection(*(self._by_stem.get(stem, set()) for stem in stems))
        return {self._documents[row] for row in rows if self._texts[row] != excluding}


def stem_of(word: str) -> str:
    """A word without its ending, so that its forms are equal: "opened" and "opens"."""
    word = word.casefold()
    return _ENDING.sub("", word) if len(word) > 4 else word.removesuffix("s")


def stems_of(text: str) -> frozenset[str]:
    """The stems of the content words of a text.

    >>> sorted(stems_of("When was the yard opened?"))
    ['open', 'yard']
    """
    words = re.findall(r"\w+(?:[.,:]\d+)*", text.casefold())
    return frozenset(stem_of(word) for word in words if word not in _COMMON_WORDS)


def fact_questions(statements: IndexStatements, hops: int, rng: Random) -> Iterator[Candidate]:
    """Questions that only one sentence answers, alternating between documents; none unless `hops` is 1."""
    if hops != 1:
        return
    sentences = Sentences(statements.mentions.index)
    by_document = _value_questions(statements, rng)
    turns = [
        shuffled([*by_document.get(document, ()), *_document_questions(statements, sentences, document, rng)], rng)
        for document in shuffled(sorted(statements.occurrences), rng)
    ]
    yield from in_turn(turns)


def _value_questions(statements: IndexStatements, rng: Random) -> dict[int, list[Candidate]]:
    """The questions about the dates and quantities of each document's subject, for documents about a single subject whose title no other document has."""
    questions: dict[int, list[Candidate]] = {}
    for start in starts(statements, rng):
        if start.document in statements.subject_names and statements.has_own_title(start.document):
            name = statements.subject_names[start.document]
            questions[start.document] = [
                Candidate("single", value.question.replace("{}", name), value.text, ((step,),), ())
                for value, step in values_at(statements, start)
            ]
    return questions


def _document_questions(
    statements: IndexStatements, sentences: Sentences, document: int, rng: Random
) -> Iterator[Candidate]:
    uses: Counter[str] = Counter()
    for fact, occurrence in shuffled(list(_facts(statements, sentences, document)), rng):
        candidate = _candidate(statements, sentences, document, fact, occurrence)
        if candidate is not None and uses[occurrence.quote] < MAX_PER_SENTENCE:
            uses[occurrence.quote] += 1
            yield candidate


def _facts(statements: IndexStatements, sentences: Sentences, document: int) -> Iterator[tuple[Fact, Occurrence]]:
    subject = statements.subject_names.get(document, "")
    names = set(subject.split())

    def is_name(word: str) -> bool:
        return word in names or sentences.is_name(word)

    previous: Occurrence | None = None
    topic: tuple[str, str] | None = None
    pronouns = _pronouns_for(statements, document)
    for occurrence in statements.occurrences[document]:
        text = " ".join(occurrence.quote.split())
        if previous is None or not _follows(statements, previous, occurrence):
            topic = (subject, pronouns) if subject else None
        previous = occurrence
        if sentences.has_heading(text):
            topic = None
            continue
        match = _PRONOUN.match(text)
        word = match["pronoun"].lower() if match else ""
        pronoun = _POSSESSIVES.get(word, word)
        if match is None:
            topic = topic_of(text, is_name) or _subject_topic(statements, document, text)
        elif topic is not None and _refers_to(pronoun, topic, subject, pronouns):
            text, topic = _with_name(text, match, topic[0]), (topic[0], pronoun)
        else:
            topic = None
            continue
        for fact in facts_of(text, is_name):
            if fact.answers[0] in occurrence.quote:
                yield fact, occurrence


def _refers_to(pronoun: str, topic: tuple[str, str], subject: str, subject_pronouns: str) -> bool:
    """Whether a pronoun can refer to the topic of the previous sentence, and cannot refer to the document's subject instead."""
    means_subject = bool(subject) and topic[0] != subject and pronoun in subject_pronouns.split()
    return pronoun in topic[1].split() and not means_subject


def _follows(statements: IndexStatements, previous: Occurrence, occurrence: Occurrence) -> bool:
    """Whether a sentence directly follows the previous one in the same paragraph."""
    if previous.passage != occurrence.passage:
        return False
    text = statements.mentions.index.data.passage_texts[occurrence.passage]
    between = text[text.find(previous.quote) + len(previous.quote) : text.find(occurrence.quote)]
    return not between.strip() and "\n\n" not in between


def _subject_topic(statements: IndexStatements, document: int, text: str) -> tuple[str, str] | None:
    """A document's single subject and its pronouns; None if the document has none, or if `text` does not open with it."""
    subject = statements.subject_names.get(document)
    if not subject or not text.startswith(f"{subject[0].upper()}{subject[1:]}"):
        return None
    return subject, _pronouns_for(statements, document)


def _pronouns_for(statements: IndexStatements, document: int) -> str:
    """The pronouns that can refer to a document's subject."""
    kind = statements.kinds[document]
    return "he she" if kind.person else "she it" if kind.noun in _VESSELS else "it"


def _with_name(text: str, match: re.Match[str], topic: str) -> str:
    """A sentence with its opening pronoun replaced by a name; unchanged if “’s” would follow a name such as “the head of stores”."""
    rest = text[match.end() :]
    pronoun = match["pronoun"]
    precedes_noun = pronoun != "Her" or not re.match(r"(?:was|is|had|has|were)\b", rest)
    is_possessive = pronoun.lower() in _POSSESSIVES and precedes_noun
    if is_possessive and re.search(r" (?:of|in|at|on|for) ", topic):
        return text
    suffix = "" if not is_possessive else "’" if topic.endswith("s") else "’s"
    return f"{topic[0].upper()}{topic[1:]}{suffix} {rest}"


def _candidate(
    statements: IndexStatements, sentences: Sentences, document: int, fact: Fact, occurrence: Occurrence
) -> Candidate | None:
    """A fact as a self-contained question; None if another sentence may answer it, or nothing names its subject."""
    title, question = statements.title(document), fact.question
    others = sentences.documents_with(stems_of(question), occurrence.quote)
    has_name = any(word[:1].isupper() for word in (fact.subject or question.partition(" ")[2]).split())
    if document in others or (has_name and others):
        return None
    answer_stems = stems_of(f"{fact.subject} {fact.answers[0]}")
    if has_name and fact.subject and sentences.documents_with(answer_stems, occurrence.quote) - {document}:
        return None
    needs_title = not has_name and (others or _needs_title(statements, document, fact))
    if needs_title:
        if not title or "“" in title or "?" in title or not fact.subject or named_in(fact.answers[0], title):
            return None
        question = f"{question.removesuffix('?')}, according to “{title}”?"
    is_ambiguous = needs_title or (statements.is_qualified(document) and named_in(title, question))
    if is_ambiguous and not statements.has_own_title(document):
        return None
    step = step_at(statements.mentions, occurrence, fact.subject or title, fact.answers[0])
    return Candidate("single", question, fact.answers[0], ((step,),), (), fact.answers[1:])


def _needs_title(statements: IndexStatements, document: int, fact: Fact) -> bool:
    """Whether a subject without a name ("the journey", in a document about the tram) needs the document's title in the question.

    A question that asks for the subject itself always needs the title, and so does one in a document about a single subject. Elsewhere only a
    subject that begins with "the" needs it, unless the title contains no name ("Canteen and parking") and shares a word with the subject.
    """
    if not fact.subject or document in statements.subject_names:
        return True
    title = statements.title(document)
    is_topic = not any(word[:1].isupper() for word in title.split()[1:])
    shared = stems_of(fact.subject) & stems_of(title) if is_topic else frozenset()
    return fact.subject.startswith("the ") and not shared

"""The intent of a turn, and whether its question stands alone, decided by rules from its words.

`intent` is what a turn asks for: an answer from the documents, the last answer in another form, or nothing (a remark). A turn is a question
unless it consists only of words from closed lists (and, in a request, counts), or has no words ("👍"). `dependence` is whether a question
depends on earlier turns: it does if it is a fragment ("And the second one?"), if it has a pronoun without an antecedent ("Who bred it?"),
or if it has few content words and no name. Except for some words of thanks, the lists are English; whether a question in another language
may depend on earlier turns is decided by its length (`is_short`). When in doubt, a turn is a question that stands alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from graph.text.word_forms import IMPERATIVES, MARKS, unspaced_runs

Intent = Literal["question", "request", "remark"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


MAX_INTENT_CHARS = 200
"""The largest number of characters of a request or remark: a longer turn is a question."""
_TURN_WORD = re.compile(rf"(?:[^\W_]|[{MARKS}])+(?:['’](?:[^\W_]|[{MARKS}])+)*")
_REMARK = _set(
    """awesome bye cheers clear cool excellent fine good goodbye great hello helpful helps hey hi interesting lovely nice no ok okay
    perfect right sorry super thank thanks thx understood welcome wonderful wow yes
    bedankt danke dziękuję gracias grazie kiitos merci obrigada obrigado tack tak takk спасибо धन्यवाद شكرا תודה
    谢谢 謝謝 ありがとう ありがとうございます 감사합니다 고마워"""
)
_REMARK_FILLERS = _set(
    """a all and answer bit day did evening for have help i indeed it job know lot morning much night now oh see so that that's the
    this very well you you're your"""
)
_REQUEST = _set(
    """again brief briefer briefly bullet bullets clearer concise continue detail detailed details elaborate expand formal list longer
    paraphrase repeat rephrase reword rewrite sentence sentences short shorten shorter simple simpler simplify simply summarise
    summarize summary sure table tl tldr translate translation words"""
)
_LANGUAGES = _set(
    """arabic bengali bulgarian chinese croatian czech danish dutch english estonian finnish french german greek hebrew hindi hungarian
    icelandic indonesian irish italian japanese korean latin latvian lithuanian norwegian persian polish portuguese romanian russian
    serbian slovak slovenian spanish swahili swedish thai turkish ukrainian urdu vietnamese welsh"""
)
_REQUEST_FILLERS = _set(
    """a an and answer are as be bit can could dr explain five form format give i in into it items just kindly language last less like
    little make me more much my now of ok okay on one only or other paragraph please point points previous put same say so tell that
    the them then this three to two up use using version very want with would write you your"""
)
_REQUEST_PHRASES = frozenset({"explain that", "explain it", "go on", "tell me more", "what do you mean"}) | {
    f"explain{what} like i'm {age}" for what in ("", " it", " that") for age in ("5", "five")
}
_LANGUAGE_MARKERS = _set("in into please to use")
"""Words without which the name of a language probably means a people ("And the Dutch?")."""
_COUNTED = _set("bullet bullets paragraphs points sentence sentences words")
"""Words before which a number is a count ("in 100 words"); elsewhere it may belong to a name ("table 2")."""


def intent(text: str) -> Intent:
    """The intent of the last turn of a conversation that already has an answer.

    >>> [intent(each) for each in ("Thanks!", "Shorter, please", "And in German?", "List the ferries.", "And in 2023?")]
    ['remark', 'request', 'request', 'question', 'question']
    """
    if len(text) > MAX_INTENT_CHARS:
        return "question"
    words = [word.casefold().replace("’", "'") for word in _TURN_WORD.findall(text)]
    if not words:
        return "remark" if text.strip("?¿？؟ ") else "question"
    phrase = " ".join(words)
    if phrase == "got it" or (_made_of(words, _REMARK, _REMARK_FILLERS) and "?" not in text):
        return "remark"
    required = _REQUEST | _LANGUAGES if _asks_for_language(words) else _REQUEST
    others = [word for word, following in pairwise([*words, ""]) if not (word.isdecimal() and following in _COUNTED)]
    is_request = phrase in _REQUEST_PHRASES or _made_of(others, required, _REQUEST_FILLERS | _LANGUAGES)
    return "request" if is_request else "question"


def _asks_for_language(words: list[str]) -> bool:
    """Whether a language in `words` is that of the requested answer ("in Dutch"), not a people ("the Dutch")."""
    names_people = any(first == "the" and second in _LANGUAGES for first, second in pairwise(words))
    return not names_people and not _LANGUAGE_MARKERS.isdisjoint(words)


def _made_of(words: list[str], required: frozenset[str], fillers: frozenset[str]) -> bool:
    return not required.isdisjoint(words) and all(word in required or word in fillers for word in words)


AUXILIARY = _set(
    """am are be been being can could did do does had has have is may might must shall should was were will would
    can't couldn't didn't doesn't don't hadn't hasn't haven't isn't wasn't aren't weren't won't wouldn't"""
)
QUESTION_WORDS = _set("how what when where which who whom whose why")
QUESTION_ADVERBS = _set("how when where why")
"""Question words that an auxiliary follows in a complete question."""
AMOUNTS = _set("many much")
PREPOSITIONS = _set(
    "about after against as at before between by during for from in into near of on over since than through to under until with without"
)
ARTICLES = _set("a an the")
SUBJECTS, OBJECTS, POSSESSIVES = _set("he it she they"), _set("her him it them"), _set("her his its their")
DEMONSTRATIVES = _set("that these this those")
SUBORDINATORS = _set("although because if since that though until when where which while who whom whose")
WORDS_BEFORE_ONE = _set("another first last new next old other second that third this which")
"""Words after which "one" stands for one of several things already mentioned."""
MEASURES = _set(
    """big century cost costs date dates day days far heavy high hour hours kind large long minute minutes month months name number
    often old person people place sort tall thing things time times town week weeks year years"""
)
"""Words for the kind of answer that a question requests, not for its topic."""
JUDGEMENTS = _set(
    """advisable better cheaper common compulsory customary dangerous difficult easier easy enough essential hard harder healthy idea illegal
    important impossible lawful legal mandatory natural necessary normal ok okay possible rare reasonable right rude safe safer typical
    unsafe unusual usual wise wrong"""
)
"""Words after "is it" with which "it" has no antecedent: "Is it legal to sell eggs?"."""
COLLECTION = _set("collection corpus document documents index passage passages source sources text texts")
STOP_WORDS = (
    AUXILIARY
    | QUESTION_WORDS
    | PREPOSITIONS
    | ARTICLES
    | SUBJECTS
    | OBJECTS
    | POSSESSIVES
    | DEMONSTRATIVES
    | _set(
        """above again all also and any anybody anyone anything anywhere became because become both but call called came come down each
        either else ever every everyone everything exactly few first former further get go going got great happen happened
        happens here hers himself herself i instead itself just know last later latter left less made make makes many me mean
        meant more most much my neither next no nobody none nor not nothing now off ok once one ones only or other others our out
        own please really same second see so some somebody someone something somewhere still such take taken tell theirs then
        there third though today together too two up us use used very we well went whether yes yet you your"""
    )
)
"""Words that say nothing about the topic of a question."""
ENGLISH = STOP_WORDS - _set(
    "a am an as at but come do even for had he her i in is me no once or over see so under up was we will"
)
"""Stop words that show that a question is in English; those that other languages share are left out."""


Dependence = Literal["alone", "dependent", "unknown"]
"""`unknown`: the question is in another language."""

FEW_WORDS = 3
"""With at least this many content words, a question without a verb is a keyword search. With at most this many, a question with a definite noun
and no name depends on earlier turns."""
LONG_CHARACTERS = 400
"""A longer question is assumed to stand alone."""
SHORT_WORDS, SHORT_CHARACTERS = 4, 8
"""The longest question in another language that may depend on earlier turns: in words, or in characters for a script without spaces between words."""
_TOKEN = re.compile(r"[^\W_]+(?:['’.&/-][^\W_]+)*|[,;:?!]")
_FILLED = rf"(?:(?:{'|'.join(_REMARK_FILLERS)})\s+)*"
_OPENING = re.compile(
    rf"^(?:{_FILLED}(?:{'|'.join(_REMARK)})(?:\s+(?:{'|'.join(_REMARK | _REMARK_FILLERS)}))*\s*[,.!:]+\s+"
    r"|(?:actually|also|and|but|great|no|now|oh|ok|okay|or|please|so|thanks|thank you|then|well|yes)\b[\s,.!:]*)+",
    re.IGNORECASE,
)
"""A remark ("Great answer!") or words that connect a question to the one before."""
_WHAT_ABOUT = re.compile(r"(?:what|how) about\b", re.IGNORECASE)
_DEFINITION = re.compile(
    r"what (?:is|are) (?:an? )?(?!(?:done|he|it|known|left|new|next|said|she|that|there|these|they|this|those)\b)\w+(?<!ed)\W*",
    re.IGNORECASE,
)
_EXPLETIVE = re.compile(
    rf"(?:is|was|will|would) it (?:(?:a good|be|not|still) )?(?:\w+ that\b|(?:{'|'.join(JUDGEMENTS)})\b.* (?:if|to) \w+ \w)"
    r"|will it (?:rain|snow)\b",
    re.IGNORECASE,
)


def dependence(question: str) -> Dependence:
    """Whether the question depends on the conversation before it; `alone` if it can be its own search query.

    >>> [dependence(each) for each in ("When was that?", "And in 2023?", "When was the Marlow Yard founded?", "Wann war das?")]
    ['dependent', 'dependent', 'alone', 'unknown']
    """
    if len(question) > LONG_CHARACTERS:
        return "alone"
    question = question.strip().replace("’", "'")
    body = _OPENING.sub("", question)
    tokens = _TOKEN.findall(body)
    words = [word.casefold() for word in tokens]
    if ENGLISH.isdisjoint(_TOKEN.findall(question.casefold())):
        return "unknown"
    content = [position for position, word in enumerate(words) if word[0].isalnum() and word not in STOP_WORDS]
    if _WHAT_ABOUT.match(body) or _is_fragment(words, len(content), body != question):
        return "dependent"
    if _DEFINITION.fullmatch(body):
        return "alone"
    capital = [position for position in content if tokens[position][0].isupper()]
    names = frozenset(position for position in capital if position or 1 in capital or not tokens[0][1:].islower())
    start = 2 if _EXPLETIVE.match(body) else 0
    if any(_is_unresolved_pronoun(words, position, names) for position in range(start, len(words))):
        return "dependent"
    if names or any(words[position][0].isdigit() for position in content):
        return "alone"
    topic_words = {words[position] for position in content} - MEASURES - IMPERATIVES
    if not COLLECTION.isdisjoint(topic_words):
        return "alone"
    is_vague = len(topic_words) <= 1 or (len(topic_words) <= FEW_WORDS and _has_bare_noun(words))
    return "dependent" if is_vague else "alone"


def is_short(question: str) -> bool:
    """Whether a question in an unknown language is so short that it probably depends on earlier turns."""
    unspaced = "".join(unspaced_runs(question))
    return len(unspaced) <= SHORT_CHARACTERS if unspaced else len(question.split()) <= SHORT_WORDS


def _is_fragment(words: Sequence[str], content_words: int, has_opening: bool) -> bool:
    """Whether the question is incomplete: it has none of the listed verbs, it does not have the form "Who built it?" or "How many ships sank?",
    and it has too few words for a keyword search (after an opening such as "and" their number does not matter).
    """
    if not AUXILIARY.isdisjoint(words) or (words and words[0] in IMPERATIVES):
        return False
    if content_words >= FEW_WORDS and not has_opening:
        return False
    question_word = next((word for word in words if word in QUESTION_WORDS), None)
    if not AMOUNTS.isdisjoint(words):
        return content_words <= 1
    return question_word is None or question_word in QUESTION_ADVERBS or sum(word[0].isalnum() for word in words) <= 2


def _is_unresolved_pronoun(words: Sequence[str], position: int, names: frozenset[int]) -> bool:
    """Whether the word at `position` is a pronoun without an antecedent in the question."""
    word, previous = words[position], words[position - 1] if position else ""
    following = words[position + 1] if position + 1 < len(words) else "?"
    ends = not following[0].isalnum()
    if word == "that" and position and previous not in AUXILIARY | PREPOSITIONS:
        return False
    if word in DEMONSTRATIVES:
        return following not in QUESTION_WORDS and (previous in AUXILIARY or following not in PREPOSITIONS)
    if word == "there":
        return previous not in AUXILIARY and following not in AUXILIARY
    if word == "then":
        return ends
    if word in ("one", "ones"):
        is_choice = previous in WORDS_BEFORE_ONE or previous.endswith("est")
        is_alone = ends or following in AUXILIARY
        return is_choice and is_alone and not _has_noun(words, position - 2, names, after_question_words=True)
    if word in POSSESSIVES and following not in STOP_WORDS and not ends:
        return not _has_noun(words, position, names, after_question_words=True)
    if word in OBJECTS and ends and SUBORDINATORS.isdisjoint(words[1:position]):
        return True
    return word in SUBJECTS | OBJECTS and not _has_noun(words, position, names, previous not in AUXILIARY)


def _has_noun(words: Sequence[str], end: int, names: frozenset[int], after_question_words: bool) -> bool:
    """Whether a name, or a noun after an article (with `after_question_words`, also after a question word, "many" or "much"), precedes `end`."""
    before = ARTICLES | (QUESTION_WORDS | AMOUNTS if after_question_words else set())
    return any(position < end for position in names) or any(
        words[position] in before and words[position + 1] not in STOP_WORDS for position in range(end - 1)
    )


def _has_bare_noun(words: Sequence[str]) -> bool:
    """Whether a noun phrase with "the" is followed by no "of" or by "of the": true for "the engineer", not for "the boiling point of ethanol"."""
    for position, word in enumerate(words):
        if word == "the":
            end = next((end for end in range(position + 1, len(words)) if words[end] in STOP_WORDS), len(words))
            if words[end : end + 1] != ["of"] or words[end + 1 : end + 2] == ["the"]:
                return True
    return False

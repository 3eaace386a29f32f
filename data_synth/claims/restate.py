"""Restates sentences as answers do: verbatim, shortened, reordered, introduced by a phrase, joined to the next sentence, reworded, loosely paraphrased, with
names for pronouns, or fused with an earlier sentence."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graph.text.word_forms import FUNCTION_WORDS, NEGATORS, OPPOSITES

_FUSED_SUBJECT = r"(?:(?:He|She|It|They)\b(?!')|(?:The )?{title}(?: \([^()]*\))?(?:, [^,.;]{{3,60}},)?)"
_FUSED_CLAUSE = r" (?P<clause>[a-z][^.;:()]{5,90}?)(?:\.(?!\d)|[;:]|,? (?:and|but|which|who|where|while|although|until|after|before)\b|, )"
_IS = re.compile(r"(?:is|was|are|were) (?=(?:an?|the|one|two|three|four|five|six|seven|eight|nine|ten)\b)")
_FUSED_PRONOUN = re.compile(r"(?:He|She|It|They)(?P<rest> [a-z].*)", re.DOTALL)
_POSSESSIVE = re.compile(
    r"(?:His|Her|Its|Their) (?P<part>[a-z][\w'’ -]{2,40}?)(?P<rest> (?:is|was|are|were|has|had|have)\b.*)", re.DOTALL
)


def fuse(first: str, second: str, title: str, rng: random.Random) -> str | None:
    """The second sentence with its opening pronoun replaced by the title and a clause of the first sentence, or by a noun phrase of that clause.

    None if there is no title, if the second sentence does not begin with a pronoun, or if no such clause follows a pronoun or the title in the first.

    >>> fuse("Lantern is a ferry built in Tarn.", "Its crew was small.", "Lantern", random.Random(0))
    'The crew of the ferry built in Tarn was small.'
    >>> fuse("Lantern sank in 1911.", "It had carried coal.", "Lantern", random.Random(0))
    'Lantern, which sank in 1911, had carried coal.'
    """
    earlier = re.match(_FUSED_SUBJECT.format(title=re.escape(title)) + _FUSED_CLAUSE, first) if title else None
    later = _FUSED_PRONOUN.match(second) or _POSSESSIVE.match(second)
    if earlier is None or later is None:
        return None
    clause, which = earlier["clause"], "who" if second.startswith(("He", "She", "His")) else "which"
    copula = _IS.match(clause)
    if copula is None:
        subject = f"{title}, {which} {clause},"
    else:
        noun = clause[copula.end() :]
        subject = f"{title}, {noun}," if rng.random() < 0.5 else re.sub(r"^(?:an?|the)? ?", "the ", noun, count=1)
    if later.re is _POSSESSIVE:
        return f"The {later['part']} of {subject}{later['rest']}"
    return f"{subject[:1].upper()}{subject[1:]}{later['rest']}"


FRAMES = ("According to the passage, ", "The passage says that ", "It is stated that ", "As described there, ")
JOINTS = (", and ", "; ", ", while ")
_SYNONYMS = """
located = situated, known as = called, began = started, film = movie, founded = established, because = since,
showed = demonstrated, found that = observed that, used = employed, about = approximately, wrote = authored,
children = kids, results = findings, associated with = linked to, compared with = relative to, large = big,
build = construct, built = constructed, house = home, near = close to, between = from among, made = produced,
was born = came into the world, begins = starts, ship = vessel, every = each, took = needed
"""
SYNONYMS = [pair.strip().split(" = ") for pair in _SYNONYMS.split(",")]
"""Pairs of words or phrases with the same meaning."""
_SYNONYM_SHARE = 0.7
_COMMON = """
ability account action amount animal appear area around aspect became become behind bring broad called care carry case
cause certain chance change choice clear close come concern consider contain continue course cover create deal
describe detail develop difference direction discover effect effort enough event example exist expect explain fact
feature figure follow form found front general give goal great group grow happen have held hold idea important include
indeed involve issue item keep kind know lead learn level likely line live local look main make manner matter mean
meet method mind move name nature need note number object occur offer often order part people person place plan point
position possible practice present problem process produce provide purpose quality question range reach reason receive
relate remain report require result role rule seem sense serve several show side simple situation size source specific
stage stand start state step strong study subject suggest support system take task term thing think time total toward
turn type unit usually value various view visit wide word work world year
"""
COMMON_WORDS = tuple(_COMMON.split())
"""Words that may replace others in a loose claim."""
_LOOSENED_SHARE = 0.6
"""Upper limit of the probability with which a replaceable word is dropped or replaced in a loose claim."""
_BRACKETS = re.compile(r"\s*\([^()]*\)")
_CLAUSE = re.compile(r"(.{30,}?),\s+(?:which|who|where|and|but|when|while|with|although|after|before)\b")
_OPENING = re.compile(r"((?:In|On|At|During|By|From) [^,]{3,30}), (.*)\.$", re.DOTALL)
_PREPOSITION = "(?:in|at|on|near|by|from|to|for|with|during|until)"
_PHRASES = re.compile(rf"\b({_PREPOSITION} [^,.;()]{{3,40}}?) ({_PREPOSITION} [^,.;()]{{3,40}}?)(?=[,.;]|$)")
_OBJECT = re.compile(r" (?:her|him|it|them)(?= (?:in|at|on|by|from|to|for|with|until|and)\b|[.,;])")
_PERSON = re.compile(r"\b[A-Z][a-z]+ ([A-Z][a-z]{2,})\b(?! [A-Z])")
"""Two words that may be a first and a last name. Of a place name, the last word alone is usually less specific but not wrong."""
_PRONOUN = re.compile(r"(?:He|She|It|They)\b(?!')")


@dataclass(frozen=True)
class PassageSentence:
    """The sentences of a passage, the position of one of them, and the title of the passage."""

    sentences: Sequence[str]
    position: int
    title: str

    @property
    def text(self) -> str:
        """The sentence at `position`."""
        return self.sentences[self.position]


def verbatim(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence, unchanged."""
    return sentence.text


def shortened(sentence: PassageSentence, rng: random.Random) -> str:
    """The first clause of the sentence, without brackets."""
    text = _BRACKETS.sub("", sentence.text)
    clause = _CLAUSE.match(text)
    return f"{clause[1]}." if clause is not None else text


def opened_differently(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence with its opening pronoun replaced by the title, or else its opening phrase moved to the end, or else introduced by one of FRAMES."""
    title = _BRACKETS.sub("", sentence.title)
    if title and (pronoun := _PRONOUN.match(sentence.text)) is not None:
        return title + sentence.text[pronoun.end() :]
    if (opening := _OPENING.match(sentence.text)) is not None:
        return f"{opening[2][:1].upper()}{opening[2][1:]} {opening[1][:1].lower()}{opening[1][1:]}."
    return rng.choice(FRAMES) + sentence.text


def reordered(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence with two phrases of place, time or agent swapped, or the second one moved to the front; if there are no such phrases, `opened_differently`."""
    phrases = _PHRASES.search(sentence.text)
    if phrases is None:
        return opened_differently(sentence, rng)
    start, first, second = sentence.text[: phrases.start()], phrases[1], phrases[2]
    rest = sentence.text[phrases.end() :]
    if rng.random() < 0.5:
        return f"{start}{second} {first}{rest}"
    return f"{second[:1].upper()}{second[1:]}, {start}{first}{rest}"


def renamed(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence with a pronoun inside it replaced by the title, and with some people called by their last names."""
    title = _BRACKETS.sub("", sentence.title)
    text = _OBJECT.sub(lambda _: f" {title}", sentence.text, count=1) if title else sentence.text
    return _PERSON.sub(lambda match: match[1] if rng.random() < 0.5 else match[0], text)


def joined(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence, joined to the next one if there is one."""
    if sentence.position + 1 == len(sentence.sentences):
        return sentence.text
    return sentence.text.rstrip(".") + rng.choice(JOINTS) + sentence.sentences[sentence.position + 1]


def fused(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence with a clause of an earlier one about the same subject inserted; else joined to the next one."""
    title = _BRACKETS.sub("", sentence.title)
    fusions = [fuse(earlier, sentence.text, title, rng) for earlier in sentence.sentences[: sentence.position]]
    texts = [text for text in fusions if text is not None]
    return rng.choice(texts) if texts else joined(sentence, rng)


def reworded(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence with some of its words replaced by synonyms."""
    text = sentence.text
    for word, other in SYNONYMS:
        if rng.random() < _SYNONYM_SHARE:
            text = re.sub(rf"\b{word}(?!\w)", other, text, count=1)
    return text


def loosened(sentence: PassageSentence, rng: random.Random) -> str:
    """The sentence as returned by `opened_differently`, with some words dropped or replaced at random, as in a very loose paraphrase.

    Names, numbers, function words, negations, words with an opposite, and words of up to three letters stay.
    """
    share = _LOOSENED_SHARE * rng.random()

    def loosen_word(match: re.Match[str]) -> str:
        word = match[0]
        if word in FUNCTION_WORDS or word in NEGATORS or word in OPPOSITES or rng.random() > share:
            return word
        return rng.choice((*rng.sample(COMMON_WORDS, 2), ""))

    return re.sub(
        r"  +", " ", re.sub(r"(?<![\w'’-])[a-z]{4,}(?![\w'’-])", loosen_word, opened_differently(sentence, rng))
    )


RESTATEMENTS: tuple[Callable[[PassageSentence, random.Random], str], ...] = (
    verbatim,
    shortened,
    opened_differently,
    reordered,
    renamed,
    joined,
    *(fused,) * 3,  # Few sentences can be fused; the others are joined.
    reworded,
    *(loosened,) * 2,
)


def restate(sentence: PassageSentence, rng: random.Random) -> tuple[str, str]:
    """The sentence in one of the RESTATEMENTS, and the name of that restatement.

    >>> restate(PassageSentence(["In May 1911, it burned."], 0, "Lantern"), random.Random(1))
    ('It burned in May 1911.', 'opened_differently')
    """
    restatement = rng.choice(RESTATEMENTS)
    return restatement(sentence, rng), restatement.__name__

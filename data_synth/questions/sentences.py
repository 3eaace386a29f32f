"""Questions from one sentence, split into subject, verb and rest: a date, a number, a name or a place is removed and becomes the answer.

All functions work on text alone, without a parser: the verbs are those of data_synth/questions/words.py; sentences with other verbs yield few questions.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from data_synth.questions.words import (
    ADVERBS,
    AUXILIARIES,
    BE,
    BY_BASE,
    BY_PARTICIPLE,
    BY_PAST,
    BY_THIRD,
    INANIMATE,
    INTRANSITIVE,
    LINKS,
    LOCATION_VERBS,
    MODALS,
    NO_AGENT,
    NO_SUBJECT,
    NOUN_OR_VERB,
    PEOPLE,
    PHRASE_STOPS,
    PLACES,
    PLURALS_WITHOUT_S,
    ROLES,
    THINGS,
    TIME_UNITS,
    TRANSFER_VERBS,
    Verb,
)
from graph.extract.entities import MONTHS

IsName = Callable[[str], bool]
"""Whether a capitalised word at the start of a sentence is capitalised elsewhere too."""

_UNCLEAR = re.compile(
    r"\b(?:he|she|it|they|we|you|I|him|them|us|me|my|your|our|ours|yours|this|that|these|those|there|here|then|such|former|latter|"
    r"same|other|others|another|else|himself|herself|itself|themselves|whoever|whatever|not|never|no|none|nor|neither|nobody|nothing|"
    r"respectively|above|below|following)\b",
    re.IGNORECASE,
)
_POSSESSIVE = re.compile(r"\b(?:his|her|its|their)\b")
_NOT_PROSE = re.compile(r"[“”\"|{}<>#_\\?!…=/]|\.\.|http|\d, \d+(?:,| and | or )")
"""Symbols that plain prose does not contain, and lists of numbers ("stage 2, 3 and 4"), which would be cut at their commas."""
_HEADED = re.compile(
    r"(?<=[a-z0-9)] )(?:The|An|This|These|Your?|It|They|We|If|When)(?= [a-z])|"
    r"\b(?P<again>[^\W\d_][\w-]*(?: \w+){0,3}) (?i:(?P=again))\b"
)
"""A heading that runs into its sentence: a capitalised article, pronoun or conjunction inside it ("Layers of the wall The wall has two"), or repeated words."""
_TWO_SENTENCES = re.compile(
    r"\b(?!(?:Mrs?|Ms|Dr|Prof|St|Capt|Col|Gen|Lt|Rev|Hon|Mt|Ft|No|[A-Z])\.)\w+\. [A-Z]|\. (?:The|An?|It|He|She|They|In|On|At)\b"
)
"""The end of a sentence, which may follow an abbreviation, before the start of another."""
_BRACKETED = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_BOUNDARY = re.compile(
    r";|:(?!\d)|, | [–—] | (?:but|which|who|whom|whose|that|because|although|though|while|whereas|so|than) "
)
_CONDITION = re.compile(r" (?:if|when|unless|where|after|before|until|once|as) ")

_SMALL = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|eighteen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_SCALE = "hundred|thousand|million|billion|trillion"
_NUMBER = rf"(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+(?:\.\d+)?|{_SMALL}|(?:{_TENS})(?:-(?:one|{_SMALL}))?)(?: (?:{_SCALE}))?)"
_SUM = rf"(?<!\w)(?>[£$€]\d+(?:,\d+)*(?:\.\d+)?(?: ?(?:{_SCALE}|bn|[mkMK])\b)?)(?!\w)"
"""An amount of money."""
_APPROXIMATE = "about|around|approximately|roughly|nearly|almost|at least|at most|up to|no more than|more than|over|only|just|exactly"
_PLAIN_NUMBER = frozenset(["", "only", "just", "exactly"])
_HOUR = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_TIME = (
    r"(?:\d{1,2}[:.]\d{2}(?: ?[ap]\.?m\b\.?)?|\d{1,2} ?[ap]\.?m\b\.?|noon|midnight|"
    rf"(?:half past |a quarter (?:past|to) )?(?:{_HOUR})(?: in the (?:morning|afternoon|evening)|(?= (?:on|to|until|and(?! a)|each|every) |$))|"
    rf"(?:\d{{1,2}}|{_HOUR}) o['’]clock)"
)
_WEEKDAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?(?: (?:morning|afternoon|evening|night)s?)?"
_DAY = rf"(?:\d{{1,2}}(?:st|nd|rd|th)? (?:{MONTHS})(?: \d{{4}})?|(?:{MONTHS}) \d{{1,2}}, \d{{4}})"
_ORDINAL = (
    r"the (?:\d{1,2}(?:st|nd|rd|th)|first|second|third|fourth|last)(?: working)?(?: (?:day|"
    rf"{_WEEKDAY}))?(?: (?:of|in) (?:each|every|the) (?:following )?(?:month|quarter|year))"
)
_MONTH = rf"(?:{MONTHS})(?: \d{{4}})?(?! \d)"
_YEAR = r"[12]\d{3}(?![\d,.:]*\d)(?![-–\w])"
_TIMES = {"day": _DAY, "ordinal": _ORDINAL, "month": _MONTH, "year": _YEAR, "weekday": _WEEKDAY, "time": _TIME}
_WHEN = rf"(?:{'|'.join(_TIMES.values())})"
_RANGE = re.compile(rf"\b(?P<answer>(?:from|between) {_WHEN} (?:to|until|till|and) {_WHEN})")
_AT = re.compile(
    rf"\b(?P<prep>in|on|at|by|before|after|since|until|from) (?P<answer>(?>{_WHEN}))(?!\w)(?! ?(?:to|until|till|or|–|-) ?{_WHEN})"
    rf"(?P<more> and {_WHEN})?"
)
_OFTEN = re.compile(
    rf"\b(?P<answer>(?:every|each) (?:(?:other|second|third|\d+|{_SMALL}) )?(?:hour|day|week|month|quarter|year|morning|evening|"
    rf"spring|summer|autumn|winter|{_WEEKDAY})s?|(?:once|twice|(?:three|four|six) times) (?:daily|weekly|"
    r"monthly|yearly|(?:a|an|each|every) (?:hour|day|week|month|quarter|year))|daily|weekly|monthly|quarterly|annually|"
    r"yearly)(?=$| (?:in|on|at|by|for|with|between|from)\b)"
)
_SOON = re.compile(r"\bwithin (?P<answer>(?:an?|one) (?:hour|day|week|fortnight|month|quarter|year))\b")
_PERCENT = re.compile(rf"(?P<answer>{_NUMBER} ?(?:%|per cent\b|percent\b))(?: of (?P<of>[^,]+))?")
_MONEY = re.compile(
    rf"(?:(?P<prep>for|after|with|at|to|up to|over) )??(?:(?P<about>{_APPROXIMATE}) )?"
    rf"(?P<answer>{_SUM})"
)
_COUNT = re.compile(
    r"(?<![\w.,:£$€%-])(?:(?P<prep>for|within|after|in|by|with|at|to|on|from|before|into|under|between) )??"
    rf"(?:(?P<about>{_APPROXIMATE}) )?(?P<answer>{_NUMBER})(?![\d:.,]*\d)(?![-–%\w]) (?=[a-z])(?!(?:one|{_SMALL}|{_TENS}|{_SCALE})\b)"
)
_SIZE = re.compile(
    rf"(?:(?:{_APPROXIMATE}) )?(?P<answer>{_NUMBER} [a-z]+) (?P<what>long|high|tall|wide|deep|thick|old)\b(?P<after>.*)"
)
_FAR = re.compile(rf"(?:(?:{_APPROXIMATE}) )?(?P<answer>{_NUMBER} (?:km|kilometres|miles|metres|m)) (?P<after>from .+)")
_AMOUNT = re.compile(
    rf"(?:(?:set at|limited to|{_APPROXIMATE}) )*(?P<answer>(?:{_SUM}|{_NUMBER} ?(?:%|per cent|percent)|"
    rf"{_NUMBER} [a-z]+(?: [a-z]+)??))(?P<after>(?: (?:per|a|an|each|for|in|on|at|from|of|during|after|before|within) .+)?)"
)
_CODE = re.compile(r"(?P<answer>[\w.+-]+@[\w-]+\.[\w.-]+|\d[\d ]{1,}\d)")
_CAPITAL = r"[^\W\d_a-z][\w'’.-]*"
_NAME = rf"(?:[Tt]he )?{_CAPITAL}(?: (?:(?:of|de|des|del|der|di|la|van|von|du|and) (?:the )?)?{_CAPITAL})*"
_APPOSED = re.compile(rf"^(?P<name>{_NAME}), (?P<role>(?:the |now |then |an? )?[a-z][^,;]{{3,60}}), (?=[a-z])")
_BY, _TO_WHOM = (re.compile(rf"\b(?P<prep>{prep}) (?P<answer>\S.*)") for prep in ("by", "to|with"))
_DETERMINED = re.compile(rf"(?:the|an?) (?:[a-z][a-z'’-]*(?: |$)){{0,5}}(?:{_NAME})?")
_RANGE_OF = re.compile(
    rf"an? (?P<what>[a-z-]+) of (?:(?:{_APPROXIMATE}) )?(?P<answer>{_NUMBER} ?(?:(?:square|cubic|nautical) )?[a-z%]+)(?P<after>.*)"
)
_SHARE_OF = re.compile(
    rf"(?:(?P<about>{_APPROXIMATE}) )?(?P<answer>{_NUMBER} ?(?:%|per cent|percent)) of (?P<of>.+?) (?P<verb>is|are|was|were) (?P<rest>.+)",
    re.IGNORECASE,
)
_SOME = re.compile(
    rf"(?:(?P<about>{_APPROXIMATE}) )?(?P<answer>{_NUMBER}) (?P<noun>[a-z].*?) (?P<verb>is|are|was|were|can|may|must|will|shall) (?P<rest>.+)",
    re.IGNORECASE,
)
_CALLED = re.compile(rf"(?P<how>called|named|known as) (?P<answer>{_NAME})(?P<after>.*)")
_WHERE = re.compile(
    rf"\b(?P<prep>in|at|on|near|beside|behind|under|opposite|outside|inside|next to|above|to) (?P<answer>{_NAME}|the [a-z].*|an? [a-z].*)"
)
_PLACE_END = re.compile(
    r" (?:by|for|from|until|since|every|each|within|after|before|during|when|if|unless|at (?=[a-z\d])|as|with|in \d+|on \d) ?|,"
)
_AMOUNT_QUESTIONS = {
    "weigh": "How much {} weigh",
    "cost": "How much {} cost",
    "take": "How long {} take",
    "last": "How long {} last",
}


@dataclass(frozen=True)
class Fact:
    """A question that its sentence answers; the sentence contains the first of `answers` word for word.

    `subject` is the subject as the question names it ("" if the question asks for the subject itself).
    """

    question: str
    answers: tuple[str, ...]
    subject: str


@dataclass(frozen=True)
class Clause:
    """A subject with one finite verb, which is `auxiliary` if `verb` is None; otherwise it is `verb`, and `auxiliary` is the form of "do" for a question.

    `rest` follows the finite verb in the clause, and `then` follows the clause in the sentence.
    """

    subject: str
    auxiliary: str
    verb: Verb | None
    rest: str
    then: str = ""

    def fact(self, opening: str, rest: str, *answers: str) -> Fact:
        """The clause as a question: "At what time" + "does the canteen open" + "on Fridays"."""
        verb = self.verb.base if self.verb else ""
        return Fact(_question(f"{opening} {self.auxiliary} {self.subject} {verb} {rest}"), answers, self.subject)


def _question(text: str) -> str:
    return " ".join(text.split()) + "?"


def facts_of(sentence: str, is_name: IsName) -> Iterator[Fact]:
    """The questions made from a sentence that are well formed and whose answer occurs only once in the sentence.

    >>> [fact.question for fact in facts_of("The canteen opens at 7:30 on weekdays.", lambda word: False)]
    ['At what time does the canteen open on weekdays?']
    """
    text = plain_sentence(sentence)
    if text is None:
        return
    facts: list[Fact] = []
    for part in text.split("; "):
        part, roles = _without_apposition(part)
        facts += [
            *roles,
            *_subject_amounts(part),
            *(fact for clause in clauses_of(part, is_name) for fact in _facts(clause)),
        ]
    for fact in facts:
        question = fact.question[0].upper() + fact.question[1:]
        if _is_sound(question, fact) and fact.answers[0] in sentence and sentence.count(fact.answers[0]) == 1:
            yield replace(fact, question=question)


def topic_of(sentence: str, is_name: IsName) -> tuple[str, str] | None:
    """The topic of a sentence, and the pronouns that the next sentence could use for it; None if unclear.

    >>> topic_of("The chair is Noor Hadley.", str.isupper), topic_of("The vans are parked outside.", str.isupper)
    (('Noor Hadley', 'he she'), ('the vans', 'they'))
    """
    text = plain_sentence(sentence)
    clauses = clauses_of(_without_apposition(text)[0], is_name) if text else []
    if not clauses:
        return None
    subject, rest = clauses[0].subject, clauses[0].rest
    if _is_role(subject):
        is_named = clauses[0].auxiliary in ("is", "was") and re.fullmatch(_NAME, rest) and _is_person(rest)
        return (rest, "he she") if is_named else None
    if _is_person(subject):
        return subject, "he she"
    head = re.split(r" (?:of|for|at|in|on|to|from|with|behind|beside) ", subject)[0].split()
    if " and " in subject or " or " in subject or head[0] in ("each", "every", "all", "any", "everybody", "everyone"):
        return None
    return subject, "they" if _is_plural(head[-1]) else "it"


def plain_sentence(sentence: str) -> str | None:
    """A sentence without emphasis, parts in brackets and its full stop; None for anything but a plain statement."""
    text = " ".join(re.sub(r"\*\*|`", "", _BRACKETED.sub("", sentence)).split())
    unclear = (_NOT_PROSE, _HEADED, _TWO_SENTENCES)
    if not text.endswith(".") or any(one.search(text) for one in unclear) or not 4 <= len(text.split()) <= 45:
        return None
    return text.removesuffix(".")


def clauses_of(text: str, is_name: IsName) -> list[Clause]:
    """The main clause of a sentence and further ones with the same subject ("… and closes at 15:00").

    If the sentence begins with a time ("In 1911, …"), only the first clause, with the time at its end.
    """
    text = re.sub(r"^(?:Today|Nowadays|At present|Currently),? (?=\w)", "", text)
    fronted = re.match(rf"(?P<when>(?:In|On|Since|From|Until|At) {_WHEN}),? (?=\w)", text)
    when = ""
    if fronted is not None:
        when, text = f" {fronted['when'][0].lower()}{fronted['when'][1:]}", text[fronted.end() :]
    segment, then = _split_at(text, _BOUNDARY)
    main = _imperative(segment) or _statement(segment, is_name)
    if main is None:
        return []
    clauses = list(_split_conjuncts(replace(main, then=then)))
    if re.match(r", (?:and |but )?[a-z]", then) and main.subject:
        further, after = _split_at(re.sub(r"^, (?:and |but )?", "", then), _BOUNDARY)
        second = _conjunct(main, further)
        clauses += [] if second is None else list(_split_conjuncts(replace(second, then=after)))
    return [replace(clauses[0], rest=f"{clauses[0].rest}{when}", then="")] if when else clauses


def _without_apposition(text: str) -> tuple[str, list[Fact]]:
    """ "Ines Calloway, the head of stores, signs …" without the text between the commas; and, if that text names a role, a fact about who has it."""
    match = _NAMED_ROLE.match(text)
    if match is not None and _is_person(match["name"]) and _is_role(match["role"]):
        return f"{match['name']} {text[match.end() :]}", [Fact(f"Who is the {match['role']}?", (match["name"],), "")]
    match = _APPOSED.match(text)
    if match is None:
        return text, []
    rest = f"{match['name']} {text[match.end() :]}"
    role = re.sub(r"^(?:now|then) ", "", match["role"])
    if not _is_person(match["name"]) or not role.startswith("the ") or not _is_role(role):
        return rest, []
    return rest, [Fact(f"Who is {role}?", (match["name"],), "")]


_NAMED_ROLE = re.compile(rf"^The (?P<role>[a-z][^,]{{2,40}}), (?P<name>{_NAME}), (?=[a-z])")


def _split_at(text: str, boundary: re.Pattern[str]) -> tuple[str, str]:
    match = boundary.search(text)
    return (text[: match.start()], text[match.start() :]) if match else (text, "")


def _statement(segment: str, is_name: IsName) -> Clause | None:
    words = segment.split(" ")
    at = _finite_verb(words)
    subject = None if at is None else _subject(words[:at], is_name)
    if subject is None:
        return None
    clause = _predicate(subject, words[at:])
    is_past = clause is not None and clause.auxiliary in ("did", "was", "were", "had")
    return None if is_past and subject.startswith(("a ", "an ")) else clause


def _predicate(subject: str, words: list[str]) -> Clause | None:
    """A clause from a subject and words that open with a finite verb; None if they do not."""
    first, rest = words[0], words[1:]
    while rest and rest[0] in ADVERBS:
        rest = rest[1:]
    perfect = first in ("has", "have", "had") and rest[:1] and (rest[0] in BY_PARTICIPLE or rest[0] == "been")
    if first in AUXILIARIES and (first not in ("has", "have", "had") or perfect):
        return Clause(subject, first, None, " ".join(rest)) if rest else None
    for forms, auxiliary in ((BY_THIRD, "does"), (BY_PAST, "did"), (BY_BASE, "do")):
        if first in forms:
            return Clause(subject, auxiliary, forms[first], " ".join(rest)) if rest else None
    return None


def _finite_verb(words: list[str]) -> int | None:
    """The position of the finite verb: an auxiliary or a verb that is not also a noun, or else the first word that may be a verb."""
    unclear = None
    for at in range(1, min(len(words), 11)):
        word, before = words[at], words[at - 1].casefold()
        if word in AUXILIARIES or (word in BY_THIRD and word not in NOUN_OR_VERB):
            return at
        can_follow = before not in ("the", "a", "an", "of", "all", "every", "each", "to", "and")
        if unclear is None and can_follow and word not in ("called", "named"):
            plural = _is_plural(before)
            if word in BY_PAST or (word in BY_THIRD and not plural) or (word in BY_BASE and plural):
                unclear = at
        if unclear is not None and (at - unclear > 6 or word in ("if", "when", "unless", "where", "and", "but")):
            break
    return unclear


def _is_plural(word: str) -> bool:
    is_regular = word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return is_regular or word in ("people", "staff", "men", "women", "children")


def _subject(words: list[str], is_name: IsName) -> str | None:
    """A subject with the capitals that it has inside a sentence; None for a pronoun, and for anything but a noun phrase."""
    while len(words) > 1 and words[-1] in ADVERBS:
        words = words[:-1]
    first = words[0]
    if len(words) > 9 or first.casefold() in NO_SUBJECT or not all(re.search(r"\w", word) for word in words):
        return None
    if (
        first.casefold() in ("about", "around", "almost", "nearly", "over", "up")
        or words[1:2] in (["the"], ["a"], ["an"])
        or any(word in NO_SUBJECT and word not in LINKS for word in words[1:])
    ):
        return None
    if first in ("The", "A", "An", "Each", "Every", "All", "Any"):
        return None if len(words) == 1 else " ".join([first.lower(), *words[1:]])
    if not first[0].isupper() or first.isupper():
        return " ".join(words)
    is_full_name = len(words) > 1 and words[1][0].isupper()
    return " ".join(words) if is_full_name or is_name(first) else " ".join([first[0].lower() + first[1:], *words[1:]])


def _imperative(segment: str) -> Clause | None:
    """ "Report accidents to the safety officer" as "accidents must be reported to the safety officer"."""
    words = segment.split(" ")
    verb = BY_BASE.get(words[0].lower()) if words[0][:1].isupper() else None
    if verb is None or len(words) < 4 or words[1] in AUXILIARIES or words[1] in BY_BASE:
        return None
    noun = 2 if words[1] in ("the", "a", "an", "all", "any", "each", "every") else 1
    end = next((at for at in range(noun, len(words)) if words[at] in PHRASE_STOPS and words[at] != "of"), len(words))
    thing = words[1:end]
    if not thing or any(word.casefold() in NO_SUBJECT or word in AUXILIARIES for word in thing) or end >= len(words):
        return None
    return Clause(" ".join(thing), "must", None, " ".join(["be", verb.participle, *words[end:]]))


def _split_conjuncts(clause: Clause) -> Iterator[Clause]:
    """A clause, split before each further verb of its subject."""
    for match in re.finditer(r" and (?=[a-z])", clause.rest):
        further = _conjunct(clause, clause.rest[match.end() :])
        if further is not None:
            yield replace(clause, rest=clause.rest[: match.start()], then=clause.rest[match.start() :] + clause.then)
            yield from _split_conjuncts(replace(further, then=clause.then))
            return
    yield clause


def _conjunct(clause: Clause, text: str) -> Clause | None:
    """ "closes at 15:00" as a clause with the subject of `clause`; None if the text does not open with a verb that agrees with the clause."""
    words = text.split(" ")
    first, before = words[0], clause.rest.split(" ")
    while first in ADVERBS and len(words) > 1:
        words, first = words[1:], words[1]
    if first in AUXILIARIES:
        return _predicate(clause.subject, words)
    is_passive = _is_participle(first) and (len(words) == 1 or words[1] in PHRASE_STOPS or words[1] in ADVERBS)
    if clause.auxiliary in BE and _is_participle(before[0]) and is_passive:
        return replace(clause, rest=" ".join(words))
    if clause.auxiliary in MODALS and before[0] == "be" and is_passive:
        return replace(clause, rest=" ".join(["be", *words]))
    if clause.auxiliary in MODALS and before[0] != "be" and first in BY_BASE and words[1:]:
        return replace(clause, rest=" ".join(words))
    forms = {"does": BY_THIRD, "is": BY_THIRD, "do": BY_BASE, "are": BY_BASE}
    fits = BY_PAST if clause.auxiliary in ("did", "was", "were") else forms.get(clause.auxiliary, {})
    return _predicate(clause.subject, words) if first in fits and words[1:] else None


def _facts(clause: Clause) -> Iterator[Fact]:
    yield from _times(clause)
    yield from _amounts(clause)
    yield from _people(clause)
    yield from _places(clause)


def _rest_without(clause: Clause, match: re.Match[str], further: str = "", is_object: bool = False) -> str | None:
    """The rest of a clause, with a match removed from it; None if that leaves no well-formed question.

    Half of a list is not an answer: neither "or" nor the end of a range ("to 8") may follow, nor the pattern `further` after "and" or a comma.
    """
    before, after = clause.rest[: match.start()].strip(), clause.rest[match.end() :]
    following = after + clause.then
    if re.match(r",? or\b| ?(?:to|–|-) ?[£$€]?\d", following):
        return None
    if further and re.match(rf"(?:,| and| or|, and|, or|–|-) ?(?:{further})", following):
        return None
    after = _to_next_clause(after)
    words = before.split()
    is_complex = len(words) > 8 or re.search(r"\d", before) or any(word in AUXILIARIES for word in words[1:])
    is_complex = is_complex or any(word in BY_THIRD and word not in NOUN_OR_VERB for word in words[1:])
    if (not is_object and _lacks_object(clause, words)) or _is_nominal(clause, words):
        return None
    before, after = (re.sub(r" ?\b(?:only|at any time)$", "", part) for part in (before, after))
    if is_complex or _CONDITION.search(f" {before} ") or len(after.split()) > 9:
        return None
    return f"{before} {after}".strip()


def _lacks_object(clause: Clause, words: list[str]) -> bool:
    """Whether a verb that needs an object has none before the match, so that it is probably a participle, not a past tense."""
    bare = not words or (words[0] in PHRASE_STOPS and words[0] not in ("the", "a", "an", "each", "every", "over"))
    return clause.auxiliary == "did" and clause.verb is not None and bare and clause.verb.base not in INTRANSITIVE


def _is_nominal(clause: Clause, words: list[str]) -> bool:
    """Whether "is" precedes a noun phrase to which the match may belong: "is a ferry built in 1911"."""
    if words and words[0] in ("first", "last", "later", "originally", "formerly"):
        words = words[1:]
    if clause.auxiliary not in BE or len(words) < 2 or _is_participle(words[0]) or words[:2] == ["to", "be"]:
        return False
    adjective = words[1] in PHRASE_STOPS and words[0] not in ("a", "an", "the", "one")
    return not adjective


def _is_participle(word: str) -> bool:
    return word in BY_PARTICIPLE or (word.endswith("ed") and len(word) > 4)


def _to_next_clause(text: str) -> str:
    """The text after an answer, up to the start of another answer or clause."""
    pieces = re.split(r"(,| and (?![A-Z])| or )", text)
    between = " between " in f" {pieces[0]} " and len(pieces) > 2 and pieces[1] == " and "
    return "".join(pieces[:3] if between else pieces[:1]).strip()


def _noun_phrase(text: str) -> str | None:
    """A name or a noun phrase with an article at the start of a text; None if there is neither."""
    stops = "|".join(PHRASE_STOPS)
    name = re.match(rf"{_NAME}(?P<after>(?: (?!(?:{stops})\b)[a-z]+)*)", text)
    if name is not None and re.match(r" \d", text[name.end() :]):
        return None
    if name is not None and not re.match(r"(?:the|an?) [a-z]", text):
        return name[0] if name[0].startswith("the ") or not name["after"] else None
    words = []
    for at, word in enumerate(text.split(" ")):
        if word in PHRASE_STOPS and at > 0 and word not in ("a", "an", "the"):
            break
        words.append(word.rstrip(","))
        if len(words) > 6 or word.endswith(","):
            break
    phrase = " ".join(words)
    return phrase if len(words) > 1 and _DETERMINED.fullmatch(phrase) else None


def _subject_amounts(text: str) -> Iterator[Fact]:
    """Questions that ask how much or how many, if the subject is an amount: "Up to five days may be carried over"."""
    share, some = _SHARE_OF.fullmatch(text), _SOME.fullmatch(text)
    match = share or some
    if match is None or match["rest"].split()[0] in ("not", "a", "an", "the"):
        return
    about = (match["about"] or "").lower()
    opening = "" if about in _PLAIN_NUMBER else about
    rest = f"{match['verb']} {_to_next_clause(_split_at(match['rest'], _BOUNDARY)[0])}"
    if share is not None:
        yield Fact(_question(f"{opening} what percentage of {share['of']} {rest}"), (share["answer"],), share["of"])
    elif some is not None and some["noun"] == _plural_phrase(some["noun"]):
        answers = (f"{some['answer']} {some['noun'].partition(' of ')[0]}", some["answer"])
        yield Fact(_question(f"{opening} how many {some['noun']} {rest}"), answers, some["noun"])


def _times(clause: Clause) -> Iterator[Fact]:
    match = _RANGE.search(clause.rest)
    if match is not None:
        rest = _rest_without(clause, match)
        if rest is not None and not _belongs_to_noun(clause, match):
            yield clause.fact("When", rest, match["answer"])
        return
    for match in _AT.finditer(clause.rest):
        rest = _rest_without(clause, match, further=_WHEN)
        if rest is None or _belongs_to_noun(clause, match):
            continue
        opening = _time_question(match["prep"], match["answer"])
        if match["prep"] == "since" and clause.auxiliary not in ("has", "have", "is", "are"):
            continue
        if opening:
            yield clause.fact(opening, rest, match["answer"] + (match["more"] or ""))
    for pattern, opening in ((_SOON, "Within what time"), (_OFTEN, "How often")):
        match = pattern.search(clause.rest)
        if match is not None and clause.auxiliary not in ("did", "was", "were", "had"):
            rest = _rest_without(clause, match)
            if rest is not None:
                yield clause.fact(opening, rest, match["answer"])


def _belongs_to_noun(clause: Clause, match: re.Match[str]) -> bool:
    """Whether a time belongs to the noun before it ("is a ferry built in 1911"), not to the verb."""
    before = clause.rest[: match.start()].split()
    nominal = clause.auxiliary in BE and before[:1] and before[0] in ("a", "an", "the", "one")
    return bool(nominal) or bool(before and before[-1] in ("of", "and", "or"))


def _time_question(prep: str, when: str) -> str:
    """The opening of a question for a time with its preposition; "" if there is none."""
    kind = next(kind for kind, pattern in _TIMES.items() if re.fullmatch(pattern, when))
    if prep in ("by", "before", "after", "since", "until", "from"):
        date = "what day" if prep in ("before", "after") else "when"
        return f"{prep} what {kind}" if kind in ("time", "year") else f"{prep} {date}"
    openings = {
        ("in", "year"): "In what year",
        ("in", "month"): "When" if " " in when else "In which month",
        ("on", "day"): "When",
        ("on", "ordinal"): "On which day",
        ("on", "weekday"): "On which day of the week",
        ("at", "time"): "At what time",
    }
    return openings.get((prep, kind), "")


def _amounts(clause: Clause) -> Iterator[Fact]:
    verb = clause.verb.base if clause.verb else ""
    if verb in _AMOUNT_QUESTIONS:
        match = re.match(rf"(?:(?:{_APPROXIMATE}) )?(?P<answer>{_SUM}|{_NUMBER} [a-z]+)", clause.rest)
        is_duration = match is not None and match["answer"].split()[-1] in TIME_UNITS
        rest = _rest_without(clause, match, further=_NUMBER, is_object=True) if match is not None else None
        is_complete = verb in ("weigh", "cost", "last") or not rest
        if match is not None and rest is not None and is_complete and is_duration == (verb in ("take", "last")):
            opening = _AMOUNT_QUESTIONS[verb].format(f"{clause.auxiliary} {clause.subject}")
            yield Fact(f"{opening} {rest}".strip() + "?", (match["answer"],), clause.subject)
            return
    if clause.auxiliary in BE:
        yield from _measures(clause)
    match = _RANGE_OF.fullmatch(clause.rest) if verb == "have" and not re.match(r"(?:,| and) \d", clause.then) else None
    if match is not None and not _is_participle(match["answer"].split()[-1]):
        yield clause.fact(f"What {match['what']}", _to_next_clause(match["after"]), match["answer"])
    yield from _shares(clause)
    for match in _MONEY.finditer(clause.rest):
        rest = _rest_without(clause, match, further=r"[£$€]", is_object=not match["prep"])
        before = clause.rest[: match.start()].split()
        prep, about = match["prep"] or "", match["about"] or ""
        if rest is not None and (prep or not before or before[-1] in BY_PARTICIPLE) and (clause.verb or before):
            opening = f"{prep} {'' if about in _PLAIN_NUMBER else about} how much"
            yield clause.fact(opening, rest, match["answer"])
    yield from _counts(clause)


def _shares(clause: Clause) -> Iterator[Fact]:
    """Facts from "pays 7 per cent of gross wages into the fund"."""
    for match in _PERCENT.finditer(clause.rest):
        before = clause.rest[: match.start()].strip()
        if clause.verb is not None and re.fullmatch(rf"(?:{_APPROXIMATE})?", before) and match["of"]:
            noun, _ = _split_at(match["of"], re.compile(r" (?:and|or|to|in|on|at|for|into|each|every) "))
            after = _to_next_clause(clause.rest[match.start("of") + len(noun) :])
            yield clause.fact(f"What percentage of {noun}", after, match["answer"])


def _measures(clause: Clause) -> Iterator[Fact]:
    """Facts from "is 46 metres long", "is 3 km from Tarn", "is 12 days" and "is 212"."""
    subject = clause.subject
    if match := _SIZE.fullmatch(clause.rest):
        after = _to_next_clause(match["after"])
        yield Fact(_question(f"How {match['what']} {clause.auxiliary} {subject} {after}"), (match["answer"],), subject)
    elif match := _FAR.fullmatch(clause.rest):
        yield Fact(f"How far {clause.auxiliary} {subject} {match['after']}?", (match["answer"],), subject)
    elif clause.auxiliary in ("is", "was") and (not _has_capital(subject) or "’s " in subject):
        for pattern in (_AMOUNT, _CODE):
            match = pattern.fullmatch(clause.rest)
            if match is not None and not re.match(r", (?:and |or )?\d| (?:and|or) \d", clause.then):
                after = _to_next_clause(match.groupdict().get("after") or "")
                if match["answer"].split()[-1] not in PHRASE_STOPS:
                    yield Fact(_question(f"What {clause.auxiliary} {subject} {after}"), (match["answer"],), subject)
                    return


def _counts(clause: Clause) -> Iterator[Fact]:
    for match in _COUNT.finditer(clause.rest):
        number, prep = match["answer"], match["prep"] or ""
        if re.fullmatch(r"[12]\d{3}", number):
            continue
        before = clause.rest[: match.start()].split()
        noun = _plural_phrase(clause.rest[match.end() :])
        if noun is None or (not prep and before and not (before[-1] in BY_PARTICIPLE or before[-1] in BY_BASE)):
            continue
        if not prep and before and (before[0] in ("a", "an", "the") or "and" in before):
            continue
        if not prep and not before and clause.verb is None and clause.auxiliary not in MODALS:
            continue
        following = clause.rest[match.end() + len(noun) :]
        if prep in ("in", "on", "at") and re.match(r" (?:before|after|ahead|earlier)\b", following):
            continue
        if before and before[-1] in ("of", "and", "or", "than", "about"):
            continue
        rest = _rest_without(clause, _match_at(match, match[0] + noun), is_object=not prep)
        if rest is None or (clause.auxiliary in BE and before[:1] and before[0] in ("a", "an", "the", "one")):
            continue
        about = "" if (match["about"] or "") in _PLAIN_NUMBER else match["about"]
        amount = f"{number} {noun.partition(' of ')[0]}"
        answers = (amount, number) if amount in clause.rest else (number,)
        yield clause.fact(f"{prep} {about} how many {noun}", rest, *answers)


def _match_at(start: re.Match[str], part: str) -> re.Match[str]:
    """A match of the text `part` at the start of another match."""
    match = re.compile(re.escape(part)).match(start.string, start.start())
    assert match is not None
    return match


def _plural_phrase(text: str) -> str | None:
    """The plural noun phrase at the start of a text: "days of annual leave"; None if there is none."""
    words = text.split(" ")
    end = 0
    while end < len(words) and end < 6:
        word = words[end]
        is_first_of = word == "of" and 0 < end < len(words) - 1 and "of" not in words[:end]
        if is_first_of and words[end + 1] not in ("the", "a", "an", "these"):
            end += 1
            continue
        if not re.fullmatch(r"[a-z][a-z'’-]*", word) or word in PHRASE_STOPS or word in AUXILIARIES:
            break
        if end and (word in BY_PARTICIPLE or word.endswith("ly")) and _is_countable_plural(words[end - 1]):
            break
        end += 1
    phrase = words[:end]
    while phrase and phrase[-1] == "of":
        phrase.pop()
    head = " ".join(phrase).partition(" of ")[0].split()
    if not head or head[0] in ("times", "ago") or head[-1] in ("times", "later", "ago"):
        return None
    return " ".join(phrase) if _is_countable_plural(head[-1]) else None


def _is_countable_plural(word: str) -> bool:
    return _is_plural(word) or word in PLURALS_WITHOUT_S


def _people(clause: Clause) -> Iterator[Fact]:
    yield from _agents(clause)
    subject, rest = clause.subject, clause.rest
    if clause.auxiliary in ("is", "was"):
        is_list = re.match(r" and| or|, (?:and )?[A-Z]", clause.then)
        if re.fullmatch(_NAME, rest) and _is_role(subject) and _is_person(rest) and not is_list:
            yield Fact(f"Who {clause.auxiliary} {subject}?", (rest,), subject)
        role, _ = _split_at(rest, re.compile(r" (?:and|or) "))
        if _is_person(subject) and re.match(r"the [a-z]", rest) and _is_role(role):
            yield Fact(f"Who {clause.auxiliary} {role}?", (subject,), "")
    if clause.auxiliary in BE and (match := _CALLED.fullmatch(rest)) and _ends_name(match["after"]):
        after = _to_next_clause(match["after"])
        how = "called" if match["how"] != "known as" else "known as"
        yield Fact(_question(f"What {clause.auxiliary} {subject} {how} {after}"), (match["answer"],), subject)
    if _is_person(subject) and clause.verb is not None and not re.match(r", |–", clause.then):
        yield from _doers(clause)
    yield from _receivers(clause)


def _ends_name(after: str) -> bool:
    """Whether the text after a name cannot belong to it: "known as PTEN syndrome" does not name PTEN."""
    return after == "" or after[0] in ",;:" or after.split()[0] in PHRASE_STOPS


def _receivers(clause: Clause) -> Iterator[Fact]:
    """Questions that ask to whom something is reported or sent."""
    match = _TO_WHOM.search(clause.rest)
    answer = _noun_phrase(match["answer"]) if match else None
    if match is None or answer is None or not (_is_person(answer) or _is_role(answer)):
        return
    participles = (BY_PARTICIPLE[word].base for word in clause.rest.split() if word in BY_PARTICIPLE)
    verbs = [clause.verb.base if clause.verb else "", *participles]
    rest = _rest_without(clause, _match_at(match, f"{match['prep']} {answer}"), further=rf"{_CAPITAL}|the |an? ")
    continues = match["answer"][len(answer) :].startswith(" of")
    if rest is not None and not TRANSFER_VERBS.isdisjoint(verbs) and not continues:
        yield clause.fact(f"{match['prep']} whom", rest, answer)


def _agents(clause: Clause) -> Iterator[Fact]:
    """Questions that ask for the agent of a passive: "is approved by the works manager"."""
    words = clause.rest.split(" ")
    is_modal = clause.auxiliary in MODALS and words[0] == "be"
    participle = words[1] if is_modal and len(words) > 1 else words[0]
    verb = BY_PARTICIPLE.get(participle)
    match = _BY.search(clause.rest)
    if verb is None or match is None or not (is_modal or clause.auxiliary in BE):
        return
    answer = _noun_phrase(match["answer"])
    if answer is None or not NO_AGENT.isdisjoint(answer.split()) or re.match(_WHEN, answer):
        return
    if " " in answer and _is_participle(answer.split()[-1]):  # "by a gene located on": the phrase continues
        return
    is_paid_for = participle == "paid" and " for by " in clause.rest
    if is_paid_for or re.match(r" (?:of|for|from) |,? (?:and|or) ", match["answer"][len(answer) :]):
        return
    remainder = _rest_without(clause, _match_at(match, "by " + answer), further=rf"{_CAPITAL}|the |an? ")
    if remainder is None or len(remainder.split()) > 9:
        return
    rest = " ".join(remainder.split(" ")[2 if is_modal else 1 :])
    opening = "What" if answer.casefold().split()[-1] in INANIMATE else "Who"
    form = verb.past if clause.auxiliary in ("was", "were") else verb.third
    if is_modal:
        form = f"{clause.auxiliary} {verb.base}"
    yield Fact(_question(f"{opening} {form} {clause.subject} {rest}"), (answer,), clause.subject)


def _doers(clause: Clause) -> Iterator[Fact]:
    """Questions that ask who does or did something, if the rest has 3 to 12 words: fewer would fit many people."""
    assert clause.verb is not None
    rest = re.split(r",| and (?=[a-z])", clause.rest)[0].strip()
    form = {"does": clause.verb.third, "did": clause.verb.past}.get(clause.auxiliary)
    if form is not None and 3 <= len(rest.split()) <= 12:
        yield Fact(f"Who {form} {rest}?", (clause.subject,), "")


def _places(clause: Clause) -> Iterator[Fact]:
    words = clause.rest.split(" ")
    participle = words[1] if words[0] == "be" and len(words) > 1 else words[0]
    verb = clause.verb or (BY_PARTICIPLE.get(participle) if clause.auxiliary in BE | MODALS else None)
    match = _WHERE.search(clause.rest)
    season = r"(?:the )?(?:Spring|Summer|Autumn|Fall|Winter)\b"
    if match is None or re.match(rf"{_WHEN}|{season}|{_NAME} \d", clause.rest[match.start("answer") :]):
        return
    before = clause.rest[: match.start()].split()
    answer, _ = _split_at(match["answer"], _PLACE_END)
    answer = re.split(rf" (?:on|in|and) (?={_WHEN})| and (?=[a-z]+ )| (?={_NUMBER} )", answer)[0].strip()
    is_name = re.fullmatch(_NAME, answer) is not None
    is_place = not PLACES.isdisjoint(re.findall(r"[a-z]+", answer.casefold()))
    if verb is None:
        fits = clause.auxiliary in ("is", "are") and not before and (is_place or (is_name and match["prep"] != "to"))
    elif match["prep"] == "to":
        moves = verb.base in ("move", "transfer", "relocate", "send", "return", "deliver", "take")
        fits = moves and (is_name or is_place) and not _is_person(answer)
    else:
        fits = verb.base in LOCATION_VERBS and (is_place or is_name)
    further = rf"{_CAPITAL}|the |an? |[a-z]+ing " if is_name else r"(?:in|on|at) "
    if not fits or len(answer.split()) > 9 or _is_role(answer):
        return
    rest = _rest_without(clause, _match_at(match, f"{match['prep']} {answer}"), further=further)
    if rest is None:
        return
    place = answer if match["prep"] in ("in", "at", "on", "to") else f"{match['prep']} {answer}"
    yield clause.fact("Where", rest, place)


def _is_person(name: str) -> bool:
    """Whether a name looks like a person's: two or three capitalised words, none of which is a noun for a thing or place."""
    words = name.split()
    plain = all(re.fullmatch(r"[^\W\d_a-z](?:[\w'’-]*[a-z]|\.)", word) for word in words)
    things = PLACES | THINGS
    return plain and 2 <= len(words) <= 3 and things.isdisjoint(word.casefold() for word in words) and words[0] != "The"


def _is_role(phrase: str) -> bool:
    """Whether a phrase is a role of a person: "the head of stores"."""
    head = re.split(r" (?:of|for|at|in|on|to|from|until|who) ", phrase)[0].split()[-1].casefold()
    return head in PEOPLE or head in ROLES or head.endswith(("woman", "person", "man"))


def _has_capital(text: str) -> bool:
    return any(word[:1].isupper() for word in text.split())


def _can_refer_to(possessive: str, subject: str) -> bool:
    """Whether "his", "her", "its" or "their" can refer to a subject."""
    if possessive in ("his", "her"):
        return _has_capital(subject)
    head = re.split(r" (?:of|for|at|in|on|to|from|with) ", subject)[0].split()
    is_plural = _is_plural(head[-1]) or " and " in subject or head[0] in ("everybody", "everyone", "each", "every")
    return is_plural if possessive == "their" else not is_plural


def _is_sound(question: str, fact: Fact) -> bool:
    words = question.rstrip("?").split()
    if possessive := _POSSESSIVE.search(question):
        follows = bool(fact.subject) and possessive.start() >= question.find(fact.subject)
        if not follows or not _can_refer_to(possessive[0], fact.subject):
            return False
    answer = re.search(rf"(?<!\w){re.escape(fact.answers[0])}(?!\w)", question, re.IGNORECASE)
    return (
        3 <= len(words) <= 30
        and not _UNCLEAR.search(question)
        and answer is None
        and words[-1] not in ("the", "a", "an", "and", "or", "of", "than", "is", "was", "about", "only")
        and len(fact.answers[0].split()) <= 12
    )

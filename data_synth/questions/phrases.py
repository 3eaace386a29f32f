"""Rules that parse a sentence about one entity: its relation to another named entity, as phrases and questions, and its dates and quantities.

All functions work on text alone. `{}` in a phrase is a slot for the description of an entity."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from data_synth.questions.words import BY_PARTICIPLE, BY_PAST, PEOPLE, PHRASE_STOPS, THINGS, opens_with_verb, past_of
from graph.extract.entities import MONTHS

MAX_CLAUSE_WORDS = 14
_BRACKETED = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_UNCLEAN = re.compile(
    r"[,;:\"“”()\[\]{}—–]|\w{3}\. [A-Z]| (?:that|which|who|whose|where|when|because|but|although|it|he|she|they) "
)
_ENDS_PHRASE = re.compile(
    r"\.?$|[.,;](?: |$)(?!(?:and |or )?(?:the )?[A-Z\"“])| (?:and|but|or) (?=[a-z])(?!(?:the|a|an|his|her|its|their)\b)"
    r"| (?:in|on|at|for|with|from|to|by|who|which|where|as|until|since|during|when|while|after|before|about|near) "
)
_LONGER_NAME = re.compile(r"[A-Z]\w* (?:for|of|and)(?: the)?$")
_PASSIVE = re.compile(r"(?:^|.*?\s)(?P<participle>[a-z-]+(?: and [a-z-]+)?) by(?: the)?$")
_MADE_BY = re.compile(r"(?:is|was) (?:an?|the) (?P<noun>.+?) (?P<participle>[a-z-]+(?: and [a-z-]+)?) by(?: the)?$")
_STRANDED = re.compile(r".*\b(?:of|in|at|on|to|from|for|near|after|under|into|against|beside|through|past)(?: the)?$")
_VERB_LAST = re.compile(
    r"(?<!the )(?<!\ban )(?<!\ba )(?<![\w-])(?:[a-z]+ed|wrote|won|built|made|led|married|is|was)(?: the)?$"
)
_STARRING = re.compile(r"(?:.*\b)?(?:starring|stars)$")
_APPOSED = re.compile(r"(?P<rest>.*?)\b(?:(?:the|an?) )?(?P<noun>(?:[a-z-]+ )?[a-z]+)$")
_IS_A = re.compile(
    r"\b(?:is|was|are|were) (?:an?|the|one of the) (?P<phrase>.+?)(?=[.,;(]|$| (?:of|in|by|who|that|which|from|for|on|"
    r"at|with|whose|to|near|between|about|where|situated|based|located|set|directed|written|starring|released|produced|"
    r"made|known|featuring|born|composed|recorded|performed|built|founded|run|carrying)\b)"
)


@dataclass(frozen=True)
class Kind:
    """The type of an entity: a noun ("film"), or "" if unknown; and whether the entity is a person."""

    noun: str = ""
    person: bool = False

    def describe(self, clause: str) -> str:
        """ "The person who …" or "the film that …"; "" if the type is unknown."""
        return f"the {self.noun} {'who' if self.person else 'that'} {clause}" if self.noun else ""

    @property
    def question_word(self) -> str:
        """ "Who", "Which film", "What": the opening of a question about an entity of this type."""
        return "Who" if self.person else f"Which {self.noun}" if self.noun else "What"


@dataclass(frozen=True)
class Relation:
    """The relation of a sentence's subject to another named entity, in both directions.

    `forward` describes the other entity in terms of the subject, and `forward_question` asks for that entity; `backward` and `backward_question`
    do the same for the subject in terms of the other entity. A field is "" if its phrase needs the type of an entity and that type is unknown.
    """

    forward: str
    forward_question: str
    backward: str
    backward_question: str


def kind_of(predicate: str, is_person: bool) -> Kind:
    """The type of an entity, from a predicate ("is a 1925 western film directed by …"), or else from `is_person`, the result of `is_about_person`.

    >>> kind_of("is a tributary of the Tamar", False), kind_of("was a shipwright", False).person
    (Kind(noun='tributary', person=False), True)
    """
    match = _IS_A.search(predicate)
    heads = [part.split()[-1].casefold() for part in match["phrase"].split(" and ")] if match else []
    if PEOPLE.isdisjoint(heads) and heads and heads[0] in THINGS:
        return Kind(heads[0])
    return Kind("person", True) if is_person or not PEOPLE.isdisjoint(heads) else Kind()


def is_about_person(sentences: Sequence[str], title: str) -> bool:
    """Whether a sentence opens with the subject of a document and states its birth, or the next sentence calls it "he" or "she".

    >>> is_about_person(["Ada Low sailed home.", "She was tired."], "Ada Low"), is_about_person(["Tarn sleeps.", "Here Ada was born."], "Tarn")
    (True, False)
    """
    born = re.compile(rf"{re.escape(plain_title(title))}(?: \(.*?\))? was born\b")
    for at, (sentence, following) in enumerate(pairwise([*sentences, ""])):
        is_subject = opens_with_subject(sentence, title, is_first=at == 0)
        if is_subject and not sentence.startswith("The ") and re.match(r"(?:He|She|His|Her) ", following):
            return True
        if born.match(sentence) or (is_subject and _BORN.match(sentence)):
            return True
    return False


def opens_with_subject(sentence: str, title: str, is_first: bool) -> bool:
    """Whether a sentence opens with the name in a document's title; in the first sentence of the document, the name may be longer.

    >>> opens_with_subject("Ada Low (born 1901) bakes.", "Ada Low", False), opens_with_subject("Ada Mary Low bakes.", "Ada Low", True)
    (True, True)
    """
    match = re.match(rf"{_NAMED}(?![^\W_])", sentence)
    words = match["name"].replace(",", "").split() if match else []
    titled = plain_title(title).partition(",")[0].split()
    return titled != [] and (words == titled or (is_first and "and" not in words and set(titled) <= set(words)))


def kind_by_name(name: str) -> Kind:
    """The type stated by a name: "Toledo Museum of Art" is a museum.

    >>> kind_by_name("Gumma Rural District").noun, kind_by_name("Tarn").noun
    ('district', '')
    """
    words = name.partition(" of ")[0].casefold().split()
    return Kind(words[-1]) if " " in name and words and words[-1] in THINGS else Kind()


def plain_title(title: str) -> str:
    """A title without parts in brackets, unless nothing would remain."""
    return _BRACKETED.sub("", title).strip() or title.strip()


def predicate_of(text: str, title: str, kind: Kind) -> str | None:
    """The predicate of a sentence about the document's subject, without parts in brackets; None unless the sentence opens with that subject and a verb.

    >>> predicate_of("Ada Marlow (1850–1931) was a shipwright.", "Ada Marlow", Kind())
    'was a shipwright.'
    >>> predicate_of("The Base: The film was directed by Mark Lester.", "The Base (film)", Kind("film"))
    'was directed by Mark Lester.'
    """
    name = plain_title(title)
    plain = " ".join(_BRACKETED.sub("", text).split())
    if not name:
        return None
    openings = [rf"(?:The )?[\"“]?{re.escape(name)}[\"”]?"]
    if kind.noun and not kind.person:
        openings.append(rf"{re.escape(name)}: (?:The|This) {kind.noun}")
    if kind.person and len(name.split()) > 1:
        openings.append(re.escape(name.split()[-1]))
    for opening in openings:
        match = re.match(rf"{opening} (?=[a-z])", plain)
        if match and opens_with_verb(plain[match.end() :]):
            return plain[match.end() :]
    return None


def relate(predicate: str, name: str, subject: Kind, other: Kind) -> Relation | None:
    """The relation that `predicate` states between its subject and `name`; None if it does not contain `name`, if several names share the relation,
    or if no template fits.

    >>> relate("is a silent film directed by James Cruze.", "James Cruze", Kind("film"), Kind("person", True)).forward
    'the person who directed {}'
    """
    match = re.search(rf"(?<![\w'’-])(?:the )?{re.escape(name)}(?![\w'’-])", predicate, re.IGNORECASE)
    if match is None or not _ENDS_PHRASE.match(predicate[match.end() :]):
        return None
    before = predicate[: match.start()].strip()
    if not before or _UNCLEAN.search(before) or _LONGER_NAME.search(before) or len(before.split()) > MAX_CLAUSE_WORDS:
        return None
    apposition = _apposition(before)
    if apposition is not None:
        before, other = apposition
    passive = _PASSIVE.match(before)
    past = past_of(passive["participle"]) if passive else None
    if past is not None:
        return _by_passive(before, past, subject, other)
    if _STARRING.match(before):
        return _both_directions("starred in {}", "stars {}", subject, Kind("person", True))
    if not (_STRANDED.match(before) or _VERB_LAST.search(before)) or before in ("is", "was"):
        return None
    clause = before.removesuffix(" the")
    question = f"{{}} {clause} {'whom' if other.person else f'which {other.noun}'}?"
    return Relation(
        forward=f"the {other.noun} that {{}} {clause}" if other.noun else "",
        forward_question=question if other.noun else "",
        backward=subject.describe(f"{clause} {{}}"),
        backward_question=f"{subject.question_word} {clause} {{}}?",
    )


def _by_passive(before: str, past: str, subject: Kind, other: Kind) -> Relation:
    """The relation of a predicate such as "… directed by NAME": in the active voice for the name, in the passive for the subject."""
    match = _MADE_BY.match(before)
    passive = f"was {match['participle']} by {{}}" if match else f"{before.removesuffix(' the')} {{}}"
    if match and not subject.person and subject.noun and match["noun"].split()[-1] == subject.noun:
        subject = Kind(match["noun"])
    return _both_directions(f"{past} {{}}", passive, subject, other)


def _both_directions(active: str, passive: str, subject: Kind, other: Kind) -> Relation:
    return Relation(
        forward=other.describe(active) or f"whoever {active}",
        forward_question=f"{other.question_word if other.noun else 'Who'} {active}?",
        backward=subject.describe(passive),
        backward_question=f"{subject.question_word} {passive}?",
    )


def _apposition(before: str) -> tuple[str, Kind] | None:
    """A clause such as "was married to the actress" without its last noun, which describes the following name, and the type that this noun states.

    None for any other clause.
    """
    match = _APPOSED.fullmatch(before)
    if match is None:
        return None
    head = match["noun"].split()[-1]
    if head in PEOPLE:
        return match["rest"].strip(), Kind("person", True)
    return (match["rest"].strip(), Kind(head)) if head in THINGS else None


_DAY = rf"(?:\d{{1,2}} (?:{MONTHS}),? \d{{4}}|(?:{MONTHS}) \d{{1,2}}, \d{{4}})"
_WHEN = rf"(?P<when>{_DAY}|(?:{MONTHS}) \d{{4}}|[12]\d{{3}})(?![\d–-])"
_NAMED = (
    r"^(?:[^():]{1,60}: )?"
    r"(?P<name>(?:(?:(?![a-z])[^\W\d_][^\s()]*+|of|the|and|de|la|le|du|van|von|der|di|da|bin|al|y)\s?){1,9})"
)
_BORN = re.compile(rf"{_NAMED}\((?:[^()]*\b)?born(?: on| in)? {_WHEN}")
_LIVED = re.compile(
    rf"{_NAMED}\((?P<first>{_DAY}|[12]\d{{3}})[^()–—]*? ?[–—-] ?(?:[^()\d]*?)(?P<last>{_DAY}|[12]\d{{3}})\b"
)
_VERBS = "|".join(sorted(word for word in {*BY_PAST, *BY_PARTICIPLE} if not word.endswith("ed")))
_PLACED = (
    rf"(?: (?!(?:{_VERBS}|[a-z]+ed|and|but|or|then|who|whom|whose|which|that|where|when|while|as|after|before|since|until)\b)"
    r"[^\s.,;0-9]+){1,7}?"
)
"""Up to seven words between an event and its date, such as a place, without a verb or conjunction, after which the date would belong to another event."""
_LIFE = re.compile(rf"(?:was )?(?P<event>born|died)(?:{_PLACED})?,? (?:on|in) {_WHEN}")
_EVENT = re.compile(rf"(?:was|were) (?P<event>[a-z-]+)(?:(?= (?:by|in|at|near|on) ){_PLACED})? (?:in|on) {_WHEN}")
_WORK = re.compile(
    r"is an? (?:[a-z]+ )?(?P<when>[12]\d{3}) (?:[^,;.()]*? )?"
    r"(?P<noun>film|song|album|novel|book|single|play|drama|comedy)\b"
)
_UNIT = (
    rf"(?:(?:square|cubic|nautical|thousand|million|billion) )?(?!(?:{'|'.join(sorted(PHRASE_STOPS))}|according|[a-z]+ed|[a-z]+ing)\b)"
    r"[a-zA-Z]+[23²³]?(?![\w²³])"
)
_MEASURE = re.compile(
    r"(?:(?:has|had|covers|covered|occupies|occupied|reaches|(?:is|was|lies|lay|sits|stands|stood)(?: located| situated)? at|(?:rises|rose) to)|"
    r"(?:is|was) (?:an?|the) (?:(?!(?:an?|with|that|which|who|whose|where)\b)[^\s,;:]+ )+?with) an? (?:(?:total|maximum|average|surface|seating) )?"
    r"(?P<what>population|length|height|area|elevation|altitude|depth|width|capacity|weight) of"
    rf"(?: (?:about|around|approximately|some))? (?P<value>(?>\d[\d,.]*\d|\d))(?! ?\d)(?P<unit> ?{_UNIT})?(?!\w)"
)
"""A measure of the subject itself: directly after the verb, or after "is a village in Tarn with"."""
_SIZE = re.compile(
    r"is (?:about |some )?(?P<value>\d[\d,.]*)(?P<unit> ?[a-zA-Z]+) (?P<what>long|high|tall|wide|deep)\b"
)
_RANGE = re.compile(r" ?(?:[–—-]|to|or) ?\d")
"""The rest of a range, after its first number."""
_AMOUNT = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|0\.\d+|\d+(?:\.(?!\d{3}$)\d+)?")
_LARGER = {"long": "longer", "high": "higher", "tall": "taller", "wide": "wider", "deep": "deeper"}
_NO_EVENTS = frozenset(["born", "named", "called", "known"])
_MONTH_NUMBERS = {month: number for number, month in enumerate(MONTHS.split("|"), start=1)}


@dataclass(frozen=True)
class Value:
    """A date or quantity of one entity.

    `question` asks for it, with "{}" for the entity. Two values of one `attribute` are compared by `order`:
    `smaller` and `larger` ask which of two entities has the smaller or the larger value.
    """

    text: str
    order: float
    attribute: str
    question: str
    smaller: str
    larger: str


def values_of(text: str, predicate: str | None, kind: Kind, is_named: bool) -> Iterator[Value]:
    """The dates and quantities of a document's subject that a sentence states.

    `text` is the whole sentence, including brackets, `predicate` its `predicate_of`, and `is_named` the result of `opens_with_subject`.
    A person's dates are read only from brackets after the subject's name, or from a predicate that begins with "was born", "born" or "died".

    >>> [value.text for value in values_of("Ada (4 May 1850 – 1931) was a baker.", "was a baker.", Kind("person", True), True)]
    ['4 May 1850', '1931']
    >>> list(values_of("Ada was born in Tarn and died in 1931.", "was born in Tarn and died in 1931.", Kind("person", True), True))
    []
    """
    if kind.person:
        yield from _life(re.sub(r"\(\s+", "(", " ".join(text.split())) if is_named else "", predicate or "")
    elif predicate is not None:
        if work := _WORK.match(predicate):
            yield _date(work["when"], "came out", "did {} come out", f"Which {kind.noun or 'one'} came out")
        event = _EVENT.match(predicate)
        if event and past_of(event["event"]) and event["event"] not in _NO_EVENTS:
            name = event["event"]
            yield _date(event["when"], f"was {name}", f"was {{}} {name}", f"Which was {name}")
    yield from _measures(predicate or "")


def _life(text: str, predicate: str) -> Iterator[Value]:
    dates: dict[str, str] = {}
    if match := _BORN.match(text):
        dates["born"] = match["when"]
    elif match := _LIVED.match(text):
        dates |= {"born": match["first"], "died": match["last"]}
    elif match := _LIFE.match(predicate):
        dates[match["event"]] = match["when"]
    if "born" in dates:
        yield _date(dates["born"], "born", "was {} born", "Who was born")
    if "died" in dates:
        yield _date(dates["died"], "died", "did {} die", "Who died")


def _date(when: str, attribute: str, question: str, comparison: str) -> Value:
    opening = "In what year" if when.isdigit() else "When"
    return Value(
        when,
        day_number(when),
        attribute,
        f"{opening} {question}?",
        f"{comparison} first, {{}} or {{}}?",
        f"{comparison} later, {{}} or {{}}?",
    )


def _measures(predicate: str) -> Iterator[Value]:
    if measure := _MEASURE.match(predicate):
        what = measure["what"]
        comparisons = f"Which has the smaller {what}", f"Which has the larger {what}"
        yield from _size(measure, f"What is the {what} of {{}}?", *comparisons)
    if size := _SIZE.match(predicate):
        what = size["what"]
        yield from _size(size, f"How {what} is {{}}?", f"Which is less {what}", f"Which is {_LARGER[what]}")


def _size(match: re.Match[str], question: str, smaller: str, larger: str) -> Iterator[Value]:
    number, unit = match["value"].rstrip(".,"), match["unit"] or ""
    amount = amount_of(number)
    if amount is not None and not _RANGE.match(match.string, match.end()):
        attribute = f"{match['what']} {unit.strip()}"
        yield Value(
            f"{number}{unit}", amount, attribute, question, f"{smaller}, {{}} or {{}}?", f"{larger}, {{}} or {{}}?"
        )


def amount_of(number: str) -> float | None:
    """The value of a written number; None if full stops may separate thousands, or if it is not a number.

    >>> amount_of("1,404.5"), amount_of("0.125"), amount_of("1.234"), amount_of("1.234.567"), amount_of("1,40.4")
    (1404.5, 0.125, None, None, None)
    """
    return float(number.replace(",", "")) if _AMOUNT.fullmatch(number) else None


def day_number(when: str) -> float:
    """A number that increases with the date: year, then month and day if given.

    >>> day_number("4 May 1931") > day_number("3 May 1931") > day_number("1931")
    True
    """
    words = re.findall(r"\w+", when)
    year = next(int(word) for word in words if len(word) == 4 and word.isdigit())
    month = next((_MONTH_NUMBERS[word] for word in words if word in _MONTH_NUMBERS), 0)
    day = next((int(word) for word in words if word.isdigit() and len(word) < 4), 0)
    return year + month / 100 + day / 10_000

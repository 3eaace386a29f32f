"""One sentence about one thing, read by rules: what it says of the thing, how another name in it can be asked for, its dates and quantities.

Everything here is text to text. `{}` in a phrase stands for the description of what it is about."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from data_synth.questions.words import PEOPLE, THINGS, opens_with_verb, past_of
from graph.extract.entities import MONTHS

MAX_CLAUSE_WORDS = 14
_BRACKETED = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_UNCLEAN = re.compile(r"[,;:\"“”()\[\]—–]| (?:that|which|who|whose|where|when|because|but|although|it|he|she|they) ")
_ENDS_PHRASE = re.compile(
    r"\.?$|[.,;](?: |$)(?!(?:and |or )?(?:the )?[A-Z\"“])| (?:and|but|or) (?=[a-z])(?!(?:the|a|an|his|her|its|their)\b)"
    r"| (?:in|on|at|for|with|from|to|by|who|which|where|as|until|since|during|when|while|after|before|about|near) "
)
_LONGER_NAME = re.compile(r"[A-Z]\w* (?:for|of|and)(?: the)?$")
_PASSIVE = re.compile(r"(?:^|.*?\s)(?P<done>[a-z-]+(?: and [a-z-]+)?) by(?: the)?$")
_MADE_BY = re.compile(r"(?:is|was) (?:an?|the) (?P<what>.+?) (?P<done>[a-z-]+(?: and [a-z-]+)?) by(?: the)?$")
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
    """What a thing is called: a noun ("film"), or "" where nothing says so; and whether it is a person."""

    noun: str = ""
    person: bool = False

    def described(self, clause: str) -> str:
        """ "The person who …" or "the film that …"; "" where nothing says what kind of thing it is."""
        return f"the {self.noun} {'who' if self.person else 'that'} {clause}" if self.noun else ""

    @property
    def asked(self) -> str:
        """ "Who", "Which film", "What": what a question for such a thing opens with."""
        return "Who" if self.person else f"Which {self.noun}" if self.noun else "What"


@dataclass(frozen=True)
class Relation:
    """What a sentence says of its subject and another name, told both ways.

    `ahead` describes the name by the subject, `ahead_asked` asks for it; `back` and `back_asked` do the same of the
    subject by the name. "" where nothing says what kind of thing it is and the phrase would not read well without.
    """

    ahead: str
    ahead_asked: str
    back: str
    back_asked: str


def kind_of(predicate: str, text: str) -> Kind:
    """What a thing is, from its first predicate ("is a 1925 western film directed by …") and all that is said of it.

    >>> kind_of("is a tributary of the Tamar", ""), kind_of("was a shipwright", "She was born in Tarn.").person
    (Kind(noun='tributary', person=False), True)
    """
    found = _IS_A.search(predicate)
    heads = [part.split()[-1].casefold() for part in found["phrase"].split(" and ")] if found else []
    if PEOPLE.isdisjoint(heads) and heads and heads[0] in THINGS:
        return Kind(heads[0])
    known = not PEOPLE.isdisjoint(heads) or re.search(r"\b(?:[Hh]e|[Ss]he|born)\b", text)
    return Kind("person", True) if known else Kind()


def kind_by_name(name: str) -> Kind:
    """What a name says itself that it is: "Toledo Museum of Art" is a museum.

    >>> kind_by_name("Gumma Rural District").noun, kind_by_name("Tarn").noun
    ('district', '')
    """
    head = name.partition(" of ")[0].split()[-1].casefold()
    return Kind(head) if " " in name and head in THINGS else Kind()


def plain_title(title: str) -> str:
    """A title without what stands in brackets, unless that is all of it."""
    return _BRACKETED.sub("", title).strip() or title.strip()


def predicate_of(text: str, title: str, kind: Kind) -> str | None:
    """What a sentence says of the document's subject, brackets left out; None unless it opens with that subject.

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
        found = re.match(rf"{opening} (?=[a-z])", plain)
        if found and opens_with_verb(plain[found.end() :]):
            return plain[found.end() :]
    return None


def relate(predicate: str, name: str, subject: Kind, other: Kind) -> Relation | None:
    """How `predicate` ties its subject to `name`; None where it names several alike, or where no template reads well.

    >>> relate("is a silent film directed by James Cruze.", "James Cruze", Kind("film"), Kind("person", True)).ahead
    'the person who directed {}'
    """
    found = re.search(rf"(?<![\w'’-])(?:the )?{re.escape(name)}(?![\w'’-])", predicate, re.IGNORECASE)
    if found is None or not _ENDS_PHRASE.match(predicate[found.end() :]):
        return None
    before = predicate[: found.start()].strip()
    if not before or _UNCLEAN.search(before) or _LONGER_NAME.search(before) or len(before.split()) > MAX_CLAUSE_WORDS:
        return None
    apposed = _apposed(before)
    if apposed is not None:
        before, other = apposed
    done = _PASSIVE.match(before)
    past = past_of(done["done"]) if done else None
    if past is not None:
        return _by_passive(before, past, subject, other)
    if _STARRING.match(before):
        return _both_directions("starred in {}", "stars {}", subject, Kind("person", True))
    if not (_STRANDED.match(before) or _VERB_LAST.search(before)) or before in ("is", "was"):
        return None
    clause = before.removesuffix(" the")
    asked = f"{{}} {clause} {'whom' if other.person else f'which {other.noun}'}?"
    return Relation(
        ahead=f"the {other.noun} that {{}} {clause}" if other.noun else "",
        ahead_asked=asked if other.noun else "",
        back=subject.described(f"{clause} {{}}"),
        back_asked=f"{subject.asked} {clause} {{}}?",
    )


def _by_passive(before: str, past: str, subject: Kind, other: Kind) -> Relation:
    """Relations of "… directed by NAME": told actively of the name, passively of the subject."""
    made = _MADE_BY.match(before)
    doing = f"was {made['done']} by {{}}" if made else f"{before.removesuffix(' the')} {{}}"
    if made and not subject.person and subject.noun and made["what"].split()[-1] == subject.noun:
        subject = Kind(made["what"])
    return _both_directions(f"{past} {{}}", doing, subject, other)


def _both_directions(active: str, passive: str, subject: Kind, other: Kind) -> Relation:
    return Relation(
        ahead=other.described(active) or f"whoever {active}",
        ahead_asked=f"{other.asked if other.noun else 'Who'} {active}?",
        back=subject.described(passive),
        back_asked=f"{subject.asked} {passive}?",
    )


def _apposed(before: str) -> tuple[str, Kind] | None:
    """What is left of "was married to the actress" without the noun that tells what follows, and that noun's kind."""
    found = _APPOSED.fullmatch(before)
    if found is None:
        return None
    head = found["noun"].split()[-1]
    if head in PEOPLE:
        return found["rest"].strip(), Kind("person", True)
    return (found["rest"].strip(), Kind(head)) if head in THINGS else None


_DAY = rf"(?:\d{{1,2}} (?:{MONTHS}),? \d{{4}}|(?:{MONTHS}) \d{{1,2}}, \d{{4}})"
_WHEN = rf"(?P<when>{_DAY}|(?:{MONTHS}) \d{{4}}|[12]\d{{3}})(?![\d–-])"
_NAMED = (
    r"^(?:[^():]{1,60}: )?(?:(?:(?![a-z])[^\W\d_][^\s()]*|of|the|and|de|la|le|du|van|von|der|di|da|bin|al|y)\s?){1,9}"
)
_BORN = re.compile(rf"{_NAMED}\((?:[^()]*\b)?born(?: on| in)? {_WHEN}")
_LIVED = re.compile(
    rf"{_NAMED}\((?P<first>{_DAY}|[12]\d{{3}})[^()–—]*? ?[–—-] ?(?:[^()\d]*?)(?P<last>{_DAY}|[12]\d{{3}})\b"
)
_LIFE = re.compile(rf"(?:was )?(?P<event>born|died)(?: [^,;0-9]{{1,40}}?)?,? (?:on|in) {_WHEN}")
_DONE = re.compile(rf"(?:was|were) (?P<event>[a-z-]+)(?: (?:by|in|at|near|on) [^,;0-9]{{1,40}}?)? (?:in|on) {_WHEN}")
_WORK = re.compile(
    r"is an? (?:[a-z]+ )?(?P<when>[12]\d{3}) (?:[^,;.()]*? )?"
    r"(?P<noun>film|song|album|novel|book|single|play|drama|comedy)\b"
)
_MEASURE = re.compile(
    r"\b(?P<what>population|length|height|area|elevation|altitude|depth|width|capacity|weight)(?: of| was| is| reaches)"
    r"(?: (?:about|around|approximately|some))? (?P<value>\d[\d,.]*\d|\d)"
    r"(?P<unit>\s(?:(?:square|cubic|nautical) )?(?!in\b|at\b|and\b|as\b|by\b)[a-zA-Z²³]+)?"
)
_SIZE = re.compile(
    r"\bis (?:about |some )?(?P<value>\d[\d,.]*) ?(?P<unit>[a-zA-Z]+) (?P<what>long|high|tall|wide|deep)\b"
)
_LARGER = {"long": "longer", "high": "higher", "tall": "taller", "wide": "wider", "deep": "deeper"}
_NOT_FOUNDED = frozenset(["born", "named", "called", "known"])
_MONTH_NUMBERS = {month: number for number, month in enumerate(MONTHS.split("|"), start=1)}


@dataclass(frozen=True)
class Value:
    """A date or quantity of one thing.

    `asked` asks for it, "{}" standing for the thing. Two values of one `attribute` compare by `order`:
    `smaller` and `larger` ask which of two things has the smaller or the larger one.
    """

    text: str
    order: float
    attribute: str
    asked: str
    smaller: str
    larger: str


def values_of(text: str, predicate: str | None, kind: Kind) -> Iterator[Value]:
    """What a sentence about a thing says in dates and quantities; `text` is the whole sentence, brackets and all.

    >>> [value.text for value in values_of("Ada (4 May 1850 – 1931) was a shipwright.", None, Kind("person", True))]
    ['4 May 1850', '1931']
    """
    text = re.sub(r"\(\s+", "(", " ".join(text.split()))
    if kind.person:
        yield from _life(text, predicate or "")
    elif predicate is not None:
        if work := _WORK.match(predicate):
            yield _date(work["when"], "came out", "did {} come out", f"Which {kind.noun or 'one'} came out")
        if (done := _DONE.match(predicate)) and past_of(done["event"]) and done["event"] not in _NOT_FOUNDED:
            yield _date(done["when"], f"was {done['event']}", f"was {{}} {done['event']}", f"Which was {done['event']}")
    yield from _measures(text)


def _life(text: str, predicate: str) -> Iterator[Value]:
    dates: dict[str, str] = {}
    if found := _BORN.match(text):
        dates["born"] = found["when"]
    elif lived := _LIVED.match(text):
        dates |= {"born": lived["first"], "died": lived["last"]}
    elif told := _LIFE.match(predicate):
        dates[told["event"]] = told["when"]
    if "born" in dates:
        yield _date(dates["born"], "born", "was {} born", "Who was born")
    if "died" in dates:
        yield _date(dates["died"], "died", "did {} die", "Who died")


def _date(when: str, attribute: str, asked: str, compared: str) -> Value:
    opening = "In what year" if when.isdigit() else "When"
    return Value(
        when,
        day_number(when),
        attribute,
        f"{opening} {asked}?",
        f"{compared} first, {{}} or {{}}?",
        f"{compared} later, {{}} or {{}}?",
    )


def _measures(text: str) -> Iterator[Value]:
    measured = list(_MEASURE.finditer(text))
    if len(measured) == 1:
        what, unit = measured[0]["what"], (measured[0]["unit"] or "").strip()
        number, about = measured[0]["value"], f"the {measured[0]['what']} of"
        yield _size(
            number,
            unit,
            what,
            f"What is {about} {{}}?",
            f"Which has the smaller {what}",
            f"Which has the larger {what}",
        )
    sized = _SIZE.search(text)
    if sized is not None:
        what = sized["what"]
        yield _size(
            sized["value"],
            sized["unit"],
            what,
            f"How {what} is {{}}?",
            f"Which is less {what}",
            f"Which is {_LARGER[what]}",
        )


def _size(number: str, unit: str, what: str, asked: str, smaller: str, larger: str) -> Value:
    number = number.rstrip(".,")
    text = f"{number} {unit}".strip()
    return Value(
        text,
        float(number.replace(",", "")),
        f"{what} {unit}",
        asked,
        f"{smaller}, {{}} or {{}}?",
        f"{larger}, {{}} or {{}}?",
    )


def day_number(when: str) -> float:
    """A number that grows with time: year, then month and day as far as given.

    >>> day_number("4 May 1931") > day_number("3 May 1931") > day_number("1931")
    True
    """
    words = re.findall(r"\w+", when)
    year = next(int(word) for word in words if len(word) == 4 and word.isdigit())
    month = next((_MONTH_NUMBERS[word] for word in words if word in _MONTH_NUMBERS), 0)
    day = next((int(word) for word in words if word.isdigit() and len(word) < 4), 0)
    return year + month / 100 + day / 10_000

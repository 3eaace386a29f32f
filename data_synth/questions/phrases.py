"""Rules that parse a sentence about one entity: its relation to another named entity, as phrases and questions, and its dates and quantities.

All functions work on text alone. `{}` in a phrase is a slot for the description of an entity."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from data_synth.questions.words import PEOPLE, THINGS, opens_with_verb, past_of
from graph.extract.entities import MONTHS

MAX_CLAUSE_WORDS = 14
_BRACKETED = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_UNCLEAN = re.compile(r"[,;:\"“”()\[\]{}—–]| (?:that|which|who|whose|where|when|because|but|although|it|he|she|they) ")
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


def kind_of(predicate: str, text: str) -> Kind:
    """The type of an entity, from its first predicate ("is a 1925 western film directed by …") and the whole text about it.

    >>> kind_of("is a tributary of the Tamar", ""), kind_of("was a shipwright", "She was born in Tarn.").person
    (Kind(noun='tributary', person=False), True)
    """
    match = _IS_A.search(predicate)
    heads = [part.split()[-1].casefold() for part in match["phrase"].split(" and ")] if match else []
    if PEOPLE.isdisjoint(heads) and heads and heads[0] in THINGS:
        return Kind(heads[0])
    is_person = not PEOPLE.isdisjoint(heads) or re.search(r"\b(?:[Hh]e|[Ss]he|born)\b", text)
    return Kind("person", True) if is_person else Kind()


def kind_by_name(name: str) -> Kind:
    """The type stated by a name: "Toledo Museum of Art" is a museum.

    >>> kind_by_name("Gumma Rural District").noun, kind_by_name("Tarn").noun
    ('district', '')
    """
    head = name.partition(" of ")[0].split()[-1].casefold()
    return Kind(head) if " " in name and head in THINGS else Kind()


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
    r"^(?:[^():]{1,60}: )?(?:(?:(?![a-z])[^\W\d_][^\s()]*|of|the|and|de|la|le|du|van|von|der|di|da|bin|al|y)\s?){1,9}"
)
_BORN = re.compile(rf"{_NAMED}\((?:[^()]*\b)?born(?: on| in)? {_WHEN}")
_LIVED = re.compile(
    rf"{_NAMED}\((?P<first>{_DAY}|[12]\d{{3}})[^()–—]*? ?[–—-] ?(?:[^()\d]*?)(?P<last>{_DAY}|[12]\d{{3}})\b"
)
_LIFE = re.compile(rf"(?:was )?(?P<event>born|died)(?: (?:(?!born|died)[^,;0-9]){{1,40}}?)?,? (?:on|in) {_WHEN}")
_EVENT = re.compile(rf"(?:was|were) (?P<event>[a-z-]+)(?: (?:by|in|at|near|on) [^,;0-9]{{1,40}}?)? (?:in|on) {_WHEN}")
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
_AMOUNT = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|0\.\d+|\d+(?:\.(?!\d{3}$)\d+)?")
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


def values_of(text: str, predicate: str | None, kind: Kind) -> Iterator[Value]:
    """The dates and quantities that a sentence states about an entity; `text` is the whole sentence, including brackets.

    A person's dates are read only from brackets, or from a predicate that begins with "was born", "born" or "died".

    >>> [value.text for value in values_of("Ada (4 May 1850 – 1931) was a shipwright.", None, Kind("person", True))]
    ['4 May 1850', '1931']
    >>> list(values_of("Ada was born in Tarn and died in 1931.", "was born in Tarn and died in 1931.", Kind("person", True)))
    []
    """
    text = re.sub(r"\(\s+", "(", " ".join(text.split()))
    if kind.person:
        yield from _life(text, predicate or "")
    elif predicate is not None:
        if work := _WORK.match(predicate):
            yield _date(work["when"], "came out", "did {} come out", f"Which {kind.noun or 'one'} came out")
        event = _EVENT.match(predicate)
        if event and past_of(event["event"]) and event["event"] not in _NO_EVENTS:
            name = event["event"]
            yield _date(event["when"], f"was {name}", f"was {{}} {name}", f"Which was {name}")
    yield from _measures(text)


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


def _measures(text: str) -> Iterator[Value]:
    measures = list(_MEASURE.finditer(text))
    if len(measures) == 1:
        what = measures[0]["what"]
        comparisons = f"Which has the smaller {what}", f"Which has the larger {what}"
        yield from _size(measures[0], f"What is the {what} of {{}}?", *comparisons)
    if size := _SIZE.search(text):
        what = size["what"]
        yield from _size(size, f"How {what} is {{}}?", f"Which is less {what}", f"Which is {_LARGER[what]}")


def _size(match: re.Match[str], question: str, smaller: str, larger: str) -> Iterator[Value]:
    number, unit = match["value"].rstrip(".,"), (match["unit"] or "").strip()
    amount = amount_of(number)
    if amount is not None:
        text, attribute = f"{number} {unit}".strip(), f"{match['what']} {unit}"
        yield Value(text, amount, attribute, question, f"{smaller}, {{}} or {{}}?", f"{larger}, {{}} or {{}}?")


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

"""Dates and quantities that a sentence gives of its subject, and the questions that ask for them or compare two."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from data_synth.questions.phrases import Kind
from data_synth.questions.words import past_of
from graph.extract.entities import MONTHS

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

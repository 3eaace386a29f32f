"""Entities in a sentence by rules (capitalised runs, quoted titles, dates, quantities), and the spellings of one person's name.

`find_entities` uses no corpus statistics: the same sentence in the same document gives the same entities. In scripts without case,
graph/extract/terms.py finds the rest. A short name that fits several people is not matched to any of them."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from graph.text.word_forms import MARKS, UNSPACED, WORD_PART, composed, is_caseless

_WORD = re.compile(rf"[^\W_]+(?:[{MARKS}]+[^\W_]*|['’.&/-][^\W_]+)*")
_WORD_AMONG_UNSPACED = re.compile(rf"{WORD_PART}(?:['’.&/-]{WORD_PART})*")
_CONNECTING_WORDS = re.compile(
    r" (?:(?:of|de|la|le|du|des|del|della|di|da|van|von|der|ten|ter|el|al|bin|ibn)(?: (?:the|la|los|las|der|den))? )?"
)
_ABBREVIATED = frozenset(
    ["dr", "mr", "mrs", "ms", "st", "jr", "sr", "prof", "capt", "col", "gen", "lt", "rev", "hon", "no", "mt", "ft"]
)
_GRAMMATICAL = """
a about above according additionally after afterwards again all also although among an and another any anything are
around as at away because before behind being below besides between both but by can could currently despite did do
does during each earlier eight either else even eventually every everyone everything few finally first five for
formerly four from further furthermore had has have he hence her here hers herself him himself his how however i if
in indeed initially instead into is it its itself just last later many may me meanwhile might moreover most much
must my near neither nevertheless next nine no none nor not notably nothing now of off often on once one only or
originally other others otherwise our out over overall own part perhaps please previously rather recently same
second seven several she should similarly since six so some someone something sometimes soon still subsequently such
ten than that the their theirs them themselves then there thereafter therefore these they third this those though
three through throughout thus to today together too toward towards two under unless unlike until up upon us very was
we were what when where whereas whether which while who whom whose why will with within without would yes yet you
your
"""
_FUNCTION_WORDS = frozenset(_GRAMMATICAL.split())
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}} (?:{MONTHS})(?: \d{{4}})?|(?:{MONTHS}) \d{{1,2}}(?:, \d{{4}})?|(?:{MONTHS}) \d{{4}})\b"
    r"|\d{4}[年년] ?\d{1,2}[月월](?: ?\d{1,2}[日일])?|\d{1,2}[月월] ?\d{1,2}[日일]"
)
_QUANTITY = re.compile(
    rf"(?<![^\W{UNSPACED}])(?<!\.)(?<![\d.,],)[-−]?(?:(?<!\w-)\d{{1,3}}(?:\s\d{{3}}){{1,4}}(?!\d)|\d)[\d,.]*\s?"
    r"(?:%|°C|°F|(?:percent|per cent|km|m|cm|mm|mi|miles|feet|ft|kg|g|mg|µg|"
    r"tonnes|tons|litres|liters|ml|hectares|acres|kW|MW|GW|Hz|knots|hours|minutes|days|weeks|years|million|billion|"
    rf"كيلومتر|متر|किलोमीटर|मीटर|קילומטר|מטר)(?![^\W{UNSPACED}])|"
    r"キロメートル|センチメートル|メートル|キログラム|トン|ヘクタール|公里|千米|厘米|毫米|米|公斤|千克|吨|公顷|킬로미터|미터|톤)"
)
"""A number and its unit. Spaces may separate thousands; a number inside another ("1,2,3") is not tried, so that a list of them takes linear time."""
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,60})[\"”]")
_IN_CORNERS = re.compile(r"(?<=[「『《〈])[^「」『』《》〈〉。！？]{2,30}(?=[」』》〉])")
_WORDLIKE = re.compile(f"[{UNSPACED}가-힣]")
_POSSESSIVE = re.compile(r"['’]s?$")
BRACKETS = re.compile(r"\s*(?:\([^()]*\)|（[^（）]*）)")


def find_entities(sentence: str, known: Collection[str] = ()) -> tuple[str, ...]:
    """Entities as written, in order of first appearance, without repetition.

    `known` are keys (`entity_key`) of the document's entities: these count even as a single word that begins the sentence.

    >>> find_entities("In 1911 the ferry Lantern of Port Ellery carried J. Brandt over 12 km.")
    ('Lantern of Port Ellery', 'J. Brandt', '12 km')
    """
    sentence = composed(sentence)
    dates = [match.span() for match in _DATE.finditer(sentence)]
    spans = dates + [match.span(1) for match in _QUOTED.finditer(sentence)]
    for pattern in (_QUANTITY, _IN_CORNERS):
        spans += [match.span() for match in pattern.finditer(sentence)]
    caseless = is_caseless(sentence)
    for start, end in _capitalised_runs(sentence, _WORD_AMONG_UNSPACED if caseless else _WORD):
        if any(start < date_end and date_start < end for date_start, date_end in dates):
            continue
        first_word = not any(character.isalnum() for character in sentence[:start])
        run = sentence[start:end]
        lone = first_word and " " not in run and not run.isupper()
        if caseless or not lone or entity_key(run) in known:
            spans.append((start, end))
    spellings = (_POSSESSIVE.sub("", sentence[start:end].strip(" ,.")) for start, end in sorted(spans))
    return distinct_entities(spellings)


def distinct_entities(spellings: Iterable[str]) -> tuple[str, ...]:
    """The first spelling of each entity (by `entity_key`), in order; a key of one character is not an entity."""
    first: dict[str, str] = {}
    for spelling in spellings:
        first.setdefault(entity_key(spelling), spelling)
    return tuple(spelling for key, spelling in first.items() if len(key) > 1)


def entity_key(spelling: str) -> str:
    """The key that all spellings of an entity share: without case, a leading "the", a final possessive, bracketed qualifiers and extra spaces.

    >>> entity_key("The Lantern (ferry)") == entity_key("lantern")
    True
    """
    spelling = composed(spelling)
    plain = BRACKETS.sub("", spelling) or spelling
    words = _POSSESSIVE.sub("", plain.casefold()).replace("’", "'").split()
    if len(words) > 1 and words[0] == "the":
        words = words[1:]
    return " ".join(words).strip(" .,;:'\"「」『』《》〈〉")


def title_keys(title: str) -> tuple[str, ...]:
    """Keys by which a text may name a document: its title, and the part before a comma ("Quill, Port Ellery").

    Two letters are too short for a key, except in scripts in which two characters form words.

    >>> title_keys("West Quill, Port Ellery"), title_keys("Lantern (ferry)"), title_keys("IT"), title_keys("东京")
    (('west quill, port ellery', 'west quill'), ('lantern',), (), ('东京',))
    """
    key = entity_key(title)
    short = key.partition(",")[0].strip()
    return tuple(form for form in dict.fromkeys((key, short)) if len(form) > (1 if _WORDLIKE.match(form) else 2))


def _capitalised_runs(sentence: str, words: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Spans of consecutive capitalised words, including connecting words ("of", "de la") and numbers ("Apollo 11")."""
    run: tuple[int, int] | None = None
    for match in words.finditer(sentence):
        word = match[0]
        joins = run is not None and _joins(sentence[: run[1]], sentence[run[1] : match.start()])
        capital = word[0].isupper() and (joins or word.casefold() not in _FUNCTION_WORDS)
        numeral = joins and word.isdigit() and len(word) <= 4
        if not (capital or numeral):
            continue
        if run is not None and joins:
            run = (run[0], match.end())
        else:
            if run is not None:
                yield run
            run = match.span()
    if run is not None:
        yield run


def _joins(before: str, gap: str) -> bool:
    """Whether a capitalised word at the end of `before` and another after `gap` belong to one entity."""
    if gap == ". ":
        last = before.rsplit(None, 1)[-1].rsplit(".", 1)[-1]
        return len(last) == 1 or last.casefold() in _ABBREVIATED
    return _CONNECTING_WORDS.fullmatch(gap) is not None


MAX_GIVEN_NAMES = 3
_INITIAL = re.compile(r"[^\W\d_]\.")
_NAME_WORD = re.compile(r"[^\W\d_]['-]?[^\W\d_]+(?:['-][^\W\d_]+)*")
_FORM_OF_ADDRESS = re.compile(r"(?:(?:dr|prof|mr|mrs|ms|rev|hon|capt|col|gen|lt)\.?|sir|dame) ")
_PLACES_AND_PEOPLES = """
and at battle big cape church college for fort grand great house in kingdom la lake las le little los lower mount
national new north of old on port republic river royal saint san santa south st the to treaty united university
upper west east
"""
_NOT_IN_PERSON_NAMES = frozenset(_PLACES_AND_PEOPLES.split())
"""Words in names of places, peoples and titles: a name with one of them is not a person's ("New York" is not a person called York)."""
_MONTHS = frozenset(MONTHS.casefold().split("|"))

Person = tuple[str, ...]
"""Given names or initials, then the surname."""


def full_names(keys: Sequence[str]) -> list[tuple[int, int]]:
    """(row, row of the full name), by row, for every key that consists of initials and a surname and fits exactly one full name.

    >>> full_names(["j. smith", "john smith", "j. r. smith", "ann smith"])
    [(0, 1)]
    """
    people = [(row, person) for row, key in enumerate(keys) if (person := _person(key))]
    full: dict[tuple[str, str], dict[Person, int]] = defaultdict(dict)
    for row, person in people:
        if not _INITIAL.fullmatch(person[0]):
            same_initial = full[person[-1], person[0][0]]
            if person not in same_initial or " ".join(person) == keys[row]:
                same_initial[person] = row
    pairs = []
    for row, person in people:
        if _is_short(person):
            fitting = [other for name, other in full[person[-1], person[0][0]].items() if _fits(person, name)]
            pairs += [(row, fitting[0])] if len(fitting) == 1 else []
    return pairs


def surname_of_initials(key: str) -> str:
    """The surname in a key that consists of initials and a surname; "" for any other key.

    >>> surname_of_initials("j. r. smith"), surname_of_initials("john smith")
    ('smith', '')
    """
    person = _person(key)
    return person[-1] if person and _is_short(person) else ""


def people_by_surname(names: Iterable[str]) -> dict[str, str]:
    """The full name for each surname (`entity_key`) that only one of a document's people has.

    >>> people_by_surname(["Ada Marlow", "A. Marlow", "Jonas Reed", "L. Reed", "New York", "Great Orrin"])
    {'marlow': 'Ada Marlow'}
    """
    spelling: dict[Person, str] = {}
    by_surname: dict[str, set[Person]] = defaultdict(set)
    for name in filter(may_be_person, names):
        person = _person(entity_key(name))
        by_surname[person[-1]].add(person)
        spelling.setdefault(person, name)
    name_of = {}
    for surname, people in by_surname.items():
        full = [person for person in people if not _INITIAL.fullmatch(person[0])]
        if len(full) == 1 and surname not in _MONTHS and all(_fits(person, full[0]) for person in people - {*full}):
            name_of[surname] = spelling[full[0]]
    return name_of


def may_be_person(name: str) -> bool:
    """Whether a name may be a person's: two to four capitalised words or initials, none typical of places or peoples.

    >>> may_be_person("Ada Marlow"), may_be_person("New York"), may_be_person("Staff Handbook"), may_be_person("Lantern")
    (True, False, True, False)
    """
    return bool(_person(entity_key(name))) and all(word[0].isupper() for word in name.split())


def _person(key: str) -> Person:
    """The words of a key that may be a person's name, without a form of address; () for any other key."""
    words = tuple(_FORM_OF_ADDRESS.sub("", key, count=1).replace(".", ". ").split())
    if not 2 <= len(words) <= 1 + MAX_GIVEN_NAMES or not _NOT_IN_PERSON_NAMES.isdisjoint(words):
        return ()
    has_given_names = all(_NAME_WORD.fullmatch(word) or _INITIAL.fullmatch(word) for word in words[:-1])
    return words if has_given_names and _NAME_WORD.fullmatch(words[-1]) else ()


def _is_short(person: Person) -> bool:
    return all(map(_INITIAL.fullmatch, person[:-1]))


def _fits(short: Person, full: Person) -> bool:
    """Whether initials and a surname abbreviate a full name with the same surname."""
    letters = zip(short[:-1], full[:-1], strict=False)
    return _is_short(short) and len(short) <= len(full) and all(given[0] == initial[0] for initial, given in letters)

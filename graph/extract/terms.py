"""Entities in languages without case: noun-like n-grams, chosen by corpus statistics whenever the index's arrays are derived.

All n-grams of a text are candidates: n-grams of the characters between particles in scripts without spaces, and of words elsewhere, with and
without a noun's affixes (Korean endings, Arabic and Hebrew prefixes). A candidate is an entity if at least two propositions contain it, if it is
rarer than a function word, and if it is in more propositions than any longer candidate that contains it; with affixes, it must also be at least
as frequent as without them. A document's title is an entity wherever it occurs. All of this depends only on the contents of the index, not on
the order in which documents were added.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graph.extract.entities import entity_key
from graph.text.word_forms import MARKS, UNSPACED, WORD_PART, composed, is_caseless, unspaced_runs

MAX_CHARACTERS, MAX_WORDS = 6, 3
MIN_PROPOSITIONS = 2
MAX_SHARE, MAX_RARE_COUNT = 0.1, 10
"""A term in more than MAX_RARE_COUNT propositions, and in more than MAX_SHARE of the propositions in caseless scripts, counts as a function word."""
_RUN = re.compile(rf"(?P<unspaced>[{UNSPACED}]+)|(?:(?![{UNSPACED}])[^\W\d_]|[{MARKS}])+")
_SPACED_WORD = re.compile(WORD_PART)
_CHARACTER = re.compile(
    "[\u0e40-\u0e44\u0ec0-\u0ec4]?.[\u0e30-\u0e3a\u0e45-\u0e4e\u0eb0-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u17b6-\u17d3]*"
)
"""A character of an unspaced script with its vowels and signs (Thai, Lao, Burmese, Khmer)."""
_PARTICLES = re.compile(
    "[のはがをにでともへやかなりるたてしれすられさせまでき的了是在也被把而于與与這这那它他她我你们們吗嗎呢个個]+"
    "|ที่|และ|ของ|เป็น|ได้|จาก|โดย|ซึ่ง|เมื่อ|คือ|ใน|กับ|แต่|ไม่|นี้"
)
"""Particles, which mostly separate nouns: runs are cut at them. With enough text, the statistics would find most of them."""
_NOT_FIRST = frozenset("和及有为為由從从对對向")
"""Characters that precede nouns but also occur inside nouns: no term begins with one."""
_GRAMMATICAL = """
على إلى الى عن هذا هذه ذلك التي الذي كان كانت قبل بعد هل
של את על הוא היא הם זה עם אל לא גם אשר
में और यह वह एक का की के को से पर ने है हैं था थी थे हुआ हुई इस उस
اور میں ہے ہیں تھا تھی کے کی کا کو سے پر نے یہ وہ ایک
그 이 저 및 등 수 것 있다 없다 이다 했다 한다
"""
_FUNCTION_WORDS = frozenset(_GRAMMATICAL.split())
"""Words that no term begins or ends with."""
_AFFIXES = re.compile(
    r"^[وفبك]{1,2}(?=ال\w{2})|^(?:ו[בלמשכה]?|[בלמשכה])(?=[א-ת]{3})"
    r"|(?:(?<=[가-힣]{2})|(?<=[a-z\d]))(?:에서는|에서|에게|으로|까지|부터|이다|은|는|이|가|을|를|의|에|로|와|과|도|만)$"
)
"""Prefixes and endings that are written together with a noun."""


def caseless_terms(texts: Sequence[str], known: Iterable[str]) -> list[tuple[int, str]]:
    """(row, term) for every term of every caseless text, by row, then term; `known` are the keys of documents' names."""
    rows = [row for row, text in enumerate(texts) if is_caseless(text)]
    names = frozenset(known if rows else ())
    lengths = _title_lengths(names)

    def terms_of(row: int) -> set[str]:
        text = composed(texts[row])
        return {*candidates(text), *titles_within(text, names, lengths)}

    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(terms_of(row))
    max_count = max(MAX_RARE_COUNT, MAX_SHARE * len(rows))
    terms = {term for term, count in counts.items() if MIN_PROPOSITIONS <= count <= max_count}
    terms -= {part for term in terms for part in _parts(term) if counts[part] <= counts[term]}
    terms -= {term for term in terms if (bare := bare_form(term)) != term and counts[bare] > counts[term]}
    terms |= counts.keys() & names
    return [(row, term) for row in rows for term in sorted(terms_of(row) & terms)]


def candidates(text: str) -> Iterator[str]:
    """All n-grams of a text that may be entities: 2 to 6 characters between particles, or 1 to 3 words.

    >>> list(candidates("東京の塔と港")), list(candidates("برج المدينة"))
    (['東京'], ['برج', 'المدينة', 'برج المدينة'])
    """
    for run in unspaced_runs(text):
        for piece in _PARTICLES.split(run):
            grams = _grams(_CHARACTER.findall(piece), "", 2, MAX_CHARACTERS)
            yield from (term for term in grams if term[0] not in _NOT_FIRST)
    for term in _grams(_words(text), " ", 1, MAX_WORDS):
        if _FUNCTION_WORDS.isdisjoint((term.partition(" ")[0], term.rpartition(" ")[2])):
            yield from filter(_long_enough, dict.fromkeys((term, bare_form(term))))


def titles_within(text: str, names: Collection[str], lengths: Mapping[str, Collection[int]]) -> Iterator[str]:
    """The keys of documents' names that occur in a text, in scripts with spaces as whole words, apart from affixes; `lengths` maps the first two
    characters of the keys to their lengths.
    """
    text = text.casefold().replace("’", "'")
    found = [
        (start, start + length)
        for start in range(len(text) - 1)
        for length in lengths.get(text[start : start + 2], ())
        if text[start : start + length] in names
    ]
    words = (match.span() for match in _SPACED_WORD.finditer(text) if found)
    word_at = {at: span for span in words for at in range(*span)}
    for start, end in found:
        whole = text[word_at.get(start, (start, end))[0] : word_at.get(end - 1, (start, end))[1]]
        if text[start:end] in (whole, bare_form(whole)):
            yield text[start:end]


def bare_form(term: str) -> str:
    """A term without the affixes of its first and last word.

    >>> bare_form("부산에서"), bare_form("والقاهرة"), bare_form("东京")
    ('부산', 'القاهرة', '东京')
    """
    return _AFFIXES.sub("", term)


def _title_lengths(names: Collection[str]) -> dict[str, set[int]]:
    """The lengths of keys, by their first two characters."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for key in names:
        lengths[key[:2]].add(len(key))
    return lengths


def _words(text: str) -> list[str]:
    return [entity_key(match[0]) for match in _RUN.finditer(text) if match["unspaced"] is None]


def _grams(units: Sequence[str], separator: str, shortest: int, longest: int) -> Iterator[str]:
    for length in range(shortest, longest + 1):
        for start in range(len(units) - length + 1):
            yield separator.join(units[start : start + length])


def _long_enough(term: str) -> bool:
    """Whether a term has at least two Korean syllables or three letters of any script."""
    return len(term) > 2 or len(re.findall("[가-힣]", term)) == 2


def _parts(term: str) -> tuple[str, ...]:
    """A term without its first unit, without its last unit, and, if it consists of words, without affixes."""
    if unspaced_runs(term):
        units = _CHARACTER.findall(term)
        return "".join(units[1:]), "".join(units[:-1])
    return term.partition(" ")[2], term.rpartition(" ")[0], *({bare_form(term)} - {term})

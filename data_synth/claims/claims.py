"""Claims about passages: a sentence, the passage to check it against, and whether the passage supports it. An unsupported claim is a supported one
with one change: another name or number, a toggled negation, swapped roles, or an opposite."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

from data_synth.claims.restate import PassageSentence, restate
from data_synth.relevance.split import split_by_hash
from data_synth.rows import Dropped, Form, row_schema, split_problems
from graph.extract.entities import find_entities
from graph.shared.ids import content_id
from graph.text.sentences import split_units
from graph.text.word_forms import OPPOSITES, count_words

_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_NEGATION = re.compile(r"\b(?:not|never|no) ")
_AUXILIARY = re.compile(r"\b(?:is|was|were|are|has|have|had|can|could|will|would|may|did|does|do|should)\b(?! not)")
_FROM_PASSAGE = 0.5
"""Probability that a name or number is replaced by one from the same passage, if there is a choice: such a change is harder to detect."""
_SAMPLED_NAMES = 40
"""Number of names of other passages that are sampled to find one of the same shape."""


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a sentence: the text of its passage, the names in that text, and names in other passages."""

    passage: str
    names: Sequence[str]
    names_elsewhere: Sequence[str]


def other_name(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with a name replaced by another one from its passage, or from another passage; None without a name or a replacement."""
    names = [name for name in names_in(sentence) if not _NUMBER.fullmatch(name)]
    if not names:
        return None
    name = rng.choice(names)
    distinct = [other for other in around.names if other not in sentence and other not in name and name not in other]
    near = [other for other in distinct if shape(other)[:2] == shape(name)[:2]]
    sampled = rng.sample(around.names_elsewhere, min(_SAMPLED_NAMES, len(around.names_elsewhere)))
    far = [other for other in sampled if other not in around.passage and shape(other) == shape(name)]
    candidates = near if near and rng.random() < _FROM_PASSAGE else far or near
    return sentence.replace(name, rng.choice(candidates)) if candidates else None


def other_number(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with a number replaced by another one from its passage, or with one of its last two digits changed; None without a number."""
    numbers = list(_NUMBER.finditer(sentence))
    if not numbers:
        return None
    match = rng.choice(numbers)
    near = [other for other in _NUMBER.findall(around.passage) if len(other) == len(match[0]) and other not in sentence]
    new = rng.choice(near) if near and rng.random() < _FROM_PASSAGE else _other_digit(match[0], rng)
    return sentence[: match.start()] + new + sentence[match.end() :]


def toggled_negation(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence without its negation, or negated; None if it has neither a negation nor an auxiliary verb."""
    if _NEGATION.search(sentence):
        return _NEGATION.sub("", sentence, count=1)
    verbs = list(_AUXILIARY.finditer(sentence))[:2]
    if not verbs:
        return None
    end = rng.choice(verbs).end()
    return sentence[:end] + rng.choice((" not", " not", " never")) + sentence[end:]


def swapped_roles(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with two of its names swapped: each occurs once, neither contains the other, and both or neither have digits; None without such names."""
    names = [name for name in names_in(sentence) if sentence.count(name) == 1]
    pairs = [
        (a, b)
        for a, b in permutations(names, 2)
        if sentence.index(a) < sentence.index(b) and a not in b and b not in a and shape(a)[0] == shape(b)[0]
    ]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    other = {first: second, second: first}
    return re.sub("|".join(map(re.escape, other)), lambda match: other[match[0]], sentence)


def opposite_word(sentence: str, around: Surroundings, rng: random.Random) -> str | None:
    """The sentence with a word replaced by its opposite; None if no word has an opposite."""
    words = [word for word in re.findall(r"\b[a-z]+\b", sentence) if word in OPPOSITES]
    if not words:
        return None
    word = rng.choice(words)
    return re.sub(rf"\b{word}\b", rng.choice(sorted(OPPOSITES[word])), sentence, count=1)


CHANGES: Mapping[str, Callable[[str, Surroundings, random.Random], str | None]] = {
    "name": other_name,
    "number": other_number,
    "negation": toggled_negation,
    "roles": swapped_roles,
    "opposite": opposite_word,
}


def falsify(sentence: str, around: Surroundings, rng: random.Random) -> tuple[str, str] | None:
    """The falsified sentence and the kind of change; None if no change yields a different sentence that is not in the passage.

    >>> falsify("It burned in 1911.", Surroundings("It burned in 1911.", (), ()), random.Random(0))
    ('It burned in 1919.', 'number')
    """
    for kind in rng.sample(sorted(CHANGES), len(CHANGES)):
        broken = CHANGES[kind](sentence, around, rng)
        if broken is not None and broken != sentence and broken not in around.passage:
            return broken, kind
    return None


def names_in(text: str) -> list[str]:
    """Names, dates and quantities as written in the text, including a one-word name at its start."""
    return [name for name in find_entities(f"x {text}") if name in text]


def shape(name: str, max_words: int = 3) -> tuple[bool, bool, int]:
    """The shape of a name: whether it has digits, whether it starts with a capital, and its number of words, at most `max_words`.

    >>> shape("Ada Marlow") == shape("Port Ellery"), shape("14 May 1911") == shape("Ada")
    (True, False)
    """
    return bool(_NUMBER.search(name)), name[:1].isupper(), min(len(name.split()), max_words)


def _other_digit(number: str, rng: random.Random) -> str:
    position = rng.choice([i for i, character in enumerate(number) if character.isdigit()][-2:])
    digits = [digit for digit in "123456789" if digit != number[position]]
    return number[:position] + rng.choice(digits) + number[position + 1 :]


if TYPE_CHECKING:
    from graph.index.index import Index


@dataclass(frozen=True)
class ClaimRow:
    """One claim. `kind` names how a supported claim was restated, or what was changed in an unsupported one.

    In an imported claim, `kind` is the kind that its dataset states, `further` contains the passages after the first, and `dataset` is the dataset's name.
    """

    id: str
    title: str
    passage: str
    claim: str
    supported: bool
    kind: str
    split: str
    further: tuple[str, ...] = ()
    dataset: str = ""


def claim_from_json(row: Mapping[str, Any]) -> ClaimRow:
    """A claim from its stored row; KeyError for a missing key, TypeError for a value of the wrong type."""
    texts = {name: row[name] for name in ("id", "title", "passage", "claim", "kind", "split")}
    texts["dataset"] = row.get("dataset", "")
    further = row.get("further", [])
    wrong = {name: value for name, value in texts.items() if not isinstance(value, str)}
    if not isinstance(row["supported"], bool):
        wrong["supported"] = row["supported"]
    if wrong:
        raise TypeError(f"expected strings in {', '.join(texts)}, and true or false in supported, got {wrong!r:.200}")
    if not isinstance(further, list | tuple) or not all(isinstance(text, str) for text in further):
        raise TypeError(f"expected `further` to be a list of strings, got {further!r}")
    return ClaimRow(**texts, supported=row["supported"], further=tuple(further))


def claim_problems(row: ClaimRow) -> list[str]:
    """The problems that make a row unusable for training, in words; empty for a good row."""
    empty = [f"the {name} is empty" for name in ("passage", "claim") if not getattr(row, name).strip()]
    return empty + split_problems(row)


def _counts(row: ClaimRow) -> dict[str, str]:
    label = "supported" if row.supported else "unsupported" if row.dataset else "broken"
    return {"claim": f"{label}, {row.kind}"} | ({"set": row.dataset} if row.dataset else {})


CLAIMS: Form[ClaimRow] = Form(
    name="claims",
    title="Sentences that a passage supports, and falsified ones",
    about=(
        "Sentences of passages, restated (`supported`: true; `kind`: how), and the same sentences with one change, so that "
        "the passage no longer supports them (`supported`: false; `kind`: a name, a number, a negation, two roles swapped, an opposite). "
        "Both are made by rules, without a model. All claims of a document are in one split. Train a verifier on them: `modegraph train verifier`."
    ),
    to_json=asdict,
    from_json=claim_from_json,
    schema=partial(row_schema, ClaimRow),
    problems=claim_problems,
    counts=_counts,
    lengths=lambda row: {"claim": count_words(row.claim), "passage": count_words(row.passage)},
    texts=lambda row: (row.passage, *row.further, row.claim),
)
LABELLED_CLAIMS: Form[ClaimRow] = replace(
    CLAIMS,
    name="labelled claims",
    title="Sentences checked against passages, labelled by people",
    about=(
        "Sentences that people or models wrote, each with the passages that it is checked against and whether they support it (`supported`). A "
        "short answer is preceded by its question. `dataset` is the name of the set that a row comes from, `kind` the kind that the set states for it; the "
        "splits are those of the sets, with `val` as dev. "
        "Train the second stage of a verifier on them: `modegraph train verifier --set real=FOLDER`. The licences are those "
        "that the sets state; you may not be allowed to redistribute a model trained on a set that states none."
    ),
)


SHORTEST, LONGEST = 30, 400
"""Length in characters of the shortest and of the longest sentence used for a claim."""
NAMES_PER_PASSAGE = 5
"""Largest number of names of each passage that may replace names in claims about other passages."""
COPY = "a copy of an earlier passage"
NO_SENTENCE = f"a passage without a sentence of {SHORTEST} to {LONGEST} characters"
UNCHANGEABLE = "nothing in the claim could be changed"


@dataclass(frozen=True)
class ClaimPassage:
    """A passage, its title and its document."""

    source: str
    title: str
    text: str


def passages_of(index: Index) -> Iterator[ClaimPassage]:
    """The passages of an index, in order."""
    data, sources = index.data, index.sources()
    for text, document in zip(data.passage_texts, data.passage_document_P.tolist(), strict=True):
        yield ClaimPassage(sources[document], data.document_titles[document], text)


def claim_rows(passages: Iterable[ClaimPassage], per_passage: int, seed: int) -> Iterator[ClaimRow | Dropped]:
    """Pairs of a supported claim and an unsupported version of it, at most `per_passage` for each passage, in the order of the passages.

    Dropped for a copy of an earlier passage (so that no two splits share one), for a passage without a usable sentence, and for a claim that cannot
    be falsified; a repeated claim is skipped.
    """
    named = [(passage, names_in(passage.text)) for passage in passages]
    names_elsewhere = [name for _, names in named for name in names[:NAMES_PER_PASSAGE]]
    earlier = set[str]()
    for passage, names in named:
        if passage.text in earlier:
            yield Dropped(COPY)
            continue
        earlier.add(passage.text)
        units = split_units(passage.text)
        sentences = [u.text for u in units if u.kind == "sentence" and SHORTEST <= len(u.text) <= LONGEST]
        if not sentences:
            yield Dropped(NO_SENTENCE)
            continue
        claims = set[str]()
        surroundings = Surroundings(passage.text, names, names_elsewhere)
        for number in range(per_passage):
            rng = random.Random(content_id(str(seed), str(number), passage.source, passage.text))
            sentence = PassageSentence(sentences, rng.randrange(len(sentences)), passage.title)
            claim, restatement = restate(sentence, rng)
            broken = falsify(claim, surroundings, rng)
            if broken is None:
                yield Dropped(UNCHANGEABLE)
            elif claim not in claims:
                claims.add(claim)
                yield _row(passage, claim, True, restatement, seed)
                yield _row(passage, broken[0], False, broken[1], seed)


def _row(passage: ClaimPassage, claim: str, supported: bool, kind: str, seed: int) -> ClaimRow:
    return ClaimRow(
        id=content_id(passage.source, passage.text, claim)[:16],
        title=passage.title,
        passage=passage.text,
        claim=claim,
        supported=supported,
        kind=kind,
        split=split_by_hash(seed, passage.source),
    )

"""A verifier: how likely it is that passages do not say what a sentence says, by what both have in common.

Boosted trees, learned from sentences broken on purpose, read FEATURES: words, names or numbers that are missing, a
negation too many or too few, an opposite, an order of words that the source does not have. A logistic regression,
learned from sentences that people labelled, reads their logit with the same features and the OVERLAP of wording
(stacking, Wolpert 1992). No encoder and no model is called. `modegraph train verifier` writes the file; one comes with
the package (SHIPPED).

Legend: N sentences of the passages, F features, O overlaps, S inputs of the second stage, n claims."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.answer.overlap import OVERLAP, Wording, overlaps
from graph.text.sentences import split_units
from graph.text.word_forms import OPPOSITES, Words, form
from graph.trees import Forest, forest_from, forest_logits, probabilities, read_forests, save_forest, trained_file
from graph.types import Floats

_BRACKETS = re.compile(r"\([^()]*\)")
NAME_WEIGHT, TITLE_WEIGHT = 2.0, 0.25
"""A name or number that a source sentence shares counts as much as two other words, a word of a title as a quarter of one."""
MIN_GAIN = 2
"""Words that a second sentence must add to be read together with the first."""
REFERRING = frozenset(["he", "she", "it", "they", "his", "her", "its", "their", "him", "them", "this", "these"])
OPENING_WORDS = 3
"""A sentence with one of REFERRING among so many first words speaks of what another has named."""


@dataclass(frozen=True)
class Source:
    """What of the passages a sentence is read against: the words of their best sentence or two. `added` are those that the second adds,
    `aside` the stems of what stands in brackets.

    `joint` is the place from which on the words are those of a sentence that refers back to the one before them; 0 where there is none.
    What it refers to has no place in it, so order and neighbours are told on either side alone.
    """

    words: Words
    added: int
    aside: frozenset[str]
    joint: int

    @classmethod
    def of(cls, text: str, following: str = "", added: int = 0) -> Source:
        """The source that is this text, or this one and the one that stands somewhere after it."""
        whole = f"{text} {following}".strip()
        aside = (stem for found in _BRACKETS.finditer(whole) for stem in Words.of(found[0]).stems)
        refers = REFERRING.intersection(Words.of(following).lower[:OPENING_WORDS])
        joint = len(Words.of(_BRACKETS.sub(" ", text)).words) if refers else 0
        return cls(Words.of(asides_last(whole)), added, frozenset(aside), joint)

    def sides(self, places: Iterable[int]) -> tuple[list[int], list[int]]:
        """Places before the joint, and from it on.

        >>> Source.of("Ada built it.", "Her yard (burned in 1911) was large.").sides([0, 3, 5])
        ([0], [3, 5])
        """
        both: tuple[list[int], list[int]] = [], []
        for place in places:
            both[place >= self.joint].append(place)
        return both

    def are_apart(self, one: int, other: int) -> bool:
        """Whether two places are on different sides."""
        return (one >= self.joint) != (other >= self.joint)


def asides_last(text: str) -> str:
    """The text with what stands in brackets behind all else, so that it parts no neighbours.

    >>> asides_last("Ada (born 1850) built it.")
    'Ada built it. (born 1850)'
    """
    asides = [found[0] for found in _BRACKETS.finditer(text)]
    return " ".join([re.sub(r" +([.,;])", r"\1", " ".join(_BRACKETS.sub(" ", text).split())), *asides])


def best_source(
    claim: Words, sentences: Sequence[str], words_N: Sequence[Words], titled: Collection[str] = ()
) -> Source:
    """The sentence that shares most of a claim's words, with the one that adds most to it where that is MIN_GAIN or more.

    Words of titles (stems) tell little: a passage speaks of its title in all of its sentences, and may not name it.
    """
    if not sentences:
        return Source.of("")
    stems_N = [words.stem_set for words in words_N]

    def worth(at: int) -> float:
        if claim.stems[at] in titled:
            return TITLE_WEIGHT
        return NAME_WEIGHT if claim.is_number(at) or claim.is_name(at) else 1

    def weight(stems: frozenset[str]) -> float:
        return sum(worth(at) for at in claim.content if claim.stems[at] in stems)

    first = max(range(len(sentences)), key=lambda place: (weight(stems_N[place]), -place))
    left = [stem for at in claim.content if (stem := claim.stems[at]) not in stems_N[first] and stem not in titled]
    gains = [sum(stem in stems for stem in left) for stems in stems_N]
    second = max(range(len(sentences)), key=lambda place: (gains[place], -place))
    if gains[second] < MIN_GAIN:
        return Source.of(sentences[first])
    low, high = sorted((first, second))
    return Source.of(sentences[low], sentences[high], gains[second])


def align(claim: Words, source: Words) -> dict[int, int]:
    """Places of the claim's content words to places of the same words in the source; of several, the one that goes on from the last.

    >>> align(Words.of("Ada built Lantern"), Words.of("The Lantern was built by Ada"))
    {0: 5, 1: 3, 2: 1}
    """
    places: dict[str, list[int]] = {}
    alike: dict[str, list[int]] = {}
    for place, stem in enumerate(source.stems):
        places.setdefault(stem, []).append(place)
        alike.setdefault(form(stem), []).append(place)
    found: dict[int, int] = {}
    last = -1
    for at in claim.content:
        stem = claim.stems[at]
        if known := places.get(stem) or alike.get(form(stem)):
            last = found[at] = min(known, key=lambda place: abs(place - last - 1))
    return found


_NEIGHBOUR_DISTANCE, _SLACK = 4, 3
"""Neighbours are content words so many places away; in the source they may be so many places further."""


@dataclass(frozen=True)
class Ground:
    """Passages to read sentences against: their sentences, the words of each, those of their titles, the `form` of all
    of these, and the wording of each passage with its title.
    """

    sentences: tuple[str, ...]
    words_N: tuple[Words, ...]
    titles: tuple[frozenset[str], ...]
    forms: frozenset[str]
    text: str
    wordings: tuple[Wording, ...]

    @classmethod
    def of(cls, passages: Iterable[tuple[str, str]]) -> Ground:
        """`passages` are titles and texts."""
        given = list(passages)
        sentences = tuple(unit.text for _, text in given for unit in split_units(text))
        words_N = tuple(map(Words.of, sentences))
        titles = tuple(Words.of(title).stem_set for title, _ in given)
        forms = frozenset(map(form, set().union(*titles, *(words.stem_set for words in words_N))))
        text = " ".join(text for _, text in given).casefold()
        return cls(sentences, words_N, titles, forms, text, tuple(Wording.of(*each) for each in given))

    @classmethod
    def joined(cls, parts: Iterable[Ground]) -> Ground:
        """Several as one."""
        of = list(parts)
        return cls(
            tuple(sentence for part in of for sentence in part.sentences),
            tuple(words for part in of for words in part.words_N),
            tuple(title for part in of for title in part.titles),
            frozenset().union(*(part.forms for part in of)),
            " ".join(part.text for part in of),
            tuple(wording for part in of for wording in part.wordings),
        )


def claim_features(claim: str, ground: Ground) -> Floats:
    """The FEATURES of a sentence: float32[F]."""
    return np.array([float(value) for value in _values(claim, ground).values()], np.float32)


def missing_words(claim: str, ground: Ground) -> tuple[str, ...]:
    """The names and numbers of a sentence that stand nowhere in the passages or their titles, as written, each once."""
    words = Words.of(claim)
    named = (at for at in words.content if words.is_name(at) or words.is_number(at))
    return tuple(dict.fromkeys(words.words[at] for at in named if form(words.stems[at]) not in ground.forms))


def _values(claim: str, ground: Ground) -> Mapping[str, float]:
    words = Words.of(asides_last(claim))
    titled: set[str] = set().union(*ground.titles)
    source = best_source(words, ground.sentences, ground.words_N, titled)
    # A title that the source does not name in full, or names and then refers to, stands for its pronoun, and has no place there.
    there = () if source.joint else (title for title in ground.titles if title <= source.words.stem_set)
    named = titled - set().union(*there)
    aligned = {at: place for at, place in align(words, source.words).items() if words.stems[at] not in named}
    missing = [at for at in words.content if at not in aligned and words.stems[at] not in titled]
    unknown = [at for at in missing if form(words.stems[at]) not in ground.forms]
    return {
        "words": len(words.words),
        "sentences": len(ground.sentences),
        "verbatim": claim.casefold().strip(" .") in ground.text,
        **dict(_missing_words(words, missing, "source")),
        **dict(_missing_words(words, unknown, "passages")),
        **dict(_negations(words, source.words)),
        **dict(_opposites(words, source.words)),
        **dict(_order(words, source, aligned, missing, titled)),
    }


def _missing_words(words: Words, places: Sequence[int], where: str) -> Iterator[tuple[str, float]]:
    """Words that are not there, and how many of them are names and numbers."""
    yield f"missing in {where}", len(places)
    yield f"share missing in {where}", len(places) / max(len(words.content), 1)
    yield f"names missing in {where}", sum(words.is_name(at) for at in places)
    yield f"numbers missing in {where}", sum(words.is_number(at) for at in places)


def _negations(words: Words, source: Words) -> Iterator[tuple[str, float]]:
    """Negators of both, and those whose neighbours are in the other without one."""

    def denied(of: Words) -> list[set[str]]:
        return [of.neighbours(at, 1, 2) for at in of.negators]

    own, theirs = denied(words), denied(source)
    all_own, all_theirs = set().union(*own), set().union(*theirs)
    yield "negations", len(own)
    yield "negations of source", len(theirs)
    yield "negations more", len(own) - len(theirs)
    yield "negations not in source", sum(not (near & all_theirs) for near in own)
    yield (
        "negations left out",
        sum(bool(near) and len(near & words.stem_set) >= min(2, len(near)) and not (near & all_own) for near in theirs),
    )


def _opposites(words: Words, source: Words) -> Iterator[tuple[str, float]]:
    """Words whose opposite stands in the source in their place, and words with opposites that the source lacks."""
    there = set(source.lower)
    turned = [word for word in words.lower if word in OPPOSITES and word not in there]
    yield "opposites", sum(bool(OPPOSITES[word] & there) for word in turned)
    yield "turning words missing", len(turned)


def _order(
    words: Words, source: Source, aligned: Mapping[int, int], missing: Sequence[int], titles: Collection[str]
) -> Iterator[tuple[str, float]]:
    """Whether what is shared follows in the same order and stands beside the same words."""
    places = [aligned[at] for at in words.content if at in aligned]
    names = [at for at in words.content if words.is_name(at) and (at in aligned or words.stems[at] not in titles)]
    numbers = [at for at in words.content if words.is_number(at)]
    shared_names = [aligned[at] for at in names if at in aligned]
    told = aligned.keys() | set(missing)
    pairs = [(a, b) for a, b in pairwise(words.content) if {a, b} <= told and not _are_apart(source, aligned, a, b)]
    follow = sum(a in aligned and b in aligned and 0 < aligned[b] - aligned[a] <= b - a + _SLACK - 1 for a, b in pairs)
    between = [
        at for side in source.sides(places) for at in source.words.content if side and min(side) < at < max(side)
    ]
    spoken = {*words.stems, *source.aside}
    yield "in order", sum(map(_rising, source.sides(places))) / max(len(places), 1)
    yield "pairs kept", follow / max(len(pairs), 1)
    yield "names kept", len(shared_names) / len(names) if names else any(map(words.is_name, words.content))
    yield "names turned round", max(map(_share_reversed, source.sides(shared_names)))
    yield "names among their neighbours", _least_share_of_neighbours(words, source, aligned, names)
    yield "numbers among their neighbours", _least_share_of_neighbours(words, source, aligned, numbers)
    yield "missing at the end", sum(at in missing for at in words.content[-2:])
    yield "longest run missing", _longest_run(words.content, set(missing))
    yield (
        "names of source left out",
        sum(
            (source.words.is_name(at) or source.words.is_number(at)) and source.words.stems[at] not in spoken
            for at in between
        ),
    )
    yield "words of source", len(source.words.words)
    yield "words added by a second sentence", source.added
    yield "second sentence refers back", source.joint > 0


def _rising(places: Sequence[int]) -> int:
    """Length of the longest rising part of a sequence.

    >>> _rising([3, 1, 2, 5])
    3
    """
    ends: list[int] = []
    for place in places:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)


def _share_reversed(places: Sequence[int]) -> float:
    """The share of pairs that come the other way round.

    >>> _share_reversed([4, 1, 9])
    0.3333333333333333
    """
    pairs = len(places) * (len(places) - 1) / 2
    return sum(a > b for at, a in enumerate(places) for b in places[at + 1 :]) / max(pairs, 1)


def _are_apart(source: Source, aligned: Mapping[int, int], one: int, other: int) -> bool:
    """Whether two words of a claim stand on different sides of the source."""
    return one in aligned and other in aligned and source.are_apart(aligned[one], aligned[other])


def _least_share_of_neighbours(
    words: Words, source: Source, aligned: Mapping[int, int], chosen: Sequence[int]
) -> float:
    """The least share of its neighbours that a chosen word has near it in the source too; 1 where none can be told."""
    shares = []
    for at in chosen:
        near = [
            other
            for other in aligned
            if other != at
            and abs(other - at) <= _NEIGHBOUR_DISTANCE
            and not (words.is_name(other) and words.is_name(at))
            and not _are_apart(source, aligned, at, other)
        ]
        if at in aligned and near:
            found = [place for place, stem in enumerate(source.words.stems) if stem == words.stems[at]] or [aligned[at]]
            shares.append(
                max(sum(abs(aligned[other] - place) <= abs(other - at) + _SLACK for other in near) for place in found)
                / len(near)
            )
    return min(shares, default=1.0)


def _longest_run(places: Sequence[int], marked: set[int]) -> int:
    longest = run = 0
    for place in places:
        run = run + 1 if place in marked else 0
        longest = max(longest, run)
    return longest


FEATURES = tuple(_values("", Ground.of([])))


VERIFIER_FILE = "verifier.safetensors"
FORMAT = "modegraph verifier, 3"
HEADER = "verifier"
SHIPPED = Path(__file__).parent / VERIFIER_FILE
SECOND_STAGE = ("logit of trees", *OVERLAP, *FEATURES)
"""What the second stage reads."""
MOST_DEVIATIONS = 3.0
"""What is further from its mean counts as so many standard deviations: no endless sentence is judged by its length
alone."""
_SECOND_STAGE_ARRAYS = ("weight_S", "mean_S", "scale_S")


@dataclass(frozen=True)
class SecondStage:
    """A logistic regression over SECOND_STAGE: what each input counts for, and mean and standard deviation of what it
    learned from.
    """

    weight_S: NDArray[np.float64]
    mean_S: NDArray[np.float64]
    scale_S: NDArray[np.float64]
    bias: float

    def standardised(self, input_nS: NDArray[np.float64]) -> NDArray[np.float64]:
        """(x − mean) / scale, held within ±MOST_DEVIATIONS: [n, S]."""
        return np.clip((input_nS - self.mean_S) / self.scale_S, -MOST_DEVIATIONS, MOST_DEVIATIONS)

    def logits(self, input_nS: NDArray[np.float64]) -> NDArray[np.float64]:
        """bias + Σ_S weight · standardised input: [n]."""
        return np.asarray(self.bias + (self.standardised(input_nS) * self.weight_S).sum(axis=1))


@dataclass(frozen=True)
class Verifier:
    """A forest of logits, what makes probabilities of them (the temperature, or the second stage where there is one),
    and the probability from which a sentence is marked as unsupported.
    """

    forest: Forest
    temperature: float
    threshold: float
    second: SecondStage | None = None


@dataclass(frozen=True)
class Readings:
    """What is read of n claims: float32[n, F] and float64[n, O]."""

    features_nF: Floats
    overlap_nO: NDArray[np.float64]

    @classmethod
    def of(cls, claims: Iterable[tuple[str, Ground]]) -> Readings:
        """`claims` are sentences, one at least, each with its passages."""
        read = [(claim_features(claim, ground), overlaps(claim, ground.wordings)) for claim, ground in claims]
        return cls(np.stack([features for features, _ in read]), np.array([overlap for _, overlap in read]))


def second_stage_inputs(forest: Forest, readings: Readings) -> NDArray[np.float64]:
    """SECOND_STAGE of each claim: [n, S]."""
    logits_n = forest_logits(forest, readings.features_nF)
    return np.column_stack([logits_n, readings.overlap_nO, readings.features_nF.astype(np.float64)])


def probability_of_readings(verifier: Verifier, readings: Readings) -> NDArray[np.float64]:
    """The probability of each claim to be unsupported, given what was read of it: [n]."""
    if verifier.second is None:
        return probabilities(forest_logits(verifier.forest, readings.features_nF), verifier.temperature)
    return probabilities(verifier.second.logits(second_stage_inputs(verifier.forest, readings)), 1.0)


def judge_claims(verifier: Verifier, claims: Sequence[str], ground: Ground) -> NDArray[np.float64]:
    """The probability of each claim to be unsupported by the passages of `ground`: [n]."""
    if not claims:
        return np.zeros(0)
    return probability_of_readings(verifier, Readings.of((claim, ground) for claim in claims))


def save_verifier(folder: Path, verifier: Verifier) -> None:
    """Write VERIFIER_FILE into `folder`."""
    second = verifier.second
    facts = {
        "format": FORMAT,
        "features": FEATURES,
        "temperature": verifier.temperature,
        "threshold": verifier.threshold,
        "second_stage": None if second is None else {"inputs": SECOND_STAGE, "bias": second.bias},
    }
    arrays = {} if second is None else {name: getattr(second, name) for name in _SECOND_STAGE_ARRAYS}
    save_forest(folder / VERIFIER_FILE, HEADER, facts, verifier.forest, arrays)


def open_verifier(spec: str) -> Verifier:
    """The verifier in a folder or on the hub, "" for the one that comes with the package; UserError for anything else."""
    file = trained_file(spec, "verifier", VERIFIER_FILE) if spec else SHIPPED
    return _load_verifier(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load_verifier(file: Path, changed_ns: int) -> Verifier:
    del changed_ns
    with read_forests(file, HEADER, FORMAT, FEATURES) as (opened, header):
        forest = forest_from(opened, header, len(FEATURES))
        stage = header["second_stage"]
        second = None if stage is None else _second_stage(stage, *map(opened.get_tensor, _SECOND_STAGE_ARRAYS))
        return Verifier(forest, float(header["temperature"]), float(header["threshold"]), second)


def _second_stage(stage: Mapping[str, Any], *arrays: NDArray[np.float64]) -> SecondStage:
    """The second stage that a file holds; ValueError for one of other inputs than SECOND_STAGE."""
    if tuple(stage["inputs"]) != SECOND_STAGE or any(array.shape != (len(SECOND_STAGE),) for array in arrays):
        raise ValueError("a second stage with other inputs")
    weight_S, mean_S, scale_S = arrays
    second = SecondStage(weight_S, mean_S, scale_S, float(stage["bias"]))
    if not (np.isfinite([*arrays]).all() and np.isfinite(second.bias) and (second.scale_S > 0).all()):
        raise ValueError("a second stage that is not finite")
    return second

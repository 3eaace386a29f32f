"""Verifiers: the probability that passages do not support a sentence. The default compares words; a language model can judge instead (model_verifier.py).

Boosted trees, trained on deliberately falsified sentences, classify a sentence by FEATURES: missing words, names or numbers, surplus or
missing negations, opposites, a word order that differs from the source's. A logistic regression, trained on sentences
that people labelled, combines the trees' logit, these features and the OVERLAP of wording (stacking, Wolpert 1992). Neither
calls an encoder or a language model. `modegraph train verifier` writes such a verifier; the package includes one (SHIPPED).

Legend: N sentences of the passages, F features, O overlaps, S inputs of the second stage, n claims."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graph.answer.overlap import OVERLAP, Wording, overlaps
from graph.text.sentences import Cells, Unit, headers_at, spell_out_rows, split_units
from graph.text.word_forms import OPPOSITES, Words, form
from graph.trees import Forest, forest_logits, probabilities, read_forest, save_forest, trained_file
from graph.types import Floats

_BRACKETS = re.compile(r"\([^()]*\)")
NAME_WEIGHT, TITLE_WEIGHT = 2.0, 0.25
"""The weights of a shared name or number, and of a word of a title, relative to other words."""
MIN_GAIN = 2
"""The minimum number of words that a second sentence must add to become part of the source."""
REFERRING = frozenset(["he", "she", "it", "they", "his", "her", "its", "their", "him", "them", "this", "these"])
OPENING_WORDS = 3
"""A sentence with one of REFERRING among its first OPENING_WORDS words refers to something that another sentence names."""


@dataclass(frozen=True)
class Source:
    """The words of the best one or two passage sentences for a claim. `added` counts the words that the second sentence adds; `aside` are
    the stems in brackets.

    If the later sentence refers back to the earlier one, `joint` is the position of its first word, else 0. Such a sentence does not
    repeat the words that it refers to, so order and neighbours are compared only within each side of the joint.
    """

    words: Words
    added: int
    aside: frozenset[str]
    joint: int

    @classmethod
    def of(cls, text: str, following: str = "", added: int = 0) -> Source:
        """The source made of one text, or of two: `following` comes later in the passages."""
        both = f"{text} {following}".strip()
        aside = (stem for match in _BRACKETS.finditer(both) for stem in Words.of(match[0]).stems)
        refers = REFERRING.intersection(Words.of(following).lower[:OPENING_WORDS])
        joint = len(Words.of(_BRACKETS.sub(" ", text)).words) if refers else 0
        return cls(Words.of(asides_last(both)), added, frozenset(aside), joint)

    def sides(self, positions: Iterable[int]) -> tuple[list[int], list[int]]:
        """The positions before the joint, and those at or after it.

        >>> Source.of("Ada built it.", "Her yard (burned in 1911) was large.").sides([0, 3, 5])
        ([0], [3, 5])
        """
        both: tuple[list[int], list[int]] = [], []
        for position in positions:
            both[position >= self.joint].append(position)
        return both


def asides_last(text: str) -> str:
    """The text with everything in brackets moved to the end, so that it does not separate neighbours.

    >>> asides_last("Ada (born 1850) built it.")
    'Ada built it. (born 1850)'
    """
    asides = [match[0] for match in _BRACKETS.finditer(text)]
    return " ".join([re.sub(r" +([.,;])", r"\1", " ".join(_BRACKETS.sub(" ", text).split())), *asides])


def best_source(
    claim: Words, sentences: Sequence[str], words_N: Sequence[Words], title_stems: Collection[str] = ()
) -> Source:
    """The sentence that shares the most words with a claim, with the sentence that adds the most of the missing words if it adds at least MIN_GAIN of them.

    Words of titles (`title_stems`) weigh little: every sentence of a passage is about its title, but need not name it.
    """
    if not sentences:
        return Source.of("")
    stems_N = [words.stem_set for words in words_N]

    def worth(at: int) -> float:
        if claim.stems[at] in title_stems:
            return TITLE_WEIGHT
        return NAME_WEIGHT if claim.is_number(at) or claim.is_name(at) else 1

    def weight(stems: frozenset[str]) -> float:
        return sum(worth(at) for at in claim.content if claim.stems[at] in stems)

    first = max(range(len(sentences)), key=lambda i: (weight(stems_N[i]), -i))
    unmatched = [
        stem for at in claim.content if (stem := claim.stems[at]) not in stems_N[first] and stem not in title_stems
    ]
    gains = [sum(stem in stems for stem in unmatched) for stems in stems_N]
    second = max(range(len(sentences)), key=lambda i: (gains[i], -i))
    if gains[second] < MIN_GAIN:
        return Source.of(sentences[first])
    low, high = sorted((first, second))
    return Source.of(sentences[low], sentences[high], gains[second])


def align(claim: Words, source: Words) -> dict[int, int]:
    """Map the position of each content word of a claim to that of the same word in the source.

    Of several such positions, it is the one closest to the position after the last match.

    >>> align(Words.of("Ada built Lantern"), Words.of("The Lantern was built by Ada"))
    {0: 5, 1: 3, 2: 1}
    """
    by_stem: dict[str, list[int]] = {}
    by_form: dict[str, list[int]] = {}
    for position, stem in enumerate(source.stems):
        by_stem.setdefault(stem, []).append(position)
        by_form.setdefault(form(stem), []).append(position)
    aligned: dict[int, int] = {}
    last = -1
    for at in claim.content:
        stem = claim.stems[at]
        if positions := by_stem.get(stem) or by_form.get(form(stem)):
            last = aligned[at] = min(positions, key=lambda position: abs(position - last - 1))
    return aligned


_NEIGHBOUR_DISTANCE, _SLACK = 4, 3
"""Neighbours are content words at most _NEIGHBOUR_DISTANCE positions apart; in the source they may be _SLACK positions further apart."""


WINDOW_CHARS = 10_000
"""A longer passage is read in windows of at most this many characters; no unit spans two windows."""


@dataclass(frozen=True)
class Premise:
    """Passages to check sentences against.

    `units` are the units of their texts, `words_N` the words of each unit, `titles` the stems of each title, `forms` the `form` of every stem, `text`
    the lower-case text, `wordings` the wording of each passage with its title, and `passages` the titles and texts. The words of a table row, and
    the texts, include the header of its table.
    """

    units: tuple[Unit, ...]
    words_N: tuple[Words, ...]
    titles: tuple[frozenset[str], ...]
    forms: frozenset[str]
    text: str
    wordings: tuple[Wording, ...]
    passages: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, passages: Iterable[tuple[str, str]], header: Cells = ()) -> Premise:
        """The premise of `passages`, pairs of title and text; each text may begin inside a table with this `header`."""
        pairs = list(passages)
        units = tuple(unit for _, text in pairs for unit in _units(text, header))
        words_N = tuple(Words.of(_wording(unit)) for unit in units)
        titles = tuple(Words.of(title).stem_set for title, _ in pairs)
        forms = frozenset(map(form, set().union(*titles, *(words.stem_set for words in words_N))))
        texts = ["".join(spell_out_rows(part, head) for _, part, head in windows(text, header)) for _, text in pairs]
        wordings = tuple(Wording.of(title, text) for (title, _), text in zip(pairs, texts, strict=True))
        titled = tuple((title, text) for (title, _), text in zip(pairs, texts, strict=True))
        return cls(units, words_N, titles, forms, " ".join(texts).casefold(), wordings, titled)

    @classmethod
    def join(cls, parts: Iterable[Premise]) -> Premise:
        """The premise of the passages of all `parts`."""
        premises = list(parts)
        return cls(
            tuple(unit for premise in premises for unit in premise.units),
            tuple(words for premise in premises for words in premise.words_N),
            tuple(title for premise in premises for title in premise.titles),
            frozenset().union(*(premise.forms for premise in premises)),
            " ".join(premise.text for premise in premises),
            tuple(wording for premise in premises for wording in premise.wordings),
            tuple(passage for premise in premises for passage in premise.passages),
        )

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The texts of the units, a table row as "header: value" pairs."""
        return tuple(map(_wording, self.units))


def _wording(unit: Unit) -> str:
    return unit.line if unit.cells else unit.text


def _units(text: str, header: Cells) -> Iterator[Unit]:
    for start, part, head in windows(text, header):
        for unit in split_units(part, head):
            yield replace(unit, start=start + unit.start, end=start + unit.end)


def windows(text: str, header: Cells = (), chars: int = WINDOW_CHARS) -> Iterator[tuple[int, str, Cells]]:
    """Start and text of each window of at most `chars` characters, and the header of the table in which it begins, if any.

    Every window but the last ends after a blank if it contains one.
    """
    starts, end = list[int](), 0
    while end < len(text):
        starts.append(end)
        end = end + chars
        if end < len(text):
            end = max(text.rfind(blank, starts[-1], end) + 1 for blank in "\n ") or end
    spans = pairwise([*starts, len(text)])
    for (start, stop), head in zip(spans, headers_at(text, starts, header), strict=True):
        yield start, text[start:stop], head


def claim_features(claim: str, premise: Premise) -> Floats:
    """The FEATURES of a sentence: float32[F]."""
    return np.array([float(value) for value in _values(claim, premise).values()], np.float32)


def missing_words(claim: str, premise: Premise) -> tuple[str, ...]:
    """The distinct names and numbers of a sentence, as written, that occur neither in the passages nor in their titles."""
    words = Words.of(claim)
    named = (at for at in words.content if words.is_name(at) or words.is_number(at))
    return tuple(dict.fromkeys(words.words[at] for at in named if form(words.stems[at]) not in premise.forms))


def _values(claim: str, premise: Premise) -> Mapping[str, float]:
    words = Words.of(asides_last(claim))
    title_stems: set[str] = set().union(*premise.titles)
    source = best_source(words, premise.sentences, premise.words_N, title_stems)
    # Where the source does not name a title in full, or refers back, the claim may use the title instead of a pronoun,
    # so the title's words are not aligned.
    full_titles = () if source.joint else (title for title in premise.titles if title <= source.words.stem_set)
    unaligned = title_stems - set().union(*full_titles)
    aligned = {at: position for at, position in align(words, source.words).items() if words.stems[at] not in unaligned}
    missing = [at for at in words.content if at not in aligned and words.stems[at] not in title_stems]
    unknown = [at for at in missing if form(words.stems[at]) not in premise.forms]
    return {
        "words": len(words.words),
        "sentences": len(premise.sentences),
        "verbatim": claim.casefold().strip(" .") in premise.text,
        **dict(_missing_words(words, missing, "source")),
        **dict(_missing_words(words, unknown, "passages")),
        **dict(_negations(words, source.words)),
        **dict(_opposites(words, source.words)),
        **dict(_order(words, source, aligned, missing, title_stems)),
    }


def _missing_words(words: Words, missing: Sequence[int], where: str) -> Iterator[tuple[str, float]]:
    """Counts of the words at the positions `missing` and of the names and numbers among them, and the share of content words that are missing."""
    yield f"missing in {where}", len(missing)
    yield f"share missing in {where}", len(missing) / max(len(words.content), 1)
    yield f"names missing in {where}", sum(words.is_name(at) for at in missing)
    yield f"numbers missing in {where}", sum(words.is_number(at) for at in missing)


def _negations(words: Words, source: Words) -> Iterator[tuple[str, float]]:
    """Counts of negations: in the claim; in the source; the difference; those of the claim that the source lacks; those of the source that the claim
    omits although it contains the words near them."""

    def negated(text: Words) -> list[set[str]]:
        return [text.neighbours(at, 1, 2) for at in text.negators]

    in_claim, in_source = negated(words), negated(source)
    all_in_claim, all_in_source = set().union(*in_claim), set().union(*in_source)
    left_out = sum(
        bool(near) and len(near & words.stem_set) >= min(2, len(near)) and not (near & all_in_claim)
        for near in in_source
    )
    yield "negations", len(in_claim)
    yield "negations of source", len(in_source)
    yield "negations more", len(in_claim) - len(in_source)
    yield "negations not in source", sum(not (near & all_in_source) for near in in_claim)
    yield "negations left out", left_out


def _opposites(words: Words, source: Words) -> Iterator[tuple[str, float]]:
    """Of the claim's words that have an opposite and are missing in the source: how many have their opposite there, and how many there are in all."""
    source_words = set(source.lower)
    missing = [word for word in words.lower if word in OPPOSITES and word not in source_words]
    yield "opposites", sum(bool(OPPOSITES[word] & source_words) for word in missing)
    yield "turning words missing", len(missing)


def _order(
    words: Words, source: Source, aligned: Mapping[int, int], missing: Sequence[int], title_stems: Collection[str]
) -> Iterator[tuple[str, float]]:
    """To what degree the shared words keep their order and neighbours, where words are missing, and how long the source is."""
    positions = [aligned[at] for at in words.content if at in aligned]
    names = [at for at in words.content if words.is_name(at) and (at in aligned or words.stems[at] not in title_stems)]
    numbers = [at for at in words.content if words.is_number(at)]
    shared_names = [aligned[at] for at in names if at in aligned]
    comparable = aligned.keys() | set(missing)
    pairs = [
        (a, b) for a, b in pairwise(words.content) if {a, b} <= comparable and not _are_apart(source, aligned, a, b)
    ]
    in_sequence = sum(
        a in aligned and b in aligned and 0 < aligned[b] - aligned[a] <= b - a + _SLACK - 1 for a, b in pairs
    )
    between = [
        at for side in source.sides(positions) for at in source.words.content if side and min(side) < at < max(side)
    ]
    mentioned = {*words.stems, *source.aside}
    names_left_out = sum(
        (source.words.is_name(at) or source.words.is_number(at)) and source.words.stems[at] not in mentioned
        for at in between
    )
    yield "in order", sum(map(_longest_increase, source.sides(positions))) / max(len(positions), 1)
    yield "pairs kept", in_sequence / max(len(pairs), 1)
    yield "names kept", len(shared_names) / len(names) if names else any(map(words.is_name, words.content))
    yield "names turned round", max(map(_share_reversed, source.sides(shared_names)))
    yield "names among their neighbours", _min_share_of_neighbours(words, source, aligned, names)
    yield "numbers among their neighbours", _min_share_of_neighbours(words, source, aligned, numbers)
    yield "missing at the end", sum(at in missing for at in words.content[-2:])
    yield "longest run missing", _longest_run(words.content, set(missing))
    yield "names of source left out", names_left_out
    yield "words of source", len(source.words.words)
    yield "words added by a second sentence", source.added
    yield "second sentence refers back", source.joint > 0


def _longest_increase(positions: Sequence[int]) -> int:
    """The length of the longest increasing subsequence.

    >>> _longest_increase([3, 1, 2, 5])
    3
    """
    ends: list[int] = []
    for position in positions:
        at = bisect_left(ends, position)
        ends[at : at + 1] = [position]
    return len(ends)


def _share_reversed(positions: Sequence[int]) -> float:
    """The share of pairs in descending order.

    >>> _share_reversed([4, 1, 9])
    0.3333333333333333
    """
    pairs = len(positions) * (len(positions) - 1) / 2
    return sum(a > b for at, a in enumerate(positions) for b in positions[at + 1 :]) / max(pairs, 1)


def _are_apart(source: Source, aligned: Mapping[int, int], first: int, second: int) -> bool:
    """Whether two words of a claim are aligned with different sides of the source."""
    if first not in aligned or second not in aligned:
        return False
    return (aligned[first] >= source.joint) != (aligned[second] >= source.joint)


def _min_share_of_neighbours(words: Words, source: Source, aligned: Mapping[int, int], chosen: Sequence[int]) -> float:
    """The lowest share, among the chosen words, of a word's neighbours that are also near it in the source; 1 if no chosen word has such a share."""
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
            positions = [i for i, stem in enumerate(source.words.stems) if stem == words.stems[at]] or [aligned[at]]
            shares.append(
                max(sum(abs(aligned[other] - i) <= abs(other - at) + _SLACK for other in near) for i in positions)
                / len(near)
            )
    return min(shares, default=1.0)


def _longest_run(positions: Sequence[int], marked: set[int]) -> int:
    runs = groupby(positions, key=marked.__contains__)
    return max((len(list(run)) for is_marked, run in runs if is_marked), default=0)


FEATURES = tuple(_values("", Premise.of([])))


VERIFIER_FILE = "verifier.safetensors"
FORMAT = "modegraph verifier, 3"
HEADER = "verifier"
SHIPPED = Path(__file__).parent / VERIFIER_FILE
SECOND_STAGE = ("logit of trees", *OVERLAP, *FEATURES)
"""The inputs of the second stage."""
MAX_DEVIATIONS = 3.0
"""Standardised inputs are clipped at this many standard deviations, so that a very long sentence is not judged by its length alone."""
_SECOND_STAGE_ARRAYS = ("weight_S", "mean_S", "scale_S")


@dataclass(frozen=True)
class SecondStage:
    """A logistic regression over SECOND_STAGE: the weight of each input, and its mean and standard deviation in the training data."""

    weight_S: NDArray[np.float64]
    mean_S: NDArray[np.float64]
    scale_S: NDArray[np.float64]
    bias: float

    def standardised(self, input_nS: NDArray[np.float64]) -> NDArray[np.float64]:
        """(x − mean) / scale, clipped to ±MAX_DEVIATIONS: [n, S]."""
        return np.clip((input_nS - self.mean_S) / self.scale_S, -MAX_DEVIATIONS, MAX_DEVIATIONS)

    def logits(self, input_nS: NDArray[np.float64]) -> NDArray[np.float64]:
        """bias + Σ_S weight · standardised input: [n]."""
        return np.asarray(self.bias + (self.standardised(input_nS) * self.weight_S).sum(axis=1))


class Verifier(Protocol):
    """Judges whether passages support sentences."""

    @property
    def threshold(self) -> float:
        """The lowest probability at which a sentence is marked as unsupported."""

    def judge(self, claims: Sequence[str], premise: Premise, with_question: bool = False) -> NDArray[np.float64]:
        """The probability that the passages of `premise` do not support each of one or more claims: [n]. `with_question`: the claims begin with their
        questions (`claim_of`)."""


@dataclass(frozen=True)
class WordVerifier:
    """A word-based verifier: a forest that predicts logits, and the second stage or (without one) the temperature that turns them into probabilities."""

    forest: Forest
    temperature: float
    threshold: float
    second: SecondStage | None = None

    def judge(self, claims: Sequence[str], premise: Premise, with_question: bool = False) -> NDArray[np.float64]:
        return probability_of_readings(self, Readings.of((claim, premise) for claim in claims))


@dataclass(frozen=True)
class Readings:
    """FEATURES and OVERLAP of n claims: float32[n, F] and float64[n, O]."""

    features_nF: Floats
    overlap_nO: NDArray[np.float64]

    @classmethod
    def of(cls, claims: Iterable[tuple[str, Premise]]) -> Readings:
        """The readings of `claims`, one or more sentences, each with its passages."""
        rows = [(claim_features(claim, premise), overlaps(claim, premise.wordings)) for claim, premise in claims]
        return cls(np.stack([features for features, _ in rows]), np.array([overlap for _, overlap in rows]))


def second_stage_inputs(forest: Forest, readings: Readings) -> NDArray[np.float64]:
    """SECOND_STAGE of each claim: [n, S]."""
    logits_n = forest_logits(forest, readings.features_nF)
    return np.column_stack([logits_n, readings.overlap_nO, readings.features_nF.astype(np.float64)])


def probability_of_readings(verifier: WordVerifier, readings: Readings) -> NDArray[np.float64]:
    """The probability that each claim is unsupported, given its readings: [n]."""
    if verifier.second is None:
        return probabilities(forest_logits(verifier.forest, readings.features_nF), verifier.temperature)
    return probabilities(verifier.second.logits(second_stage_inputs(verifier.forest, readings)), 1.0)


def save_verifier(folder: Path, verifier: WordVerifier) -> None:
    """Write VERIFIER_FILE into `folder`."""
    second = verifier.second
    metadata = {
        "format": FORMAT,
        "features": FEATURES,
        "temperature": verifier.temperature,
        "threshold": verifier.threshold,
        "second_stage": None if second is None else {"inputs": SECOND_STAGE, "bias": second.bias},
    }
    arrays = {} if second is None else {name: getattr(second, name) for name in _SECOND_STAGE_ARRAYS}
    save_forest(folder / VERIFIER_FILE, HEADER, metadata, verifier.forest, arrays)


def word_verifier(spec: str) -> WordVerifier:
    """The word-based verifier in the folder or hub model `spec`, or SHIPPED for ""; UserError if there is none, or its file is invalid."""
    file = trained_file(spec, "verifier", VERIFIER_FILE) if spec else SHIPPED
    return _load_verifier(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load_verifier(file: Path, changed_ns: int) -> WordVerifier:
    del changed_ns
    with read_forest(file, HEADER, FORMAT, FEATURES) as (forest, header, opened):
        stage = header["second_stage"]
        second = None if stage is None else _second_stage(stage, *map(opened.get_tensor, _SECOND_STAGE_ARRAYS))
        return WordVerifier(forest, float(header["temperature"]), float(header["threshold"]), second)


def _second_stage(stage: Mapping[str, Any], *arrays: NDArray[np.float64]) -> SecondStage:
    """The second stage from a file; ValueError for inputs other than SECOND_STAGE, values that are not finite, or scales that are not positive."""
    if tuple(stage["inputs"]) != SECOND_STAGE or any(array.shape != (len(SECOND_STAGE),) for array in arrays):
        raise ValueError("its second stage was not trained on the inputs that this version computes")
    weight_S, mean_S, scale_S = arrays
    second = SecondStage(weight_S, mean_S, scale_S, float(stage["bias"]))
    if not (np.isfinite([*arrays]).all() and np.isfinite(second.bias) and (second.scale_S > 0).all()):
        raise ValueError("its second stage has values that are not finite, or scales that are not above 0")
    return second

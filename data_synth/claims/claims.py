"""Claims about passages: a sentence, the passage to check it against, and whether the passage supports it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from data_synth.claims.falsify import Surroundings, falsify, names_in
from data_synth.claims.restate import PassageSentence, restate
from data_synth.relevance.split import split_by_hash
from data_synth.rows import Dropped, Form, row_schema, split_problems
from graph.shared.ids import content_id
from graph.text.sentences import split_units

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
        "Sentences of passages, restated (`supported`: true; `kind`: how), and the same sentences with one thing changed so that "
        "the passage no longer supports them (`supported`: false; `kind`: a name, a number, a negation, two roles swapped, an opposite). "
        "Both are made by rules, without a model. All claims of a document are in one split. Train a verifier on them: `modegraph train verifier`."
    ),
    to_json=asdict,
    from_json=claim_from_json,
    schema=partial(row_schema, ClaimRow),
    problems=claim_problems,
    counts=_counts,
    lengths=lambda row: {"claim": len(row.claim.split()), "passage": len(row.passage.split())},
    texts=lambda row: (row.passage, *row.further, row.claim),
)
LABELLED_CLAIMS: Form[ClaimRow] = replace(
    CLAIMS,
    title="Sentences checked against passages, labelled by people",
    about=(
        "Sentences that people or models wrote, each with the passages that it is checked against and whether they support it (`supported`). A "
        "short answer is preceded by its question. `dataset` is the name of the set that a row comes from, `kind` the kind that the set states for it; the "
        "splits are those of the sets, with `val` as dev. "
        "Train the second stage of a verifier on them: `modegraph train verifier --set real=FOLDER`. The licences are those "
        "that the sets state; you may not be allowed to redistribute a model trained on a set that states none."
    ),
    made_by="data import support",
)


SHORTEST, LONGEST = 30, 400
"""Length in characters of the shortest and of the longest sentence used for a claim."""
NAMES_PER_PASSAGE = 5
"""Largest number of names of each passage that may replace names in claims about other passages."""
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

    Dropped for a passage without a usable sentence, and for a claim that cannot be falsified; a repeated claim is skipped.
    """
    named = [(passage, names_in(passage.text)) for passage in passages]
    names_elsewhere = [name for _, names in named for name in names[:NAMES_PER_PASSAGE]]
    for passage, names in named:
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

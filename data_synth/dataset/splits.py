"""Questions divided into train, dev and test by the hash of their ids: the same division for the same ids, counts and seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_synth.relevance.gold import read_gold_questions, with_sentences
from graph.shared.errors import UserError
from graph.shared.ids import content_id
from graph.shared.jsonl import read_jsonl


def split_questions(
    file: Path, corpus: Path, counts: Mapping[str, int], seed: int, anew: bool = False
) -> list[dict[str, Any]]:
    """The rows of `file` that fall to a split, in their order, with that split and with their gold sentences as evidence.

    `counts` are the questions of each split; those left over are left out. A split that the file states holds: test is drawn from
    its test questions, train and dev from the others, unless they are divided `anew`. Sentences that the rows number are read from
    `corpus`. UserError where a split has fewer questions than asked for.
    """
    asked = {each.question.id: each for each in with_sentences(read_gold_questions(file), corpus)}
    order = sorted(asked, key=lambda one: content_id(str(seed), one))
    chosen: dict[str, str] = {}
    for split in ("test", "dev", "train"):
        free = [one for one in order if one not in chosen and (anew or may_be(asked[one].stated_split, split))]
        if len(free) < counts.get(split, 0):
            found = f"{file}: {len(free):,} questions are left for {split}"
            raise UserError(found, f"{counts[split]:,}, as --{split} asks for", "ask for fewer, or divide them --anew")
        chosen |= dict.fromkeys(free[: counts.get(split, 0)], split)
    rows = [{**row, "split": chosen[row["id"]]} for _, row in read_jsonl(file) if row["id"] in chosen]
    evidence = {one: [{"id": q.source, "quote": q.text} for q in asked[one].question.evidence] for one in chosen}
    return [{**row, "evidence": evidence[row["id"]]} if evidence[row["id"]] else row for row in rows]


def may_be(stated: str | None, split: str) -> bool:
    """Whether a question whose file states a split may fall to `split`.

    >>> may_be(None, "test"), may_be("dev", "train"), may_be("dev", "test"), may_be("test", "train")
    (True, True, False, False)
    """
    return stated is None or (stated == "test") == (split == "test")

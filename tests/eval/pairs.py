"""Pairs of an answer and its references: always our own, and real ones if the public sets are beside the checkout."""

import itertools
import json
import random

import pytest

from graph.shared.jsonl import read_jsonl
from tests.places import DATA, ROOT

OWN_PAIRS, REAL_PAIRS = 300, 600
Pair = tuple[str, tuple[str, ...]]
ODD = [
    "",
    "The",
    "a an the",
    "3.14",
    "!?",
    "Ünïcode naïveté",
    "yes",
    "No.",
    "C#",
    "10:30–11:00",
    "東京 都",
    "don't",
    "a" * 300,
]


def own_pairs() -> list[Pair]:
    """Reasonings and answers from examples/questions.jsonl paired with each other, some with their words shuffled by seed, and odd texts."""
    rows = [json.loads(line) for line in (ROOT / "examples" / "questions.jsonl").read_text("utf-8").splitlines()]
    rng = random.Random(7)
    found: list[Pair] = [(row["reasoning"], tuple(row["answers"])) for row in rows]
    for row, other in itertools.pairwise(rows):
        words = row["reasoning"].split()
        rng.shuffle(words)
        found += [(" ".join(words), (row["reasoning"],)), (other["answers"][0], tuple(row["answers"]))]
        found.append((f"{row['reasoning']} {other['reasoning']}", (row["reasoning"], other["reasoning"])))
    odd: list[Pair] = [(left, (right, "boat")) for left in ODD for right in ODD if right]
    return rng.sample(found, OWN_PAIRS) + odd


def real_pairs() -> list[Pair]:
    """Model responses and written explanations against gold answers: QA-Feedback, 2WikiMultihopQA, PubMedQA."""
    needed = [
        DATA / name
        for name in ("qa_feedback_k4/items.jsonl", "2wiki_train500/questions.jsonl", "pubmedqa_l/items.jsonl")
    ]
    missing = [str(file) for file in needed if not file.is_file()]
    if missing:
        pytest.skip(f"public sets are not here: {missing[0]} (set MODEGRAPH_DATA to their folder)")
    feedback, wiki, pubmed = ([row for _, row in read_jsonl(file)] for file in needed)
    found: list[Pair] = [(response["text"], (row["gold"],)) for row in feedback for response in row["responses"]]
    found += [(row["explanation"], tuple(row["answers"])) for row in wiki]
    found += [(row["qa_pairs"][-1]["answer"], tuple(row["answers"])) for row in wiki]
    found += [(row["reasoning"], (row["context"][-1], row["label"])) for row in pubmed]
    return random.Random(11).sample(found, REAL_PAIRS)

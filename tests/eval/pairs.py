"""Pairs of an answer and its references: from our examples, and from the public sets if they are available."""

import itertools
import json
import random

import pytest

from graph.shared.jsonl import read_jsonl
from tests.places import DATA, ROOT

EXAMPLE_PAIRS, PUBLIC_PAIRS = 300, 600
Pair = tuple[str, tuple[str, ...]]
UNUSUAL_STRINGS = [
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


def example_pairs() -> list[Pair]:
    """Reasoning and answers of examples/questions.jsonl, paired within a question or with the next, some with shuffled words; and unusual strings."""
    rows = [json.loads(line) for line in (ROOT / "examples" / "questions.jsonl").read_text("utf-8").splitlines()]
    rng = random.Random(7)
    found: list[Pair] = [(row["reasoning"], tuple(row["answers"])) for row in rows]
    for row, other in itertools.pairwise(rows):
        words = row["reasoning"].split()
        rng.shuffle(words)
        found += [(" ".join(words), (row["reasoning"],)), (other["answers"][0], tuple(row["answers"]))]
        found.append((f"{row['reasoning']} {other['reasoning']}", (row["reasoning"], other["reasoning"])))
    unusual: list[Pair] = [(left, (right, "boat")) for left in UNUSUAL_STRINGS for right in UNUSUAL_STRINGS if right]
    return rng.sample(found, EXAMPLE_PAIRS) + unusual


def public_pairs() -> list[Pair]:
    """Model responses, explanations and reasoning, each with its references: QA-Feedback, 2WikiMultihopQA, PubMedQA."""
    needed = [
        DATA / name
        for name in ("qa_feedback_k4/items.jsonl", "2wiki_train500/questions.jsonl", "pubmedqa_l/items.jsonl")
    ]
    missing = [str(file) for file in needed if not file.is_file()]
    if missing:
        pytest.skip(f"public sets not found: {missing[0]} (set MODEGRAPH_DATA to their folder)")
    feedback, wiki, pubmed = ([row for _, row in read_jsonl(file)] for file in needed)
    found: list[Pair] = [(response["text"], (row["gold"],)) for row in feedback for response in row["responses"]]
    found += [(row["explanation"], tuple(row["answers"])) for row in wiki]
    found += [(row["qa_pairs"][-1]["answer"], tuple(row["answers"])) for row in wiki]
    found += [(row["reasoning"], (row["context"][-1], row["label"])) for row in pubmed]
    return random.Random(11).sample(found, PUBLIC_PAIRS)

"""Made-up relevance data: for each question, the propositions with the highest sums of `similarity` and `title_in_seeds` are relevant."""

from typing import Any

import numpy as np

from data_synth.relevance.relevance_form import RelevanceRow, relevance_to_json
from graph.documents.questions import SPLITS
from graph.retrieve.learned.light import FEATURES

SIMILARITY, TITLE = FEATURES.index("similarity"), FEATURES.index("title_in_seeds")


def make_rows(split: str, questions: int, seed: int, name: str = "a") -> list[RelevanceRow]:
    """Ten propositions per question; the two with the highest `similarity` + `title_in_seeds` + noise are relevant."""
    random = np.random.default_rng([seed, SPLITS.index(split), len(name)])
    rows = []
    for question in range(questions):
        features_nF = random.uniform(0, 1, (10, len(FEATURES)))
        worth_n = features_nF[:, SIMILARITY] + features_nF[:, TITLE] + random.normal(0, 0.1, 10)
        relevant = set(np.argsort(-worth_n)[:2].tolist())
        for place in range(10):
            key = f"{name}-{split}-{question}-{place}"
            rows.append(
                RelevanceRow(
                    id=key,
                    question_id=f"{name}-{split}-{question}",
                    question=f"What is {name} {split} {question}?",
                    kind="bridge",
                    split=split,
                    proposition_id=f"proposition {key}",
                    proposition=f"It is {key}.",
                    passage_ids=(f"passage {key}",),
                    label=int(place in relevant),
                    labelled_by="sentence",
                    found_by="own" if place < 8 or place in relevant else "walk",
                    features=tuple(features_nF[place].tolist()),
                )
            )
    return rows


def rows_of_all_splits(name: str = "a", seed: int = 0) -> list[dict[str, Any]]:
    """Rows of the train, dev and test splits, as JSON."""
    sizes = {"train": 150, "dev": 40, "test": 40}
    return [relevance_to_json(row) for split, size in sizes.items() for row in make_rows(split, size, seed, name)]

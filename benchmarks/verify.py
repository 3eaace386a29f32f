"""How well a verifier separates supported from falsified ("broken") sentences, on sets that it was not trained on, compared with a rule.

Claims are made from the passages as `modegraph synth claims` makes them, or by fusing two sentences; for PubMedQA also from the conclusions, which paraphrase
the abstract or say more than it does. The rule accepts a claim if a sentence of the passage has a cosine to it of at least .45 and the passage contains
every number of the claim (eval/metrics/grounding.py). Milliseconds are processor time.
Run: python -P benchmarks/verify.py FOLDER_OF_SETS [--verifier FOLDER] [--claims 2000] [--json]
"""

import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from benchmarks.attribute import excerpt_of
from benchmarks.report import Check, new_parser, print_report
from data_synth.claims.claims import ClaimPassage, ClaimRow, Surroundings, claim_rows, falsify, names_in
from data_synth.claims.restate import PassageSentence, fuse, restate
from data_synth.rows import Dropped
from eval.metrics.grounding import claims_of, supported_by_encoder
from graph.answer.support import SupportChecker, open_verifier
from graph.answer.verifier import Premise, Verifier
from graph.models.encoder import open_encoder
from graph.shared.jsonl import read_jsonl
from graph.types import Encoder, Excerpt

RULE_CLAIMS = 100
"""Number of claims per set that the rule checks: few, because it has to encode every sentence of their passages."""
MIN_ACCURACY, MAX_MS = 0.85, 10.0
ANSWERS = 100


@dataclass(frozen=True)
class Item:
    """A claim, its passage, whether the passage supports it, and how it was made."""

    title: str
    passage: str
    claim: str
    supported: bool
    kind: str


def corpus_items(folder: Path, limit: int) -> list[Item]:
    """Pairs of a supported and a broken claim, made from passages of a corpus."""
    rows = [row for _, row in read_jsonl(folder / "corpus.jsonl")]
    random.Random(0).shuffle(rows)
    return items_of([ClaimPassage(row["id"], row["title"], row["text"]) for row in rows[:limit]], limit)


def fused_items(folder: Path, limit: int) -> list[Item]:
    """Claims that combine two sentences of a passage, and broken versions of them."""
    rows = [row for _, row in read_jsonl(folder / "corpus.jsonl")]
    random.Random(0).shuffle(rows)
    items: list[Item] = []
    for row in islice(rows, limit):
        sentences, names, rng = claims_of(row["text"]), names_in(row["text"]), random.Random(row["id"])
        pairs = ((first, second) for index, second in enumerate(sentences) for first in sentences[:index])
        for claim in filter(None, (fuse(first, second, row["title"], rng) for first, second in pairs)):
            broken = falsify(claim, Surroundings(row["text"], names, ()), rng)
            if broken is not None:
                items.append(Item(row["title"], row["text"], claim, True, "fused"))
                items.append(Item(row["title"], row["text"], broken[0], False, broken[1]))
    return items[:limit]


def abstract_items(folder: Path, limit: int) -> list[Item]:
    """Pairs of a supported and a broken claim, made from PubMedQA's abstracts without their conclusions."""
    rows = [row for _, row in read_jsonl(folder / "items.jsonl")]
    return items_of([ClaimPassage(row["id"], "", " ".join(row["context"])) for row in rows], limit)


def conclusion_items(folder: Path, limit: int) -> list[Item]:
    """Sentences of PubMedQA's conclusions, with their abstract as the passage, and broken versions of them."""
    items: list[Item] = []
    for _, row in read_jsonl(folder / "items.jsonl"):
        abstract, rng = " ".join(row["context"]), random.Random(row["id"])
        for claim in claims_of(row["reasoning"]):
            broken = falsify(claim, Surroundings(abstract, names_in(abstract), ()), rng)
            if broken is not None:
                items += [
                    Item("", abstract, claim, True, "conclusion"),
                    Item("", abstract, broken[0], False, broken[1]),
                ]
    return items[:limit]


def items_of(passages: Sequence[ClaimPassage], limit: int) -> list[Item]:
    """The first `limit` claims that `synth claims --per-passage 1` makes from the passages."""
    results: Iterator[ClaimRow | Dropped] = claim_rows(passages, per_passage=1, seed=0)
    rows = [row for row in results if isinstance(row, ClaimRow)][:limit]
    return [Item(row.title, row.passage, row.claim, row.supported, row.kind) for row in rows]


@dataclass(frozen=True)
class PlantedAnswer:
    """An answer: its excerpts, its sentences, and the one of these sentences that the excerpts do not support."""

    excerpts: tuple[Excerpt, ...]
    sentences: tuple[str, ...]
    wrong: str


def planted_answers(folder: Path, limit: int) -> Iterator[PlantedAnswer]:
    """Answers to multi-hop questions: the supporting sentences, restated and cited, and a broken sentence of a passage that is not gold."""
    corpus = {row["id"]: row for _, row in read_jsonl(folder / "corpus.jsonl")}
    rows = [row for _, row in read_jsonl(folder / "questions.jsonl")]
    answers = (planted_answer(row, corpus) for row in rows)
    yield from islice((answer for answer in answers if answer is not None), limit)


def planted_answer(row: Mapping[str, Any], corpus: Mapping[str, Mapping[str, Any]]) -> PlantedAnswer | None:
    """The answer to one question; None if there are no supporting sentences, or if none of the sentences tried, one per other passage, could be broken."""
    rng, passages = random.Random(row["id"]), [corpus[passage] for passage in row["context_ids"]]
    excerpts = tuple(excerpt_of(passage["id"], passage["title"], passage["text"]) for passage in passages)
    number_of = {passage["id"]: number for number, passage in enumerate(passages, start=1)}
    sentences = [
        with_citation(
            restate(PassageSentence(claims_of(corpus[source]["text"]), index, corpus[source]["title"]), rng)[0],
            number_of[source],
        )
        for source, index in row["supporting_sentences"]
        if index < len(claims_of(corpus[source]["text"]))
    ]
    others = [passage for passage in passages if passage["id"] not in row["gold_ids"]]
    for other in rng.sample(others, len(others)):
        claim = rng.choice(claims_of(other["text"]) or [""])
        broken = falsify(claim, Surroundings(other["text"], names_in(other["text"]), ()), rng)
        if broken is not None and sentences:
            wrong = with_citation(broken[0], number_of[other["id"]])
            return PlantedAnswer(excerpts, (*sentences, wrong), wrong)
    return None


def with_citation(claim: str, number: int) -> str:
    """The claim with a citation of excerpt `number`."""
    return f"{claim.rstrip('. ')} [{number}]."


def measure_planted(answers: Sequence[PlantedAnswer], verifier: Verifier) -> dict[str, float]:
    """The shares of planted and of supported sentences that are marked in complete answers, and the processor time per sentence."""
    started = time.process_time()
    marked = [
        {
            mark.text
            for mark in SupportChecker(answer.excerpts, verifier).unsupported("reason", " ".join(answer.sentences))
        }
        for answer in answers
    ]
    seconds = time.process_time() - started
    supported_marked = [
        sentence in marks
        for answer, marks in zip(answers, marked, strict=True)
        for sentence in answer.sentences
        if sentence != answer.wrong
    ]
    return {
        "answers": len(answers),
        "planted sentences marked": float(
            np.mean([answer.wrong in marks for answer, marks in zip(answers, marked, strict=True)])
        ),
        "supported sentences marked": float(np.mean(supported_marked)),
        "milliseconds per sentence": 1000 * seconds / sum(len(answer.sentences) for answer in answers),
    }


def measure(items: Sequence[Item], verifier: Verifier, encoder: Encoder) -> dict[str, float]:
    """Figures of the verifier on all items, and of the rule on the first RULE_CLAIMS items."""
    started = time.process_time()
    probability_n = np.array(
        [verifier.judge([item.claim], Premise.of([(item.title, item.passage)]))[0] for item in items]
    )
    milliseconds = 1000 * (time.process_time() - started) / len(items)
    broken_n = np.array([not item.supported for item in items])
    marked_n = probability_n >= verifier.threshold
    rule_broken_n = np.array([not supported_by_rule(item, encoder) for item in items[:RULE_CLAIMS]])
    kind_n = [f"{'supported' if item.supported else 'broken'}, {item.kind}" for item in items]
    kinds = sorted(set(kind_n))
    return {
        "claims": len(items),
        "balanced accuracy": balanced_accuracy_score(broken_n, marked_n),
        "AUROC": roc_auc_score(broken_n, probability_n),
        "broken claims marked": marked_n[broken_n].mean(),
        "supported claims marked": marked_n[~broken_n].mean(),
        "rule: balanced accuracy": balanced_accuracy_score(broken_n[:RULE_CLAIMS], rule_broken_n),
        "rule: broken claims marked": rule_broken_n[broken_n[:RULE_CLAIMS]].mean(),
        "rule: supported claims marked": rule_broken_n[~broken_n[:RULE_CLAIMS]].mean(),
        "milliseconds per claim": milliseconds,
        **{
            f"marked claims, {kind}": float(marked_n[np.array([item_kind == kind for item_kind in kind_n])].mean())
            for kind in kinds
        },
    }


def supported_by_rule(item: Item, encoder: Encoder) -> bool:
    """Whether the rule accepts the claim as supported."""
    sentences = claims_of(item.passage)
    vectors = encoder.encode([item.claim, *sentences])
    return bool(supported_by_encoder([item.claim], vectors[:1], sentences, vectors[1:])[0])


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verifier", default="")
    parser.add_argument("--claims", type=int, default=2000)
    arguments = parser.parse_args()
    verifier, encoder = open_verifier(arguments.verifier), open_encoder("minilm")
    pubmed = arguments.folder / "pubmedqa_l"
    multi_hop = ("hotpotqa_train", "musique_train100", "2wiki_train500")
    sets = {name: corpus_items(arguments.folder / name, arguments.claims) for name in (*multi_hop, "locomo_dev")}
    sets["pubmedqa_l"] = abstract_items(pubmed, arguments.claims)
    sets["pubmedqa_l, conclusions"] = conclusion_items(pubmed, arguments.claims)
    sets |= {f"{name}, fused": fused_items(arguments.folder / name, arguments.claims) for name in multi_hop}
    measured = {name: measure(items, verifier, encoder) for name, items in sets.items()}
    figures = {
        f"{name}: {figure}": float(value)
        for name, set_figures in measured.items()
        for figure, value in set_figures.items()
    }
    checks = [
        Check(f"balanced accuracy on {name}", measured[name]["balanced accuracy"], MIN_ACCURACY, True)
        for name in ("hotpotqa_train", "pubmedqa_l")
    ]
    planted = measure_planted(list(planted_answers(arguments.folder / "hotpotqa_train", ANSWERS)), verifier)
    figures |= {f"answers, hotpotqa_train: {name}": value for name, value in planted.items()}
    checks.append(Check("planted sentences marked", planted["planted sentences marked"], 0.8, True))
    checks.append(Check("supported sentences marked", planted["supported sentences marked"], 0.05, False))
    slowest = max(set_figures["milliseconds per claim"] for set_figures in measured.values())
    checks.append(Check("milliseconds per claim", slowest, MAX_MS, False))
    return print_report("verify", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

"""Milliseconds per query without the encoder: every mode on a given index, and `hops` on a synthetic index of a million propositions.

Run: python -P benchmarks/retrieve.py [--index FOLDER --questions FILE.jsonl]... [--propositions 1000000] [--json].
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import scipy.sparse as sp

from benchmarks.report import Check, new_parser, print_report, seconds_of
from graph.documents.questions import read_questions
from graph.index.index import EncoderSource, Index, open_index
from graph.models.encoder import open_encoder, unit_rows
from graph.retrieve.parts.query import Query, RetrieveSettings
from graph.retrieve.retrieve import STRATEGIES
from graph.shared.modes import Mode
from graph.store.columns.strings import Strings
from graph.store.data import (
    DocumentColumns,
    EntityColumns,
    IndexData,
    PassageColumns,
    PropositionColumns,
    SummaryColumns,
    TermColumns,
    TopicColumns,
    block,
)
from graph.store.index_settings import IndexSettings
from graph.store.manifest import Manifest
from graph.store.vectors import Vectors, cosine_quantiles
from graph.types import Floats, Prompts

DIMENSIONS = 384
QUERIES = 200
TARGET_MS: dict[Mode, float] = {"hops": 25, "paths": 25, "local": 40, "hierarchy": 5}
LARGE_TARGET_MS = 100


def median_ms(index: Index, queries: Sequence[Query], mode: Mode) -> float:
    """Median milliseconds per query, after a call that fills the caches of the mode."""
    ask = partial(STRATEGIES[mode], index, settings=RetrieveSettings(mode=mode, top_k=10))
    ask(queries[0])
    return 1000 * median(seconds_of(partial(ask, query)) for query in queries)


def time_index(folder: Path, questions: Path) -> tuple[dict[str, float], list[Check]]:
    """Median milliseconds per query by mode, over the first QUERIES questions (modes without a target: the first 20), and the checks of the targets."""
    index = open_index(folder)
    texts = [question.text for question in read_questions(questions)][:QUERIES]
    queries = [Query(text, vector_D) for text, vector_D in zip(texts, index.encode_queries(texts), strict=True)]
    figures = {"passages": len(index.data.passage_ids), "propositions": len(index.data.proposition_ids)}
    times = {mode: median_ms(index, queries if mode in TARGET_MS else queries[:20], mode) for mode in STRATEGIES}
    name = folder.name
    checks = [Check(f"{name}: {mode}, ms", times[mode], target, at_least=False) for mode, target in TARGET_MS.items()]
    return {f"{name}: {key}": value for key, value in {**figures, **times}.items()}, checks


def invented_index(propositions: int) -> Index:
    """An index of random vectors in which every passage has four propositions, and every proposition mentions two entities."""
    draw = np.random.default_rng(0)
    passages, documents, entities = propositions // 4, propositions // 12, propositions // 3
    proposition_passages = np.repeat(np.arange(passages), 4)
    empty, none, titles = empty_block(0, passages), Strings.of([]), column("title ", documents)
    mentioned_entities = np.minimum((entities * draw.random(2 * propositions) ** 2).astype(np.int64), entities - 1)
    mentions = block(np.repeat(np.arange(propositions), 2), mentioned_entities, (propositions, entities))
    titles_of_entities = block(draw.integers(0, entities, documents), np.arange(documents), (entities, documents))
    data = IndexData.of(
        DocumentColumns(
            document_sources=column("d", documents),
            document_titles=titles,
            document_metadata=Strings.of(["{}"] * documents),
            title_keys=titles,
            title_document_T=np.arange(documents),
        ),
        PassageColumns(
            passage_ids=column("p", passages),
            passage_texts=column("passage ", passages),
            passage_document_P=np.arange(passages) // 3,
            passage_order_P=np.arange(passages) % 3,
            passage_start_P=np.zeros(passages, np.int64),
            passage_end_P=np.ones(passages, np.int64),
            passage_vectors_PD=Vectors.of(random_rows(draw, passages)),
            passage_next_PP=empty_block(passages, passages),
        ),
        TermColumns(
            term_texts=none,
            term_count_WP=empty,
            term_passages_W=np.zeros(0, np.int64),
            passage_terms_P=np.ones(passages, np.int64),
            term_idf_W=np.zeros(0, np.float32),
            term_norm_P=np.ones(passages),
        ),
        PropositionColumns(
            proposition_ids=column("n", propositions),
            proposition_texts=column("proposition ", propositions),
            proposition_vectors_ND=Vectors.of(random_rows(draw, propositions)),
            occurrence_proposition_M=np.arange(propositions),
            occurrence_passage_M=proposition_passages,
            occurrence_start_M=np.zeros(propositions, np.int64),
            occurrence_end_M=np.ones(propositions, np.int64),
            passage_proposition_PN=block(proposition_passages, np.arange(propositions), (passages, propositions)),
            cosine_quantiles_Z=cosine_quantiles(np.zeros((0, DIMENSIONS), np.float32)),
        ),
        EntityColumns(
            entity_ids=column("e", entities),
            entity_texts=column("entity ", entities),
            entity_vectors_ED=Vectors.of(np.zeros((entities, 1), np.float32)),
            proposition_entity_NE=mentions,
            entity_document_EU=titles_of_entities,
            synonym_EE=empty_block(entities, entities),
        ),
        TopicColumns(
            topic_ids=none,
            topic_texts=none,
            topic_proposition_KN=empty_block(0, propositions),
        ),
        SummaryColumns(
            summary_ids=none,
            summary_texts=none,
            summary_layer_S=np.zeros(0, np.int64),
            summary_vectors_SD=Vectors.of(np.zeros((0, DIMENSIONS), np.float32)),
            summary_member_SX=empty,
            similarity_XX=empty_block(passages, passages),
        ),
    )
    folder, manifest = Path("invented"), Manifest("invented", 1, {}, "", "", {}, {}, {}, None, Prompts(), 0, False)
    return Index(folder, manifest, IndexSettings(), data, EncoderSource("minilm", manifest, folder, open_encoder))


def empty_block(rows: int, columns: int) -> sp.csr_array:
    """A block without entries."""
    return block(np.zeros(0, np.int64), np.zeros(0, np.int64), (rows, columns))


def column(prefix: str, count: int) -> Strings:
    """`count` numbered strings of equal length."""
    return Strings.of([f"{prefix}{row:07d}" for row in range(count)])


def random_rows(draw: np.random.Generator, count: int) -> Floats:
    """Random unit vectors as rows, drawn in chunks."""
    rows = np.empty((count, DIMENSIONS), np.float32)
    for start in range(0, count, 100_000):
        part = rows[start : start + 100_000]
        part[:] = unit_rows(draw.standard_normal(part.shape, dtype=np.float32))
    return rows


def time_invented(propositions: int) -> float:
    """Median milliseconds per query of `hops` on a synthetic index; each query is near one passage and names one document."""
    index = invented_index(propositions)
    draw = np.random.default_rng(1)
    rows = draw.integers(0, len(index.data.passage_ids), 50)
    vectors_QD = unit_rows(
        index.data.passage_vectors_PD[rows] + 0.05 * draw.standard_normal((50, DIMENSIONS), np.float32)
    )
    texts = [f"What became of Title {int(row) // 3:07d} in the end?" for row in rows]
    return median_ms(index, [Query(text, vector_D) for text, vector_D in zip(texts, vectors_QD, strict=True)], "hops")


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--index", type=Path, action="append", default=[])
    parser.add_argument("--questions", type=Path, action="append", default=[])
    parser.add_argument("--propositions", type=int, default=1_000_000, help="size of the synthetic index; 0 to skip it")
    arguments = parser.parse_args()
    figures: dict[str, float | str] = {}
    checks: list[Check] = []
    for folder, questions in zip(arguments.index, arguments.questions, strict=True):
        more, more_checks = time_index(folder, questions)
        figures |= more
        checks += more_checks
    if arguments.propositions:
        large = time_invented(arguments.propositions)
        figures |= {"invented: propositions": arguments.propositions, "invented: hops": large}
        checks.append(Check("invented: hops, ms", large, LARGE_TARGET_MS, at_least=False))
    return print_report("retrieve", figures, checks, arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())

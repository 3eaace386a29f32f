"""Estimates the work of a run of `modegraph index`, without calling a language model or changing the index.

Counts of documents and passages are exact. For the extractor llm the propositions, and so the texts to encode, are estimated from
those that rules extract; the encoder's tokenizer counts tokens (an encoder that is only on the hub is downloaded), and reply
lengths are estimated from the passages.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from graph.build.build import without_nul
from graph.build.read_passages import few_shot_examples, imported_rows
from graph.build.stores import check_index_encoder, check_settings, open_store, stored_settings
from graph.documents.split import split_passages
from graph.extract.entities import entity_key
from graph.extract.extraction import PendingDocument
from graph.extract.imported import Row, read_imported
from graph.extract.llm import SAMPLED_PASSAGES, Domain, Prompt, domain_request
from graph.shared.ids import content_id
from graph.store.arrays import load_arrays
from graph.store.data import VECTOR_FIELDS, IndexData
from graph.store.embedding_cache import PendingVectors
from graph.store.index_settings import IndexSettings
from graph.store.manifest import MANIFEST, read_manifest
from graph.store.rows import Store, document_hash
from graph.types import CompletionRequest, Document, OpenEncoder, Passage

REPLY_TOKENS_PER_PASSAGE_TOKEN = 4.0
"""The ratio in the few-shot example that modegraph ships, whose reply is JSON with the propositions, their entities and their topics."""
SUMMARY_CALLS = "the calls for summaries, one or more for each new chunk or community"
"""Calls that cannot be counted before everything is encoded."""

Kind = Literal["new", "changed", "unchanged", "waiting", "not encoded"]


@dataclass(frozen=True)
class Prices:
    """The prices of a million prompt tokens and of a million reply tokens."""

    prompt: float
    reply: float


@dataclass(frozen=True)
class BuildPlan:
    """The work of a run: documents by kind, passages to read, texts to encode, model calls and tokens. The texts to encode, which include those that an
    unfinished run left, are counted without summaries and without terms of texts in scripts that have no letter case.

    `waiting` documents were stored by a run that did not finish; calls already in the index's ledger are counted too, so for these
    documents calls, tokens and money are upper bounds. `money` is None without prices. `not_counted` describes the calls that
    these figures leave out, "" if none.
    """

    new: int
    changed: int
    unchanged: int
    waiting: int
    passages: int
    encoder_texts: int
    model_calls: int
    prompt_tokens: int
    reply_tokens: int
    money: float | None
    not_counted: str


def plan_build(
    folder: Path | str,
    documents: Iterable[Document],
    settings: IndexSettings,
    open_encoder: OpenEncoder,
    prices: Prices | None = None,
) -> BuildPlan:
    """The work that `build_index` would do with the same arguments; `folder` need not be an index yet."""
    folder = Path(folder)
    encoder = open_encoder(settings.encoder)
    rows = imported_rows(settings)
    split = partial(split_passages, max_tokens=settings.max_passage_tokens, count_tokens=encoder.count_tokens)
    kinds: Counter[Kind] = Counter()
    texts: set[str] = set()
    calls: list[tuple[int, int]] = []
    sample: list[Passage] = []
    prompt = Prompt(few_shot_examples(settings), settings.max_reply_tokens)
    passages = 0
    with _open_if_exists(folder) as store:
        not_encoded = set[str]()
        if store is not None:
            check_settings(store, settings)
            check_index_encoder(store, encoder, folder)
            not_encoded = _sources_not_encoded(folder, store)
        for kind, document in _classify(store, documents, rows, not_encoded):
            kinds[kind] += 1
            if kind == "unchanged" and document.source not in not_encoded:
                continue
            all_passages = split(document)
            texts |= _text_ids(PendingDocument(document, all_passages), rows)
            if kind in ("unchanged", "not encoded"):
                continue
            read_ids = store.passage_ids(document.source) if store is not None and kind == "waiting" else set()
            to_read = tuple(passage for passage in all_passages if passage.id not in read_ids)
            passages += len(to_read)
            for passage in to_read if settings.extractor == "llm" else ():
                calls.append(_call_tokens(prompt.request(passage, Domain(), 0), passage.text, encoder.count_tokens))
                sample = [*sample, passage][:SAMPLED_PASSAGES]
        if sample and settings.infer_domain and (store is None or store.get_meta("domain") is None):
            calls.append(_call_tokens(domain_request(sample), "", encoder.count_tokens))
        texts -= _known_vectors(folder)
    prompt_tokens, reply_tokens = sum(prompt for prompt, _ in calls), sum(reply for _, reply in calls)
    return BuildPlan(
        new=kinds["new"],
        changed=kinds["changed"],
        unchanged=kinds["unchanged"],
        waiting=kinds["waiting"],
        passages=passages,
        encoder_texts=len(texts),
        model_calls=len(calls),
        prompt_tokens=prompt_tokens,
        reply_tokens=reply_tokens,
        money=None if prices is None else (prompt_tokens * prices.prompt + reply_tokens * prices.reply) / 1e6,
        not_counted=SUMMARY_CALLS if settings.summary_model else "",
    )


def _call_tokens(request: CompletionRequest, passage: str, count_tokens: Callable[[str], int]) -> tuple[int, int]:
    """The tokens of a call's prompt, and of its reply as estimated from `passage`; for an empty `passage`, the reply counts as `request.max_tokens`."""
    reply = int(count_tokens(passage) * REPLY_TOKENS_PER_PASSAGE_TOKEN) if passage else request.max_tokens
    return sum(count_tokens(message.content) for message in request.messages), min(reply, request.max_tokens)


def _open_if_exists(folder: Path) -> AbstractContextManager[Store | None]:
    return open_store(folder) if stored_settings(folder) is not None else nullcontext()


def _classify(
    store: Store | None, documents: Iterable[Document], rows: Mapping[str, Row], not_encoded: set[str]
) -> Iterator[tuple[Kind, Document]]:
    """Every document passed in, and every other one of the index that waits or is `not_encoded`, with its kind."""
    hashes = store.document_hashes() if store is not None else {}
    waiting = set(store.sources_to_extract()) if store is not None else set()
    others = waiting | not_encoded
    for document in map(without_nul, documents):
        known = hashes.get(document.source)
        input_hash = rows[document.source].hash if document.source in rows else ""
        if known != document_hash(document, input_hash):
            yield ("new" if known is None else "changed"), document
        else:
            yield ("waiting" if document.source in waiting else "unchanged"), document
        others.discard(document.source)
    if store is not None:
        for source in sorted(others):
            yield ("waiting" if source in waiting else "not encoded"), store.document(source)


def _text_ids(item: PendingDocument, rows: Mapping[str, Row]) -> set[str]:
    """Ids of the texts to encode for a document: its passages, and the propositions and entities of its imported row or, without one, those that rules
    extract (for the extractor llm, an estimate).
    """
    ids = {passage.id for passage in item.passages}
    for reading in read_imported(item, rows):
        for occurrence in reading.occurrences:
            ids.add(content_id("proposition", occurrence.text))
            ids |= {content_id("entity", entity_key(entity)) for entity in occurrence.entities}
    return ids


def _sources_not_encoded(folder: Path, store: Store) -> set[str]:
    """The stored documents whose texts may lack vectors, because no generation has been derived since they were written."""
    changed = store.changed_since(read_manifest(folder).generation) if (folder / MANIFEST).exists() else None
    sources = set(store.sources())
    return sources if changed is None else sources.intersection(changed)


def _known_vectors(folder: Path) -> set[str]:
    """Ids of the texts that are already encoded."""
    known = set(PendingVectors(folder, check=False).ids)
    if (folder / MANIFEST).exists():
        last = load_arrays(folder, IndexData)
        for ids, _ in VECTOR_FIELDS.values():
            known |= set(getattr(last, ids))
    return known

"""Connects the store and the extractors: chooses the extractor, passes the waiting documents to it, and commits its readings.

A group of readings and the status of its documents are committed in one transaction: if a run is killed, the next run continues
with the passages that have no reading. A model's finished calls are also in `LEDGER`, committed one by one, so no call is made twice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, groupby
from pathlib import Path

from graph.errors import UserError
from graph.extract.extraction import PendingDocument, ReadDocuments, Reading
from graph.extract.imported import Row, load_extraction, read_imported
from graph.extract.llm import SAMPLED_PASSAGES, Domain, Prompt, infer_domain, read_by_model
from graph.extract.rules import read_by_rules
from graph.shared.console import say, track
from graph.shared.ids import content_id
from graph.store.index_settings import IndexSettings
from graph.store.ledger_file import LEDGER
from graph.store.rows import Store
from graph.text.prompting import read_prompt
from graph.text.sentences import headers_at
from graph.types import Document, LanguageModel, OpenModel, Passage, T, Workers

GROUP_PASSAGES = 512
"""Minimum number of passages per transaction, for extractors that need no model."""
BATCH_CHARACTERS = 200_000
"""Minimum size of a batch of documents to split, in characters."""
SAMPLED_DOCUMENTS = 5

Split = Callable[[Document], Sequence[Passage]]


def no_model(spec: str | Sequence[str], ledger: Path | None = None, workers: Workers | None = None) -> LanguageModel:
    """The OpenModel of callers that cannot open language models: raises UserError."""
    expected = "an index that needs no language model"
    raise UserError(f"language model {spec!r}: models cannot be opened here", expected, "use the command line")


def open_extractor(
    folder: Path, store: Store, settings: IndexSettings, split: Split, open_model: OpenModel, workers: Workers
) -> ReadDocuments:
    """The extractor of an index; its version is stored in the index. UserError if passages of the index were read by another extractor."""
    version, read = _choose_extractor(folder, store, settings, split, open_model, workers)
    stored = store.get_meta("extractor")
    if stored is not None and stored != version and store.count("passages"):
        found = f"{folder}: its documents were read by {stored}, not by {version}"
        remedy = "restore the earlier --extractor-model and prompts, or index into a new folder"
        raise UserError(found, "the same model and prompts for all documents of an index", remedy)
    store.set_meta("extractor", version)
    return read


def _choose_extractor(
    folder: Path, store: Store, settings: IndexSettings, split: Split, open_model: OpenModel, workers: Workers
) -> tuple[str, ReadDocuments]:
    """The version of the extractor (for a model, its name and a hash of the prompts), and the extractor."""
    if settings.extractor == "rules":
        return "rules", partial(_read_each, workers, read_by_rules)
    if settings.extractor == "import":
        read_one = partial(read_imported, rows=imported_rows(settings))
        return "an imported extraction, by sentence", partial(_read_each, workers, read_one)
    prompt = Prompt(few_shot_examples(settings), settings.max_reply_tokens)
    model = open_model(settings.extractor_model, ledger=folder / LEDGER)

    @cache
    def domain() -> Domain:
        return _domain_of_index(store, model, split) if settings.infer_domain else Domain()

    version = f"model {model.name}, prompts {prompt.version}"
    return version, partial(read_by_model, model=model, prompt=prompt, domain=domain)


def imported_rows(settings: IndexSettings) -> dict[str, Row]:
    """The rows of the imported extraction, by source; empty for other extractors."""
    return load_extraction(Path(settings.import_file)) if settings.extractor == "import" else {}


def imported_hashes(settings: IndexSettings) -> dict[str, str]:
    """The hash of each document's row in the imported extraction, by source."""
    return {source: row.hash for source, row in imported_rows(settings).items()}


def read_waiting(store: Store, read: ReadDocuments, split: Split, workers: Workers) -> None:
    """Read every waiting document, and store each group of readings as it arrives."""
    unread: dict[str, int] = {}

    def waiting() -> Iterator[PendingDocument]:
        sources = store.sources_to_extract()
        batches = _batches(map(store.document, sources), lambda document: len(document.text), BATCH_CHARACTERS)
        pieces = chain.from_iterable(workers.map(partial(_split_each, split), batches))
        for document, all_passages in track(pieces, "Reading documents", len(sources)) if sources else ():
            source = document.source
            read_ids = store.passage_ids(source)
            passages = tuple(passage for passage in all_passages if passage.id not in read_ids)
            unread[source] = len(passages)
            if passages:
                yield PendingDocument(document, passages)
            else:
                with store.transaction():
                    store.finish_document(source)

    for readings in read(waiting()):
        with store.transaction():
            for reading in readings:
                store.put_reading(reading)
                unread[reading.passage.source] -= 1
                if not unread[reading.passage.source]:
                    store.finish_document(reading.passage.source)


def read_quarantined(store: Store, read: ReadDocuments) -> int:
    """Read every quarantined passage again; return how many were retried. Passages that fail again stay in quarantine."""
    failed = store.quarantined()

    def waiting() -> Iterator[PendingDocument]:
        each = track(failed, "Retrying passages", len(failed))
        for source, pairs in groupby(each, lambda pair: pair[0].source):
            document = store.document(source)
            passages, attempts = zip(*pairs, strict=True)
            headers = headers_at(document.text, [passage.start for passage in passages])
            for passage, header, attempt in zip(passages, headers, attempts, strict=True):
                text = document.text[passage.start : passage.end]
                whole = replace(passage, title=document.title, text=text, header=header)
                yield PendingDocument(document, (whole,), attempt)

    for readings in read(waiting()) if failed else ():
        with store.transaction():
            for reading in readings:
                store.put_reading(reading)
    return len(failed)


@dataclass(frozen=True)
class ReadingFacts:
    """Counts for an index: passages, passages in quarantine, dropped parts of replies, and passages outside quarantine by reader."""

    passages: int
    quarantined: int
    dropped: int
    read_by: dict[str, int]


def reading_facts(store: Store) -> ReadingFacts:
    (dropped,) = next(store.rows("SELECT coalesce(sum(dropped), 0) FROM passages"))
    by_reader = store.rows(
        "SELECT reader, count(*) FROM passages WHERE row NOT IN (SELECT passage FROM quarantine) GROUP BY reader ORDER BY reader"
    )
    return ReadingFacts(
        passages=store.count("passages"),
        quarantined=store.count("quarantine"),
        dropped=int(str(dropped)),
        read_by={str(reader): int(str(count)) for reader, count in by_reader},
    )


def _read_each(
    workers: Workers, read_one: Callable[[PendingDocument], list[Reading]], waiting: Iterable[PendingDocument]
) -> Iterator[list[Reading]]:
    """Readings of whole documents, in groups of at least `GROUP_PASSAGES` passages (the last may be smaller).

    With the first two arguments bound, this is a `ReadDocuments`.
    """
    groups = _batches(waiting, lambda item: len(item.passages), GROUP_PASSAGES)
    yield from workers.map(partial(_read_group, read_one), groups)


def _read_group(
    read_one: Callable[[PendingDocument], list[Reading]], group: Sequence[PendingDocument]
) -> list[Reading]:
    return [reading for item in group for reading in read_one(item)]


def _split_each(split: Split, documents: Sequence[Document]) -> list[tuple[Document, Sequence[Passage]]]:
    return [(document, split(document)) for document in documents]


def _batches(items: Iterable[T], size: Callable[[T], int], min_size: int) -> Iterator[list[T]]:
    """The items in lists; in each list but the last, the items' sizes sum to `min_size` or more."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= min_size:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _domain_of_index(store: Store, model: LanguageModel, split: Split) -> Domain:
    """The domain stored in the index; if there is none, it is inferred and stored."""
    stored = store.get_meta("domain")
    if stored is not None:
        return Domain.model_validate_json(stored)
    domain, problem = infer_domain(model, sample_passages(store, split))
    if problem:
        say(f"No entity types or topics were inferred, so none are suggested to the model: {problem}")
    with store.transaction():
        store.set_meta("domain", domain.model_dump())
    return domain


def sample_passages(store: Store, split: Split) -> list[Passage]:
    """Up to five passages in total, from up to five waiting documents; chosen by hash, so the order of arrival does not matter."""
    sources = sorted(store.sources_to_extract(), key=lambda source: content_id("sample", source))[:SAMPLED_DOCUMENTS]
    by_document = [sorted(split(store.document(source)), key=lambda passage: passage.id) for source in sources]
    rounds = [passages[turn] for turn in range(SAMPLED_PASSAGES) for passages in by_document if turn < len(passages)]
    return rounds[:SAMPLED_PASSAGES]


def few_shot_examples(settings: IndexSettings) -> str:
    """The few-shot examples for the prompt: from the file that the settings name, else those that modegraph ships."""
    if not settings.extractor_examples:
        return read_prompt("graph/extract_examples.txt")
    file = Path(settings.extractor_examples)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"{file}: cannot be read ({problem})", "a text file of examples", "fix the path") from None

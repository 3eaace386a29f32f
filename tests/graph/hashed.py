"""The stand-in encoder, an index built with it (or with another encoder), and questions encoded as queries."""

from collections.abc import Sequence
from pathlib import Path

from graph.build.build import build_index
from graph.build.read_passages import no_model
from graph.index.index import Index, open_index
from graph.retrieve.parts.query import Query
from graph.store.index_settings import IndexSettings
from graph.types import Document, OpenModel
from tests.fakes import HashEncoder


def encoder(spec: str) -> HashEncoder:
    """The stand-in encoder, whatever the specification."""
    return HashEncoder()


def build(
    folder: Path,
    documents: Sequence[Document],
    encoder: HashEncoder | None = None,
    open_model: OpenModel = no_model,
    **values: object,
) -> Index:
    encoder = encoder or HashEncoder()
    settings = IndexSettings.model_validate({"min_similarity": 0.1, **values})
    build_index(folder, documents, settings, lambda spec: encoder, open_model)
    return open_index(folder, lambda spec: encoder)


def query_of(index: Index, question: str) -> Query:
    """The question with the vector that the encoder of the index gives it."""
    return Query(question, index.encode_queries([question])[0])

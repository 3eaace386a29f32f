"""An index of examples/documents with the stand-in encoder, built once."""

import pytest

from graph.documents.read import read_documents
from graph.index.index import Index
from tests.graph.hashed import build
from tests.places import EXAMPLES


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Index:
    documents = list(read_documents(EXAMPLES / "documents", lambda line: None))
    return build(tmp_path_factory.mktemp("examples") / "index", documents)

"""How often documents mention entities, through their passages and propositions.

Legend: U documents, P passages, E entities, K some of the entities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from graph.extract.entities import entity_key
from graph.index.index import Index
from graph.shared.ids import content_id
from serve.http.errors import ApiError
from serve.server.collections import Generation


def entity_row(generation: Generation, name: str, field: str) -> int:
    """The row of an entity by its id or its text; ApiError 404, which names the request's `field`, for an entity that the index does not contain."""
    row = generation.row("entity", name)
    if row is None:
        row = generation.row("entity", content_id("entity", entity_key(name)))
    if row is None:
        raise ApiError(404, "no_such_node", f"the index has no entity {name[:80]!r}", field)
    return row


def mentions_of(index: Index, rows_K: Sequence[int]) -> sp.csr_array:
    """How often propositions in each document mention the entities in these rows: [K, U]."""
    data = index.data
    passages, documents = len(data.passage_ids), len(data.document_sources)
    one_P, first_P = np.ones(passages, np.float32), np.arange(passages + 1)
    of_PU = sp.csr_array((one_P, np.asarray(data.passage_document_P), first_P), shape=(passages, documents))
    return sp.csr_array(index.entity_proposition_EN[list(rows_K), :] @ index.proposition_passage_NP @ of_PU)

"""One HTML page to explore an index offline: find an entity, and see its propositions, their sources and the layers of summaries.

The page is templates/index.html with the index embedded as JSON. Document text is data: it reaches the page only as text nodes and attributes.

Legend: X entries of a block, C its columns; N propositions, P passages, E entities, S summaries.
"""

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import scipy.sparse as sp

from graph.index.index import Index
from graph.retrieve.parts.ranking import expand_rows, top_rows
from graph.types import Ints, T

KINDS = ("entities", "propositions", "passages", "summaries")


def write_page(index: Index, file: Path, limit: int) -> dict[str, int]:
    """Write the page with at most `limit` nodes of each kind; return how many of each kind it contains, and how many it leaves out."""
    content = page_data(index, limit)
    template = Template(files("graph").joinpath("export/templates/index.html").read_text(encoding="utf-8"))
    text = template.substitute(title=escape(index.folder.resolve().name), data=script_json(content))
    file.write_text(text, encoding="utf-8", errors="replace")
    counts = {kind: len(content[kind]) for kind in KINDS}
    return counts | {f"{kind}_left_out": content["totals"][kind] - counts[kind] for kind in KINDS}


def page_data(index: Index, limit: int) -> dict[str, Any]:
    """The content of the page, at most `limit` nodes of each kind.

    It contains the entities with the most mentions; some propositions of each entity and some passages of each proposition and summary, chosen
    by `take_turns`; and the summaries of the highest layers. Links are positions in these lists.
    """
    data = index.data
    mentions_E = np.diff(index.entity_proposition_EN.indptr)
    entities = np.sort(top_rows(mentions_E.astype(np.float32), limit))
    propositions = take_turns(index.entity_proposition_EN, entities, limit)
    summaries = np.sort(top_rows(data.summary_layer_S.astype(np.float32), limit))
    ids = data.entity_ids, data.proposition_ids, data.passage_ids, data.summary_ids
    totals = dict(zip(KINDS, map(len, ids), strict=True))
    passage_total = totals["passages"]
    passage_block = sp.csr_array(sp.vstack([index.proposition_passage_NP, data.summary_member_SX[:, :passage_total]]))
    passages = take_turns(passage_block, np.concatenate([propositions, totals["propositions"] + summaries]), limit)

    position_E = {row: position for position, row in enumerate(entities.tolist())}
    position_P = {row: position for position, row in enumerate(passages.tolist())}
    nodes = {row: ("passage", position) for row, position in position_P.items()}
    nodes |= {passage_total + row: ("summary", position) for position, row in enumerate(summaries.tolist())}
    return {
        "totals": totals,
        "entities": [
            {
                "text": index.entity_name(row),
                "mentions": int(mentions_E[row]),
                "synonyms": _positions_of_row(data.synonym_EE, row, position_E),
            }
            for row in entities.tolist()
        ],
        "propositions": [
            {
                "text": data.proposition_texts[row],
                "entities": _positions_of_row(data.proposition_entity_NE, row, position_E),
                "passages": _positions_of_row(index.proposition_passage_NP, row, position_P),
            }
            for row in propositions.tolist()
        ],
        "passages": [
            {"title": passage.title or passage.source, "text": passage.text}
            for passage in map(index.passage, passages.tolist())
        ],
        "summaries": [
            {
                "layer": int(data.summary_layer_S[row]),
                "text": data.summary_texts[row],
                "members": _positions_of_row(data.summary_member_SX, row, nodes),
                "parts": int(np.diff(data.summary_member_SX.indptr)[row]),
            }
            for row in summaries.tolist()
        ],
    }


def take_turns(block: sp.csr_array, rows: Ints, limit: int) -> Ints:
    """At most `limit` columns of the given rows, ascending; chosen in turn: every row's first entry, then every row's second, and so on.

    >>> take_turns(sp.csr_array(np.array([[1, 1, 1, 0], [0, 0, 0, 1]])), np.array([0, 1]), 3).tolist()
    [0, 1, 3]
    """
    position_X, column_X = expand_rows(block, rows)
    turn_X = np.arange(len(position_X)) - np.searchsorted(position_X, position_X)
    earliest_C = np.full(block.shape[1], np.inf, np.float32)
    np.minimum.at(earliest_C, column_X, turn_X.astype(np.float32))
    return np.sort(top_rows(-earliest_C, min(limit, int(np.isfinite(earliest_C).sum()))))


def script_json(value: object) -> str:
    """JSON that can neither end the script element that contains it nor open a comment there.

    >>> script_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _positions_of_row(block: sp.csr_array, row: int, positions: Mapping[int, T]) -> list[T]:
    """The positions on the page of a row's columns, except columns that are not on the page."""
    columns = block.indices[block.indptr[row] : block.indptr[row + 1]].tolist()
    return [positions[column] for column in columns if column in positions]

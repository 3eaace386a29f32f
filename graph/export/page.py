"""One HTML page to look around in an index, offline: find a name, see what is said of it and what stands beside it; the layers.

The page is templates/index.html with the index as JSON in it. Document text is data there: it reaches the page as text nodes only.
"""

import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from graph.index import Index
from graph.retrieve.gather import expand_rows
from graph.retrieve.rank import top_rows


def write_page(index: Index, file: Path, max_names: int) -> dict[str, int]:
    """Write the page with the `max_names` names that most propositions mention; how many of each kind it holds."""
    held = page_data(index, max_names)
    template = Template(files("graph").joinpath("export/templates/index.html").read_text(encoding="utf-8"))
    file.write_text(template.substitute(title=_escaped(index.folder.name), data=script_json(held)), encoding="utf-8")
    return {key: len(held[key]) for key in ("names", "propositions", "passages", "summaries")}


def page_data(index: Index, max_names: int) -> dict[str, Any]:
    """What the page shows: names with their propositions, those with their passages and names, and the tree of summaries."""
    data = index.data
    mentions_E = np.diff(index.name_proposition_EN.indptr).astype(np.float32)
    names = np.sort(top_rows(mentions_E, max_names))
    propositions = np.unique(expand_rows(index.name_proposition_EN, names)[1])
    members = {row: data.summary_member_SX[[row], :].indices.tolist() for row in range(len(data.summary_ids))}
    shown = {member for each in members.values() for member in each if member < len(data.passage_ids)}
    passages = sorted(shown | set(expand_rows(index.proposition_passage_NP, propositions)[1].tolist()))
    place = {int(row): number for number, row in enumerate(passages)}
    spot = {int(row): number for number, row in enumerate(names)}

    def node(row: int) -> list[Any]:
        return ["passage", place[row]] if row < len(data.passage_ids) else ["summary", row - len(data.passage_ids)]

    return {
        "left_out": len(data.name_ids) - len(names),
        "names": [data.name_texts[row] for row in names],
        "propositions": [
            {
                "text": data.proposition_texts[row],
                "names": [spot[e] for e in data.proposition_name_NE[[row], :].indices.tolist() if e in spot],
                "passages": [place[p] for p in index.proposition_passage_NP[[row], :].indices.tolist()],
            }
            for row in propositions
        ],
        "passages": [
            {"title": found.title or found.source, "text": found.text} for found in map(index.passage, passages)
        ],
        "summaries": [
            {"layer": int(data.summary_layer_S[row]), "text": data.summary_texts[row], "members": list(map(node, each))}
            for row, each in members.items()
        ],
    }


def script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in, nor open a comment there.

    >>> script_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)

"""GraphML, for graph tools (igraph, networkx, Gephi): one directed graph, every node and edge with its kind.

Elements are written one by one as they are read, so that the file is never in memory as a whole.
"""

import re
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from graph.export.elements import NODE_KINDS, Node, Value, edges, nodes
from graph.index.index import Index

_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, even if they are escaped."""
_REPLACEMENT = "\ufffd"
_REPLACED_IN_KEYS = re.compile(f"{_FORBIDDEN.pattern}|{_REPLACEMENT}")
_ESCAPED = {"\r": "&#13;"}
"""XML parsers turn a bare carriage return into a line feed."""
_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
"""
NODE_TEXTS = ("kind", "id", "text", "title", "source", "metadata")
NODE_NUMBERS = ("order", "start", "end", "layer")
"""Attributes of nodes, in the order of the file. igraph stores a node's key as its attribute "id", so the id itself is written as "own_id"."""


def write_graphml(index: Index, file: Path) -> dict[str, int]:
    """Write all nodes and edges; returns how many of each.

    Characters that XML cannot contain become U+FFFD in texts; in keys, they and U+FFFD itself become U+FFFD followed by
    their code point, so that keys stay unique.
    """
    counts = {"nodes": 0, "edges": 0}
    with file.open("w", encoding="utf-8", newline="\n") as out:
        out.write(_HEAD)
        for field in (*NODE_TEXTS, *NODE_NUMBERS):
            name = "own_id" if field == "id" else field
            value_type = "string" if field in NODE_TEXTS else "long"
            out.write(f'<key id="{field}" for="node" attr.name="{name}" attr.type="{value_type}"/>\n')
        out.write('<key id="relation" for="edge" attr.name="kind" attr.type="string"/>\n')
        out.write('<key id="weight" for="edge" attr.name="weight" attr.type="double"/>\n')
        out.write('<graph edgedefault="directed">\n')
        for kind in NODE_KINDS:
            for node in nodes(index, kind):
                out.write(_node(node))
                counts["nodes"] += 1
        for edge in edges(index):
            ends = f"source={_key(edge.source)} target={_key(edge.target)}"
            out.write(f'<edge {ends}>{_data("relation", edge.kind)}<data key="weight">{edge.weight!r}</data></edge>\n')
            counts["edges"] += 1
        out.write("</graph>\n</graphml>\n")
    return counts


def _node(node: Node) -> str:
    values = "".join(_data(field, value) for field, value in {"kind": node.kind, **node.values}.items())
    return f"<node id={_key(node.key)}>{values}</node>\n"


def _data(field: str, value: Value) -> str:
    return f'<data key="{field}">{escape(_FORBIDDEN.sub(_REPLACEMENT, str(value)), _ESCAPED)}</data>'


def _key(key: str) -> str:
    """A node's key as a quoted attribute; different keys stay different.

    >>> _key("document:a\\x0b"), _key("document:a\\ufffdb;")
    ('"document:a\ufffdb;"', '"document:a\ufffdfffd;b;"')
    """
    return quoteattr(_REPLACED_IN_KEYS.sub(lambda match: f"{_REPLACEMENT}{ord(match[0]):x};", key))

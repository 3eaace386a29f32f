"""Evidence in a notebook: a table of passages, the paths to them as a picture."""

from __future__ import annotations

from graph.shared.types import Evidence
from modegraph.reprs.html import Html, table, tag, text, view
from modegraph.reprs.path import paths_svg


def evidence_html(evidence: Evidence) -> str:
    """The question, what the search cost, each passage with rank, title, score, text and path; then the paths drawn."""
    return view(
        tag("p", tag("strong", text(evidence.query))), cost(evidence), passages_table(evidence), paths_svg(evidence)
    )


def cost(evidence: Evidence) -> Html:
    """One line: mode, seconds, calls of a model."""
    trace = evidence.trace
    calls = f" · {trace.model_calls:,} model calls" if trace.model_calls else ""
    stopped = f" · stopped: {trace.stopped}" if trace.stopped else ""
    return text(f"{trace.mode} · {trace.seconds + trace.encoder_seconds:.2f} s{calls}{stopped}", "soft")


def passages_table(evidence: Evidence) -> Html:
    """The passages, best first; then the summaries, where the mode found any."""
    paths = evidence.paths or ((),) * len(evidence.passages)
    rows = [
        (
            text(rank),
            text(found.item.title or found.item.source),
            text(f"{found.score:.3f}"),
            text(found.item.text, "text"),
            text(" → ".join(path), "soft"),
        )
        for rank, (found, path) in enumerate(zip(evidence.passages, paths, strict=True), start=1)
    ]
    rows += [
        (
            text("–"),
            text(f"summary, layer {found.item.layer}"),
            text(f"{found.score:.3f}"),
            text(found.item.text, "text"),
            text(""),
        )
        for found in evidence.summaries
    ]
    if not rows:
        return tag("p", text("Nothing found."))
    return table(("rank", "title", "score", "text", "path"), rows)

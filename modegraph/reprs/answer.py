"""A cited answer in a notebook: its text, the reason, and the passages that it cites."""

from __future__ import annotations

from modegraph.reprs.evidence import cost, passages_table
from modegraph.reprs.html import table, tag, text, view
from modegraph.reprs.path import paths_svg
from serve.answering import Answer
from serve.show import no_answer


def answer_html(answer: Answer) -> str:
    """The answer with its citations, the cited passages, what was removed from it, and the paths to the evidence."""
    rows = [
        (text(f"[{number}]"), text(excerpt.title or excerpt.source), text(excerpt.text, "text"))
        for number, excerpt in answer.citations.items()
    ]
    removed = ", ".join(f"[{number}]" for number in answer.removed)
    return view(
        tag("p", text(answer.question, "soft")),
        tag("p", tag("strong", text(answer.answer or no_answer(answer.reason), "text"))),
        *([tag("p", text(answer.reason, "text"))] if answer.reason else []),
        *([table(("", "title", "passage"), rows)] if rows else []),
        *([passages_table(answer.evidence)] if not answer.answer and not rows else []),
        *([tag("p", text(f"Removed: {removed}, cited but not among the passages.", "soft"))] if removed else []),
        *(tag("p", text(f"Not supported by the passages: {each.text}", "soft")) for each in answer.unsupported),
        *([tag("p", text("Cut at the token limit.", "soft"))] if answer.finish_reason == "length" else []),
        cost(answer.evidence),
        text(f" · {answer.model} · {answer.writing.seconds:.2f} s", "soft"),
        paths_svg(answer.evidence),
    )

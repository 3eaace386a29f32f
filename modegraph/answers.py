"""Evidence and answers of the Python API: the classes of graph/ and serve/, printable in a terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass

import graph.types
import serve.pipeline
from modegraph.notebook import answer_html, evidence_html
from serve.show import show_answer, show_evidence


@dataclass(frozen=True, repr=False)
class Evidence(graph.types.Evidence):
    """The result of one retrieval: `passages`, best first, each with `.item` and `.score`; `paths` to them; `trace`, with the cost.

    `print` shows it as `modegraph ask` does; a notebook shows a table.
    """

    def __str__(self) -> str:
        return show_evidence(self)

    def __repr__(self) -> str:
        return f"Evidence({self.query!r}, {len(self.passages)} passages, mode={self.trace.mode!r})"

    def _repr_html_(self) -> str:
        return evidence_html(self)


@dataclass(frozen=True, repr=False)
class Answer(serve.pipeline.Answer):
    """A cited answer: `text`, the `reason` before it, `citations` by number, and the `evidence` that it is based on.

    Where the model cites nothing, the citations are `attributed`: the passages that support the answer best, found by modegraph.
    """

    evidence: Evidence

    @property
    def text(self) -> str:
        """The answer with its citations, [1] and so on; the reason if the model wrote nothing else."""
        return self.answer or self.reason

    def __str__(self) -> str:
        return show_answer(self)

    def __repr__(self) -> str:
        return f"Answer({self.text!r}, {len(self.citations)} citations, model={self.model!r})"

    def _repr_html_(self) -> str:
        return answer_html(self)


def public_evidence(evidence: graph.types.Evidence) -> Evidence:
    """The same evidence as an object of the public class."""
    return Evidence(**vars(evidence))


def public_answer(answer: serve.pipeline.Answer) -> Answer:
    """The same answer as an object of the public class."""
    return Answer(**{**vars(answer), "evidence": public_evidence(answer.evidence)})

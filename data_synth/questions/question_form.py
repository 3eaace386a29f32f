"""The types of synthetic questions: a row, and the steps that lead from an entity named in the question to its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data_synth.rows import Form, split_problems
from graph.text.word_forms import count_words

if TYPE_CHECKING:
    import pyarrow as pa

BY_TEMPLATES = "templates"


@dataclass(frozen=True)
class Step:
    """One hop: the sentence `quote` of the passage leads from the name `given` to `found`, a name, date or quantity."""

    given: str
    found: str
    source: str
    passage_id: str
    quote: str


@dataclass(frozen=True)
class QuestionRow:
    """One question, its answers, and the passages that it needs, in order.

    `chains` lead from a name in the question to the answer, or to a value that is compared; a chain's inner names are
    the `bridges`, which the question does not name. Questions written by a model have one chain of steps without `given` and `found`.

    Unanswerable questions have no answers, no hops and no chains: `near` are the steps of the answerable question that they were
    made from, without `given` and `found`.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    kind: str
    hops: int
    split: str
    chains: tuple[tuple[Step, ...], ...]
    bridges: tuple[str, ...]
    writer: str
    near: tuple[Step, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all chains, each once."""
        return tuple(dict.fromkeys(step for chain in self.chains for step in chain))

    @property
    def passage_ids(self) -> tuple[str, ...]:
        """The passages that the answer needs, each once."""
        return tuple(dict.fromkeys(step.passage_id for step in self.steps))

    @property
    def sources(self) -> tuple[str, ...]:
        """The documents of these passages, each once."""
        return tuple(dict.fromkeys(step.source for step in self.steps))


def question_to_json(row: QuestionRow) -> dict[str, Any]:
    """A row in the format of `graph.documents.questions.read_questions`, with additional fields on its origin."""
    return {
        "id": row.id,
        "question": row.text,
        "answers": list(row.answers),
        "gold_ids": list(row.sources),
        "evidence": [{"id": step.source, "quote": step.quote} for step in row.steps],
        "type": row.kind,
        "hops": row.hops,
        "split": row.split,
        "passage_ids": list(row.passage_ids),
        "chains": [
            [{"given": step.given, "found": step.found, "passage_id": step.passage_id} for step in chain]
            for chain in row.chains
        ],
        "bridges": list(row.bridges),
        "writer": row.writer,
        "near": [{"id": step.source, "passage_id": step.passage_id, "quote": step.quote} for step in row.near],
    }


def question_from_json(row: Mapping[str, Any]) -> QuestionRow:
    """The inverse of `question_to_json`; a missing key raises KeyError (callers add file and line)."""
    quotes = dict(zip(row["passage_ids"], row["evidence"], strict=True))
    chains = tuple(tuple(_step(step, quotes[step["passage_id"]]) for step in chain) for chain in row["chains"])
    return QuestionRow(
        id=row["id"],
        text=row["question"],
        answers=tuple(row["answers"]),
        kind=row["type"],
        hops=row["hops"],
        split=row["split"],
        chains=chains,
        bridges=tuple(row["bridges"]),
        writer=row["writer"],
        near=tuple(Step("", "", near["id"], near["passage_id"], near["quote"]) for near in row.get("near", ())),
    )


def _step(step: Mapping[str, Any], quoted: Mapping[str, Any]) -> Step:
    return Step(step["given"], step["found"], quoted["id"], step["passage_id"], quoted["quote"])


def question_schema() -> pa.Schema:
    """The columns of `question_to_json`, typed."""
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    quotes = pa.list_(pa.struct([("id", text), ("quote", text)]))
    chains = pa.list_(pa.list_(pa.struct([("given", text), ("found", text), ("passage_id", text)])))
    near = pa.list_(pa.struct([("id", text), ("passage_id", text), ("quote", text)]))
    kinds = dict.fromkeys(("answers", "gold_ids", "passage_ids", "bridges"), texts)
    kinds |= {"evidence": quotes, "hops": pa.int32(), "chains": chains, "near": near}
    names = "id question answers gold_ids evidence type hops split passage_ids chains bridges writer near"
    return pa.schema([(name, kinds.get(name, text)) for name in names.split()])


def without_title(question: str) -> str:
    """A question without the document title that it may end with.

    >>> without_title("What is the fare, according to “Trams”?")
    'What is the fare'
    """
    return question.partition(", according to “")[0]


def question_problems(row: QuestionRow) -> list[str]:
    """The problems that make a question unusable, in words; empty for a good one."""
    named_bridge = next((bridge for bridge in row.bridges if named_in(bridge, row.text)), None)
    checks = {
        "the question is empty": not row.text.strip(),
        "no answer, but `near` does not mark the question as unanswerable": not row.near
        and not any(answer.strip() for answer in row.answers),
        "an answer, although `near` marks the question as unanswerable": bool(row.near and row.answers),
        "no passage is needed": not row.near and not row.passage_ids,
        f"hops is {row.hops}, but the answer needs {len(row.passage_ids)} passages": row.hops != len(row.passage_ids),
        f"the question names its bridge {named_bridge!r}": named_bridge is not None,
    }
    return [*(problem for problem, found in checks.items() if found), *split_problems(row)]


def named_in(name: str, text: str) -> bool:
    """Whether a text contains a name as whole words, ignoring case.

    >>> named_in("Ada", "Who built Ada's yard?"), named_in("Ada", "Where is Adana?")
    (True, False)
    """
    name, text = name.casefold(), text.casefold()
    return name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


QUESTIONS = Form(
    name="questions",
    title="Questions",
    about=(
        "Questions over one document or several (HLG §5). `passage_ids` are the passages that an answer needs, `evidence` "
        "their sentences, in the order of the hops; `bridges` are the intermediate names, which the question does not mention. "
        "Questions without answers are those that the documents do not answer; `near` contains the sentences of the "
        "answerable question from which each was made. "
        "All questions about a document are in one split."
    ),
    to_json=question_to_json,
    from_json=question_from_json,
    schema=question_schema,
    problems=question_problems,
    counts=lambda row: {"kind": row.kind, "hops": str(row.hops)},
    lengths=lambda row: {"question": count_words(row.text), "answer": count_words("".join(row.answers[:1]))},
    texts=lambda row: (row.text,),
)

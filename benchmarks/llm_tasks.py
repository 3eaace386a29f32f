"""A language model on five tasks for which modegraph can call one, next to the results without a model: usable replies, tokens, seconds.

Run: python -P benchmarks/llm_tasks.py INDEX --model SPEC [--items 10] [--shown 3] [--json]. The tasks are extraction from passages, summaries
of communities, plans for questions, questions about two articles (writer and judge are the same model), and `local`'s selection of
statements and its verdict on whether they suffice. Prompts, schemas and retries are those of the commands. Plans and selections are
for questions that rules propose from the index. `usable` is the
share of items with a result after at most two calls for each reply (for questions, a result that the judge confirms); tokens and
seconds are per item, retries included.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.report import new_parser, print_report
from data_synth.questions.by_model import Material, answer_again, article_groups, write_questions
from data_synth.questions.by_rules import template_questions
from data_synth.questions.question_form import QuestionRow
from data_synth.relevance.split import spread_documents
from graph.extract.extraction import PendingDocument
from graph.extract.llm import Domain, Prompt, read_by_model
from graph.extract.rules import extract_by_rules
from graph.hierarchy.summaries import write_summaries
from graph.index.index import Index, open_index
from graph.models.encoder import open_encoder
from graph.retrieve.learned.selectors import choices_of_model, select_by_threshold
from graph.retrieve.modes.local import judge_statements
from graph.retrieve.modes.plan import PlanRun, make_plan
from graph.retrieve.parts.query import Caller, ModelUsage, Query, RetrieveSettings, total_usage, usage_of
from graph.retrieve.parts.ranking import nearest
from graph.retrieve.retrieve import retrieve
from graph.store.index_settings import IndexSettings
from graph.text.prompting import read_prompt
from graph.types import Completion, CompletionRequest, Document, Ints, LanguageModel, Passage
from serve.server.proposals import propose_questions

CANDIDATES, HOPS = 20, (2,)

Task = tuple[str, Sequence[Any], Callable[[Any], str | None], Callable[[int], str]]
"""Name, items, a function from an item to the model's usable result (None: no usable result), and one from an item's number to the result without a model."""


class MeteredModel:
    """A model that adds up the cost of its calls."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.cost = ModelUsage()

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        started = time.perf_counter()
        completions = self._model.complete(requests)
        self.cost = total_usage([self.cost, usage_of(completions, time.perf_counter() - started)])
        return completions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def measure(tasks: Sequence[Task], model: MeteredModel, shown: int) -> Iterator[tuple[str, float | str]]:
    """The figures of each task, and its first results next to those without a model."""
    for name, items, by_model, by_rules in tasks:
        before = model.cost
        results = [by_model(item) for item in items]
        cost, count = model.cost, max(1, len(items))
        yield f"{name}: items", len(items)
        yield f"{name}: usable", sum(result is not None for result in results) / count
        yield f"{name}: calls per item", (cost.calls - before.calls) / count
        yield f"{name}: tokens in", (cost.prompt_tokens - before.prompt_tokens) / count
        yield f"{name}: tokens out", (cost.completion_tokens - before.completion_tokens) / count
        yield f"{name}: seconds", (cost.seconds - before.seconds) / count
        for number, result in enumerate(results[:shown]):
            yield f"{name} {number + 1}, model", result if result is not None else "no usable result"
            yield f"{name} {number + 1}, without a model", by_rules(number)


def tasks_of(index: Index, model: LanguageModel, items: int, shown: int) -> list[Task]:
    """The five tasks, each on at most `items` items of an index."""
    passages = [index.passage(int(row)) for row in _evenly_spread(len(index.data.passage_ids), items)]
    groups = _summary_groups(index, items)
    questions = [one.question for one in propose_questions(index)[:items]]
    splits = spread_documents(index.sources(), 0)
    articles = list(islice(article_groups(index, 0, splits), items))
    templates = [f"{row.text} → {row.answers[0]}" for row in template_questions(index, shown, HOPS, 0)]

    def question(group: Material) -> str | None:
        (row,) = answer_again(write_questions([group], model, HOPS, splits), [group], model)
        return f"{row.text} → {row.answers[0]}" if isinstance(row, QuestionRow) else None

    return [
        (
            "extraction",
            passages,
            lambda each: propositions_by_model(model, each),
            lambda n: propositions_by_rules(passages[n]),
        ),
        (
            "summary",
            [texts for _, texts in groups],
            lambda texts: write_summaries(model, IndexSettings().max_summary_tokens, [texts])[0] or None,
            lambda n: str(index.data.summary_texts[groups[n][0]]),
        ),
        ("plan", questions, lambda text: plan_by_model(model, text), lambda n: best_by_hops(index, questions[n])),
        ("question", articles, question, lambda n: templates[n] if n < len(templates) else "none"),
        (
            "selection",
            questions,
            lambda text: selection_by_model(index, model, text),
            lambda n: _texts(index, select_by_threshold(index, *_candidates(index, questions[n]))),
        ),
    ]


def propositions_by_model(model: LanguageModel, passage: Passage) -> str | None:
    """The propositions of a passage by a model; None if the passage would go into quarantine."""
    pending = PendingDocument(Document(passage.source, passage.title, passage.text), (passage,))
    prompt = Prompt(read_prompt("graph/extract_examples.txt"), IndexSettings().max_reply_tokens)
    ((reading,),) = (group for group in read_by_model(iter([pending]), model, prompt, Domain) if group)
    if reading.failure is not None:
        return None
    return " | ".join(f"{each.text} [{', '.join(each.entities)}]" for each in reading.occurrences)


def propositions_by_rules(passage: Passage) -> str:
    """The propositions of a passage by rules."""
    alone = replace(passage, order=0, start=0, end=len(passage.text))
    (occurrences,) = extract_by_rules(Document(passage.source, passage.title, passage.text), [alone])
    return " | ".join(f"{each.text} [{', '.join(each.entities)}]" for each in occurrences)


def plan_by_model(model: LanguageModel, question: str) -> str | None:
    """The sub-questions of a plan that can be executed, or None."""
    return " | ".join(step.text for step in make_plan(Caller(model), question, PlanRun())) or None


def best_by_hops(index: Index, question: str) -> str:
    """The best passage for the undivided question: the retrieval that a plan replaces."""
    evidence = retrieve(index, question, RetrieveSettings(mode="hops", top_k=1))
    return f"{question} → {evidence.passages[0].item.source}"


def selection_by_model(index: Index, model: LanguageModel, question: str) -> str | None:
    """The statements that a model selects and its verdict on them; None if one of the two replies is unusable."""
    query, rows = _candidates(index, question, model)
    chosen = choices_of_model(index, query, [rows])[0]
    verdict = None if chosen is None else judge_statements(index, query, chosen.tolist() or rows.tolist())
    if chosen is None or verdict is None:
        return None
    return f"{_texts(index, chosen)} → {verdict.answer or verdict.next_questions}"


def _candidates(index: Index, question: str, model: LanguageModel | None = None) -> tuple[Query, Ints]:
    """A question, and the rows of the propositions nearest to it."""
    vector_D = index.encode_queries([question])[0]
    rows, _ = nearest(index.data.proposition_vectors_ND, vector_D, CANDIDATES)
    return Query(question, vector_D, None if model is None else Caller(model)), rows


def _texts(index: Index, rows: Ints) -> str:
    return " | ".join(index.data.proposition_texts[int(row)] for row in rows)


def _summary_groups(index: Index, count: int) -> list[tuple[int, list[str]]]:
    """Rows of summaries with passages as their members, and the texts of these passages."""
    passages = len(index.data.passage_ids)
    members = [index.data.summary_member_SX[[row], :].indices for row in range(len(index.data.summary_ids))]
    texts = [[index.data.passage_texts[int(each)] for each in rows if each < passages] for rows in members]
    return [(row, group) for row, group in enumerate(texts) if group][:count]


def _evenly_spread(total: int, count: int) -> Ints:
    return np.unique(np.linspace(0, total - 1, min(total, count)).astype(np.int64))


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--items", type=int, default=10)
    parser.add_argument("--shown", type=int, default=3)
    options = parser.parse_args()
    from serve.engines import open_model

    index, model = open_index(options.index, open_encoder), MeteredModel(open_model(options.model))
    tasks = tasks_of(index, cast("LanguageModel", model), options.items, options.shown)
    figures = dict(measure(tasks, model, options.shown))
    return print_report("llm_tasks", {"model": options.model, **figures}, [], options.json)


if __name__ == "__main__":
    sys.exit(main())

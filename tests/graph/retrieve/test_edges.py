"""Every mode in edge cases: nothing to find, zero vectors, equal scores, filters, a model that stops answering (docs/developers/behaviours.md, 4, 5, 7,
14, 18 and 23).
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

from graph.build.lifecycle import delete_documents
from graph.errors import ModelUnavailable, UserError
from graph.index.index import Index, open_index
from graph.retrieve.modes.local import Verdict
from graph.retrieve.parts.query import Caller, RetrieveSettings
from graph.retrieve.retrieve import retrieve
from graph.shared.modes import MODES, Mode
from graph.types import Completion, CompletionRequest, Document, Evidence, Floats
from tests.corpora import ISLES
from tests.fakes import HashEncoder, ScriptedModel
from tests.graph.hashed import build

QUESTIONS = ("Who founded the yard that built the Lantern?", "From what is kelp bread baked in Tarn?", "zzz", "?!")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edges")


@pytest.fixture(scope="module")
def isles_index(folder: Path) -> Index:
    return build(folder / "hashed", ISLES)


@pytest.fixture(scope="module")
def emptied_index(folder: Path) -> Index:
    build(folder / "emptied", ISLES[:2])
    delete_documents(folder / "emptied", [each.source for each in ISLES[:2]], lambda spec: HashEncoder())
    return open_index(folder / "emptied", lambda spec: HashEncoder())


@pytest.fixture(scope="module")
def index_without_propositions(folder: Path) -> Index:
    return build(folder / "bare", [Document("a", "", "Hm."), Document("b", "", "Oh.")])


@pytest.fixture(scope="module")
def zero_vector_index(folder: Path) -> Index:
    return build(folder / "blank", ISLES, ZeroAndOppositeEncoder())


@pytest.fixture(scope="module")
def index_of_identical_texts(folder: Path) -> Index:
    documents = [Document(f"t{n:02}", "Notes", "The Lantern is a ferry of Port Ellery.") for n in range(24)]
    return build(folder / "twins", documents[::-1])


def ask(index: Index, question: str, mode: Mode, model: ScriptedModel | None = None) -> Evidence:
    """The evidence, with its times set to 0."""
    settings = RetrieveSettings(mode=mode, top_k=4, selector="threshold" if model is None else "llm")
    found = retrieve(index, question, settings, model)
    return replace(found, trace=replace(found.trace, seconds=0, encoder_seconds=0))


def scores(found: Evidence) -> list[float]:
    return [each.score for each in (*found.passages, *found.propositions, *found.summaries)]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_works_on_an_index_without_documents_or_propositions(
    emptied_index: Index, index_without_propositions: Index, mode: Mode
) -> None:
    for question in QUESTIONS:
        nothing = ask(emptied_index, question, mode)
        assert (nothing.passages, nothing.propositions, nothing.summaries) == ((), (), ())
        little = ask(index_without_propositions, question, mode)
        assert little.propositions == () and len(little.passages) <= 2


class ZeroAndOppositeEncoder(HashEncoder):
    """Encodes some texts as rows of zeros, and others as the opposite of their usual vectors."""

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors_ND = super().encode(texts)
        factors = [0 if "Tarn" in text else -1 if "Marlow" in text and len(text) % 2 else 1 for text in texts]
        return vectors_ND * np.array(factors, np.float32).reshape(-1, 1)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
def test_zero_and_opposite_vectors_give_finite_scores(zero_vector_index: Index, mode: Mode) -> None:
    for question in QUESTIONS:
        assert np.isfinite(scores(ask(zero_vector_index, question, mode))).all()


@pytest.mark.parametrize("mode", MODES)
def test_equal_scores_are_ordered_by_source(index_of_identical_texts: Index, mode: Mode) -> None:
    found = retrieve(
        index_of_identical_texts, "What is the Lantern of Port Ellery?", RetrieveSettings(mode=mode, top_k=24)
    ).passages
    order = [(-each.score, each.item.source) for each in found]
    assert len(order) == (1 if mode == "naive" else 24) and order == sorted(order)


@pytest.mark.parametrize("mode", MODES)
def test_at_most_top_k_passages_are_found_even_if_all_contain_the_same_sentence(
    index_of_identical_texts: Index, mode: Mode
) -> None:
    found = ask(index_of_identical_texts, "What is the Lantern of Port Ellery?", mode)
    assert 1 <= len(found.passages) <= 4 and len(found.paths) in (0, len(found.passages))


@pytest.fixture(scope="module")
def searched_index(folder: Path) -> Index:
    """An index of ISLES and of a document that repeats a sentence of another one; it has been searched in every mode, which fills every cache."""
    index = build(folder / "shared", [*ISLES, Document("notes", "", "Tarn is a village of 312 people. It snows.")])
    for mode in MODES:
        ask(index, QUESTIONS[0], mode)
    return index


@pytest.mark.parametrize("mode", MODES)
def test_nothing_outside_a_filter_is_found(searched_index: Index, mode: Mode) -> None:
    whole = [searched_index.summary(row) for row in range(len(searched_index.data.summary_ids))]
    members = {summary.id: set(summary.members) for summary in whole}
    for pattern in ("tarn", "notes", "[lm]*", "[!t]*"):
        settings = RetrieveSettings(mode=mode, top_k=100, where=(f"source={pattern}",))
        allowed = {source for source in searched_index.sources() if fnmatch(source, pattern)}
        passages = {each.id for source in allowed for each in searched_index.passages_of(source)}
        for question in (*QUESTIONS, "Is Tarn a village of 312 people?"):
            found = retrieve(searched_index, question, settings)
            assert {each.item.id for each in found.passages} <= passages
            assert {span.passage_id for each in found.propositions for span in each.item.spans} <= passages
            assert all(members[each.item.id] <= passages for each in found.summaries)


def scripted_reply(request: CompletionRequest) -> str:
    """A reply that depends only on the request."""
    assert request.schema is not None
    replies = {
        "selected": [2, 1],
        "answer": "",
        "next_questions": ["Where was Ada Marlow born?"],
        "questions": ["Who built the Lantern?", "Who founded the yard?"],
        "score": 50,
    }
    return json.dumps({name: replies.get(name) for name in request.schema["properties"]})


@pytest.mark.parametrize("mode", MODES)
def test_concurrent_queries_with_a_model_do_not_influence_each_other(isles_index: Index, mode: Mode) -> None:
    model = ScriptedModel(scripted_reply)
    a, b, again = (ask(isles_index, QUESTIONS[n], mode, model) for n in (0, 1, 0))
    assert again == a and b != a
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda n: ask(isles_index, QUESTIONS[n], mode, model), [0, 1] * 4))
    assert together == [a, b] * 4


class ModelFailingAfterOneBatch(ScriptedModel):
    """Answers the first batch and fails on all later ones."""

    batches_left = 1

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        self.batches_left -= 1
        if self.batches_left < 0:
            raise UserError("no answer", "a model server", "start it")
        return super().complete(requests)


def test_replies_received_before_the_model_stops_answering_are_used() -> None:
    good = json.dumps({"answer": "Ada", "next_questions": []})
    caller = Caller(ModelFailingAfterOneBatch(lambda request: good if request.messages[1].content == "one" else "hm"))
    one, two = caller.ask(Verdict, "system", ["one", "two"], 9)
    assert one == Verdict(answer="Ada") and two is None and caller.spent.calls == 2
    with pytest.raises(ModelUnavailable, match="Start it"):
        Caller(ModelFailingAfterOneBatch(lambda request: "hm")).ask(Verdict, "system", ["one", "two"], 9)


def test_a_usable_reply_costs_one_call() -> None:
    model = ScriptedModel(lambda request: json.dumps({"answer": "Ada", "next_questions": []}))
    assert Caller(model).ask(Verdict, "system", ["one", "two", "three"], 9) == [Verdict(answer="Ada")] * 3
    assert len(model.requests) == 3

"""Where a careless version breaks: nothing to find, zero vectors, duplicates, awkward text, a model that goes (NOTES behaviours 1–26)."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph.build import build_index
from graph.communities import find_communities
from graph.context import build_context
from graph.encoder import unit_rows
from graph.errors import UserError
from graph.index import Index, open_index
from graph.lifecycle import delete_documents
from graph.reading import no_model
from graph.retrieve import MODES, RetrieveSettings, paths, retrieve
from graph.retrieve.caller import Caller, ModelGone
from graph.retrieve.rank import top_rows
from graph.retrieve.rounds import Verdict
from graph.retrieve.settings import Mode
from graph.settings import IndexSettings
from graph.similarity import similarity_graph
from graph.summarise import choose_sentences
from graph.types import Completion, CompletionRequest, Document, Evidence, Floats, OpenModel
from graph.walk import personalised_pagerank, query_aware_transition, query_aware_walks, restart_at, row_normalised
from tests.corpora import ISLES
from tests.fakes import HashEncoder, ScriptedModel

QUESTIONS = ("Who founded the yard that built the Lantern?", "From what is kelp bread baked in Tarn?", "zzz", "?!")


def build(
    folder: Path,
    documents: Sequence[Document],
    encoder: HashEncoder | None = None,
    open_model: OpenModel = no_model,
    **values: object,
) -> Index:
    encoder = encoder or HashEncoder()
    chosen = IndexSettings.model_validate({"min_similarity": 0.1, **values})
    build_index(folder, documents, chosen, lambda spec: encoder, open_model)
    return open_index(folder, lambda spec: encoder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edges")


@pytest.fixture(scope="module")
def hashed(folder: Path) -> Index:
    return build(folder / "hashed", ISLES)


@pytest.fixture(scope="module")
def emptied(folder: Path) -> Index:
    build(folder / "emptied", ISLES[:2])
    delete_documents(folder / "emptied", [each.source for each in ISLES[:2]], lambda spec: HashEncoder())
    return open_index(folder / "emptied", lambda spec: HashEncoder())


@pytest.fixture(scope="module")
def without_propositions(folder: Path) -> Index:
    return build(folder / "bare", [Document("a", "", "Hm."), Document("b", "", "Oh.")])


@pytest.fixture(scope="module")
def blank(folder: Path) -> Index:
    return build(folder / "blank", ISLES, Blank())


@pytest.fixture(scope="module")
def twins(folder: Path) -> Index:
    documents = [Document(f"t{n:02}", "Notes", "The Lantern is a ferry of Port Ellery.") for n in range(24)]
    return build(folder / "twins", documents[::-1])


def ask(index: Index, question: str, mode: Mode, model: ScriptedModel | None = None) -> Evidence:
    """What is found, without what the clock said."""
    wanted = RetrieveSettings(mode=mode, top_k=4, selector="threshold" if model is None else "llm")
    found = retrieve(index, question, wanted, model)
    return replace(found, trace=replace(found.trace, seconds=0, encoder_seconds=0, model_seconds=0))


def scores(found: Evidence) -> list[float]:
    return [each.score for each in (*found.passages, *found.propositions, *found.summaries)]


# Walks (3, 4, 6)


@given(st.integers(0, 10_000), st.floats(0, 1), st.sampled_from([0.5, 0.85]))
@settings(max_examples=25, deadline=None)
def test_a_row_without_an_attractive_neighbour_keeps_its_structure_and_restarts_with_the_rest(
    seed: int, weight: float, damping: float
) -> None:
    """λ T_s + (1 − λ)·restart for a row of T_n that is 0/0, solved densely."""
    draw = np.random.default_rng(seed)
    linked = (draw.random((8, 8)) < 0.3) & ~np.eye(8, dtype=bool)
    T_s = row_normalised(sp.csr_array(linked.astype(np.float32)))
    attracted = np.where(draw.random(8) < 0.3, draw.random(8) + 0.1, 0).astype(np.float32)
    restart = restart_at(np.array([int(draw.integers(8))]), 8)
    P = np.zeros((8, 8))
    for i in range(8):
        T_n = linked[i] * attracted
        P[i] += weight * T_s.toarray()[i] if linked[i].any() else weight * restart[:, 0]
        P[i] += (1 - weight) * (T_n / T_n.sum() if T_n.any() else restart[:, 0])
    assert np.allclose(P.sum(axis=1), 1)
    exact = np.linalg.solve(np.eye(8) - damping * P.T, (1 - damping) * restart[:, 0])
    alone = personalised_pagerank(query_aware_transition(T_s, attracted, weight), restart, damping)[:, 0]
    together = query_aware_walks(T_s, np.stack([attracted] * 2, axis=1), np.hstack([restart] * 2), weight, damping)
    assert np.allclose(alone, exact, atol=2e-5)
    assert np.allclose(together, exact[:, None], atol=2e-5)


@pytest.mark.parametrize("rows", [[], [-1], [3], [0, 7]])
def test_seeds_that_are_no_vertices_are_refused(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="seed"):
        restart_at(np.array(rows, np.int64), 3)


def test_a_batch_of_several_blocks_equals_single_runs() -> None:
    linked = np.random.default_rng(5).random((70, 70)) < 0.1
    T = row_normalised(sp.csr_array(linked.astype(np.float32)))
    batch = personalised_pagerank(T, np.eye(70, dtype=np.float32), 0.85)
    assert batch.shape == (70, 70)
    for row in (0, 31, 32, 63, 64, 69):
        assert np.allclose(batch[:, [row]], personalised_pagerank(T, restart_at(np.array([row]), 70), 0.85), atol=2e-6)


# Nothing to find, and zero vectors (4, 7)


@pytest.mark.parametrize("mode", MODES)
def test_where_there_is_nothing_every_mode_finds_nothing(
    emptied: Index, without_propositions: Index, mode: Mode
) -> None:
    for question in QUESTIONS:
        nothing = ask(emptied, question, mode)
        assert (nothing.passages, nothing.propositions, nothing.summaries) == ((), (), ())
        little = ask(without_propositions, question, mode)
        assert little.propositions == () and len(little.passages) <= 2


class Blank(HashEncoder):
    """Knows nothing of some texts (a row of zeros), and finds some the very opposite of others."""

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors_ND = super().encode(texts)
        known = [0 if "Tarn" in text else -1 if "Marlow" in text and len(text) % 2 else 1 for text in texts]
        return vectors_ND * np.array(known, np.float32).reshape(-1, 1)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
def test_zero_and_opposite_vectors_give_numbers(blank: Index, mode: Mode) -> None:
    for question in QUESTIONS:
        assert np.isfinite(scores(ask(blank, question, mode))).all()


# Equal seeds and equal scores (5)


@pytest.mark.parametrize("method", ["leidenalg", "igraph"])
def test_the_same_seed_gives_the_same_communities_where_many_are_as_good(method: str) -> None:
    linked = np.triu(np.random.default_rng(2).random((90, 90)) < 0.06, 1)
    graph = sp.csr_array((linked | linked.T).astype(np.float32))
    found = [find_communities(graph, method, seed).tolist() for seed in (7, 7, 7, 1, 2, 3)]  # type: ignore[arg-type]
    assert found[0] == found[1] == found[2] and found[1:].count(found[0]) < 5, "another seed may find others"


@pytest.mark.parametrize("mode", MODES)
def test_equal_scores_go_by_source(twins: Index, mode: Mode) -> None:
    found = retrieve(twins, "What is the Lantern of Port Ellery?", RetrieveSettings(mode=mode, top_k=24)).passages
    places = [(-each.score, each.item.source) for each in found]
    assert len(places) == 24 and places == sorted(places)


# Synonyms (11)


KINDS = ("ship", "yard", "boat", "inn", "sail")


class Clustered(HashEncoder):
    """Knows kinds of things, and no thing from another of its kind."""

    def encode(self, texts: Sequence[str]) -> Floats:
        return super().encode([next((kind for kind in KINDS if text.startswith(kind)), text) for text in texts])


def test_synonyms_are_symmetric_order_free_and_never_oneself_among_duplicates(tmp_path: Path) -> None:
    documents = [
        Document(f"{kind}{n}", "", f"In Tarn we saw {kind.title()} {chr(65 + n)}x.")
        for kind in KINDS
        for n in range(12)
    ]
    values = {"synonym_neighbours": 4, "min_synonym_similarity": 1.0}
    there, back = (build(tmp_path / str(step), documents[::step], Clustered(), **values) for step in (1, -1))
    synonyms = there.data.synonym_EE.toarray()
    assert np.array_equal(synonyms, back.data.synonym_EE.toarray()) and np.array_equal(synonyms, synonyms.T)
    names = list(there.data.name_texts)
    for kind in KINDS:
        rows = [row for row, name in enumerate(names) if name.startswith(kind)]
        others = [row for row in range(len(names)) if row not in rows]
        assert len(rows) == 12 and (np.count_nonzero(synonyms[rows], axis=1) >= 4).all(), "cosine 1.0 counts"
        assert not synonyms[np.ix_(rows, others)].any() and not synonyms.diagonal().any()
    assert synonyms.max() <= 1 + 1e-6 and synonyms[synonyms > 0].min() >= 1 - 1e-6, "a pair found twice is not added up"


def test_a_twin_is_a_neighbour_at_the_highest_threshold() -> None:
    vectors_ND = unit_rows(np.random.default_rng(4).normal(size=(40, 96)).astype(np.float32))
    graph = similarity_graph(np.concatenate([vectors_ND, vectors_ND]), 3, 1.0).toarray()
    assert np.array_equal(graph > 0, np.roll(np.eye(80), 40, axis=1) > 0), "rounding takes no twin away"


# Awkward text (13)

AWKWARD = (
    "10:30",
    "https://e.org/a_b?c=1&d=(x)",
    "snake_case",
    "(old (nested) form)",
    "<|endoftext|>",
    "a/b",
    "−3.5 %",
)
sentences = st.lists(
    st.lists(st.sampled_from([*AWKWARD, "kelp", "and", "bread"]), min_size=1, max_size=8)
    .map(" ".join)
    .map("We saw {} there.".format),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(chosen=sentences)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_awkward_words_survive_from_the_document_to_the_proposition(
    chosen: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = " ".join(chosen)
    index = build(tmp_path_factory.mktemp("awkward"), [Document("d", "", text)], max_passage_tokens=64)
    assert sorted(index.data.proposition_texts) == sorted(chosen)
    for sentence in chosen:
        found = ask(index, sentence, "naive").propositions[0].item
        (span,) = found.spans
        assert text[span.start : span.end] == found.text == sentence


# A model that goes (14)


class Going(ScriptedModel):
    """Answers `calls` batches, then no more."""

    left = 1

    def complete(self, requests: Sequence[CompletionRequest]) -> list[Completion]:
        self.left -= 1
        if self.left < 0:
            raise UserError("no answer", "a model server", "start it")
        return super().complete(requests)


def test_replies_that_came_stand_when_the_model_goes_before_another_is_asked_for_again() -> None:
    good = json.dumps({"answer": "Ada", "next_questions": []})
    caller = Caller(Going(lambda request: good if request.messages[1].content == "one" else "hm"))
    one, two = caller.ask(Verdict, "system", ["one", "two"], 9)
    assert one == Verdict(answer="Ada") and two is None and caller.spent.calls == 2
    with pytest.raises(ModelGone, match="start it"):
        Caller(Going(lambda request: "hm")).ask(Verdict, "system", ["one", "two"], 9)


def test_a_usable_reply_costs_one_call() -> None:
    model = ScriptedModel(lambda request: json.dumps({"answer": "Ada", "next_questions": []}))
    assert Caller(model).ask(Verdict, "system", ["one", "two", "three"], 9) == [Verdict(answer="Ada")] * 3
    assert len(model.asked) == 3


# Queries do not meet, with a model neither (18)


def scripted(request: CompletionRequest) -> str:
    """A reply that depends on the request alone."""
    assert request.schema is not None
    known = {
        "selected": [2, 1],
        "answer": "",
        "next_questions": ["Where was Ada Marlow born?"],
        "questions": ["Who built the Lantern?", "Who founded the yard?"],
        "score": 50,
    }
    return json.dumps({name: known.get(name) for name in request.schema["properties"]})


@pytest.mark.parametrize("mode", MODES)
def test_queries_with_a_model_do_not_meet(hashed: Index, mode: Mode) -> None:
    model = ScriptedModel(scripted)
    a, b, again = (ask(hashed, QUESTIONS[n], mode, model) for n in (0, 1, 0))
    assert again == a and b != a
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda n: ask(hashed, QUESTIONS[n], mode, model), [0, 1] * 4))
    assert together == [a, b] * 4


# Paths (22)


def test_propositions_are_neighbours_by_a_name_or_a_synonym_and_by_nothing_else(tmp_path: Path) -> None:
    texts = (
        "In Tarn we saw Ship Ax.",
        "By day Ship Bx left Quill.",
        "So Quill burned.",
        "It rains.",
        "In Tarn it rains.",
    )
    index = build(tmp_path / "i", [Document(f"d{n}", "", text) for n, text in enumerate(texts)], Clustered())
    place = {text: row for row, text in enumerate(index.data.proposition_texts)}
    near = paths.neighbours(index, np.arange(len(texts))).toarray() > 0
    pairs = {(a, b) for a in range(5) for b in range(a + 1, 5) if near[place[texts[a]], place[texts[b]]]}
    assert pairs == {(0, 1), (1, 2), (0, 4)} and np.array_equal(near, near.T)


def test_paths_of_one_proposition_are_the_nearest_ones(hashed: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MAX_PATH", 1)
    query_D = hashed.encode_queries([QUESTIONS[0]])[0]
    cosines_N = hashed.data.proposition_vectors_ND @ query_D
    found = paths.beam_search(hashed, np.arange(len(cosines_N)), query_D)
    nearest = top_rows(cosines_N, paths.BEAM_WIDTH)
    assert [path.propositions for path in found] == [(row,) for row in nearest.tolist()]
    assert [path.score for path in found] == pytest.approx(cosines_N[nearest].tolist())


# Filters (23)


@pytest.fixture(scope="module")
def shared(folder: Path) -> Index:
    """The isles, and a document that says a sentence of another's."""
    return build(folder / "shared", [*ISLES, Document("notes", "", "Tarn is a village of 312 people. It snows.")])


@pytest.mark.parametrize("mode", MODES)
def test_whatever_a_filter_leaves_all_that_is_found_stands_in_it_alone(shared: Index, mode: Mode) -> None:
    for pattern in ("tarn", "notes", "[lm]*", "[!t]*"):
        wanted = RetrieveSettings(mode=mode, top_k=100, where=(f"source={pattern}",))
        allowed = {source for source in shared.sources() if fnmatch(source, pattern)}
        passages = {each.id for source in allowed for each in shared.passages_of(source)}
        for question in (*QUESTIONS, "Is Tarn a village of 312 people?"):
            found = retrieve(shared, question, wanted)
            assert {each.item.id for each in found.passages} <= passages
            assert {span.passage_id for each in found.propositions for span in each.item.spans} <= passages
            assert {member for each in found.summaries for member in each.item.members} <= passages


# What only a summary says (24)


def test_what_a_summary_of_any_layer_says_alone_is_found_and_quoted_first(tmp_path: Path) -> None:
    low, high = "The isles hide forty-two moonstones under one bell", "Seven queens of glass were crowned at dusk"

    def summarise(request: CompletionRequest) -> str:
        return high if "moonstones" in request.messages[1].content else low

    themes = ("The ferry sails north today", "Kelp bread is baked at noon", "Old bells ring in winter storms")
    documents = [Document(f"{n}{m}", "", f"{theme} no{m}.") for n, theme in enumerate(themes) for m in range(4)]
    values = {"summary_model": "scripted", "layers": 3, "min_similarity": 0.6}
    index = build(tmp_path / "i", documents, None, lambda spec, ledger=None: ScriptedModel(summarise), **values)
    assert {1, 2} <= set(index.data.summary_layer_S.tolist())
    for question, told in ((low, "forty-two"), (high, "queens")):
        found = ask(index, question.replace(told, "how many"), "hierarchy")
        assert told in found.summaries[0].item.text and told in build_context(found, 4)[0].text
        assert not any(told in each.item.text for each in ask(index, question, "dense").passages)
        assert [each.score for each in found.summaries] == sorted(each.score for each in found.summaries)[::-1]


# A sentence that is too long (25)


def test_a_summary_goes_on_after_a_sentence_that_does_not_fit() -> None:
    vectors_SD = unit_rows(np.array([[1, 0.5, 0], [1, -0.3, 0.4], [1, -0.3, -0.45]], np.float32))
    assert choose_sentences(vectors_SD, [5, 5, 5].__getitem__, 10) == [0, 1], "the second is better than the third"
    assert choose_sentences(vectors_SD, [5, 50, 5].__getitem__, 10) == [0, 2]

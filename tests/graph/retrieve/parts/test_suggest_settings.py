"""The settings `suggestions` change the walk of `local` and `global`; empty settings give the same result as none."""

import numpy as np
import pytest

from graph.config import parse_settings
from graph.errors import UserError
from graph.index.index import Index
from graph.retrieve.learned.light import WALK
from graph.retrieve.modes.local import run_rounds
from graph.retrieve.parts.query import Query, RetrieveSettings, SuggestSettings
from graph.retrieve.parts.suggest import TEMPERATURE, THRESHOLD, extract_subgraph, suggest
from graph.retrieve.retrieve import retrieve
from graph.types import Floats, Ints
from tests.corpora import guild_documents
from tests.graph.hashed import build, query_of

QUESTION = "Who taught Member Netmakers3 of the Netmakers Guild?"


@pytest.fixture(scope="module")
def guilds(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("guilds") / "index", guild_documents())


def reference_mass(index: Index, cosines_N: Floats, known: Ints, damping: float, structure_weight: float) -> Floats:
    """ToPG's Eq. 3–8 with dense matrices in double precision, by solving the walk's linear system; 0 for known propositions: float64[N]."""
    rows_l = extract_subgraph(index, known)
    incidence = index.incidence_NB[rows_l, :].toarray().astype(float)
    forth = incidence / np.maximum(incidence.sum(axis=1, keepdims=True), 1e-12)
    back = incidence.T / np.maximum(incidence.T.sum(axis=1, keepdims=True), 1e-12)
    structure = forth @ back
    np.fill_diagonal(structure, 0)
    sums = structure.sum(axis=1, keepdims=True)
    structure = np.divide(structure, sums, out=np.zeros_like(structure), where=sums > 1e-9)
    attraction = np.where(cosines_N[rows_l] >= THRESHOLD, np.exp(cosines_N[rows_l] / TEMPERATURE), 0)
    nearby = (structure > 0) * attraction
    sums = nearby.sum(axis=1, keepdims=True)
    nearby = np.divide(nearby, sums, out=np.zeros_like(nearby), where=sums > 0)
    moves = structure_weight * structure + (1 - structure_weight) * nearby
    restart = np.isin(rows_l, known) / len(known)
    moves += np.outer(1 - moves.sum(axis=1), restart)
    mass_l = (1 - damping) * np.linalg.solve(np.eye(len(rows_l)) - damping * moves.T, restart)
    mass_N = np.zeros(len(cosines_N))
    mass_N[rows_l] = np.where(restart > 0, 0, mass_l)
    return mass_N


@pytest.mark.parametrize("damping", [0.1, 0.5, 0.85, 0.95])
@pytest.mark.parametrize("structure_weight", [0.0, 0.25, 0.5, 1.0])
def test_the_walk_gives_the_masses_of_the_reference_solution_for_all_settings(
    guilds: Index, damping: float, structure_weight: float
) -> None:
    cosines_N = guilds.data.proposition_vectors_ND @ query_of(guilds, QUESTION).vector_D
    known = np.argsort(-cosines_N, kind="stable")[:2]
    walk = SuggestSettings(damping=damping, structure_weight=structure_weight)
    found = suggest(guilds, cosines_N, known, 100, walk)
    expected_N = reference_mass(guilds, cosines_N, known, damping, structure_weight)
    mass_N = np.zeros(len(cosines_N))
    mass_N[found.rows] = found.mass
    assert len(found.rows) and np.allclose(mass_N, expected_N, atol=2e-5)


def test_at_structure_weight_1_the_question_does_not_influence_the_walk(guilds: Index) -> None:
    cosines = [
        guilds.data.proposition_vectors_ND @ query_of(guilds, text).vector_D for text in (QUESTION, "the islands")
    ]
    known = np.array([0])
    by_graph = [suggest(guilds, each, known, 100, SuggestSettings(structure_weight=1)) for each in cosines]
    by_question = [suggest(guilds, each, known, 100, SuggestSettings()) for each in cosines]
    assert by_graph[0].rows.tolist() == by_graph[1].rows.tolist() and np.array_equal(*(f.mass for f in by_graph))
    assert by_question[0].mass.tolist() != by_question[1].mass.tolist()


def steps(index: Index, mode: str, **values: object) -> tuple[str, ...]:
    settings = RetrieveSettings.model_validate({"mode": mode, "top_k": 5, **values})
    return retrieve(index, QUESTION, settings).trace.steps


def test_local_and_global_use_the_walk_settings(guilds: Index) -> None:
    """With damping 0, the walk restarts at every step and never leaves its seeds: nothing is suggested, and no anchor is added."""
    no_walk = {"suggestions": {"damping": 0}}
    assert steps(guilds, "local")[1] != steps(guilds, "local", **no_walk)[1] == "0 suggested by the walk"
    first = len(anchors_in(steps(guilds, "global")))
    assert first > 2 and anchors_in(steps(guilds, "global", **no_walk))[1:] == ["0"]
    no_settings = {"suggestions": {}}
    for mode in ("local", "global"):
        plain, same = (
            retrieve(guilds, QUESTION, RetrieveSettings.model_validate({"mode": mode, **values}))
            for values in ({}, no_settings)
        )
        assert plain.passages == same.passages


def anchors_in(steps: tuple[str, ...]) -> list[str]:
    """The number of anchors of each round, as text: ["8", "4"] for the step "12 anchors (8 + 4)"."""
    return steps[0].partition("(")[2].rstrip(")").split(" + ")


def test_rounds_use_the_walk_settings(guilds: Index) -> None:
    """In the first round, the selector gets the walk's suggestions and the few propositions nearest to the question; if the walk never leaves its
    seeds, only the nearest propositions.
    """
    query = query_of(guilds, QUESTION)
    cosines_N = guilds.data.proposition_vectors_ND @ query.vector_D
    nearest = np.argsort(-cosines_N, kind="stable")

    def offered_in_first_round(damping: float) -> list[int]:
        calls: list[Ints] = []

        def select(index: Index, query: Query, rows: Ints) -> Ints:
            calls.append(rows)
            return rows[:1]

        run_rounds(guilds, query, nearest[-2:], cosines_N, select, 6, SuggestSettings(damping=damping))
        return calls[1].tolist()  # The first call selects the propositions to start from.

    known = int(nearest[-2])
    assert offered_in_first_round(0) == [row for row in nearest[:6].tolist() if row != known]
    suggested = suggest(guilds, cosines_N, nearest[-2:-1], 6, SuggestSettings()).rows.tolist()
    assert offered_in_first_round(0.85) == list(dict.fromkeys([*suggested, *nearest[:5].tolist()]))
    assert suggested[0] not in nearest[:5]


def test_the_default_walk_settings_are_those_of_trained_selectors() -> None:
    assert SuggestSettings() == WALK == SuggestSettings(damping=0.85, structure_weight=0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"damping": 1}, r"x: suggestions.damping = 1\. .*less than or equal to 0.99"),
        ({"damping": -0.1}, r"suggestions.damping = -0.1\. .*greater than or equal to 0"),
        ({"damping": float("nan")}, r"suggestions.damping = nan"),
        ({"structure_weight": 1.01}, r"suggestions.structure_weight = 1.01\. .*less than or equal to 1"),
        ({"structure_weight": -1}, r"suggestions.structure_weight = -1"),
        ({"dampin": 0.5}, r"unknown key 'suggestions.dampin'\. Did you mean 'suggestions.damping'\?"),
    ],
)
def test_wrong_walk_settings_are_reported(values: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_settings(RetrieveSettings, {"suggestions": values}, "x")

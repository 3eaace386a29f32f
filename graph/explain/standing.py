"""Where a passage stands in each mode, as the mode itself ranks it.

Each mode is run as for any question, only deeper. Those whose ranking would change with the depth are looked at no deeper than
they rank by themselves: what is not there, they do not reach.
"""

from collections.abc import Iterator, Sequence
from typing import cast, get_args

from graph.explain.types import Standing
from graph.index.index import Index
from graph.retrieve import RetrieveSettings, retrieve
from graph.retrieve.modes.paths import EXPLORE_PASSAGES
from graph.retrieve.modes.statements import INITIAL
from graph.shared.modes import Mode
from graph.shared.types import Evidence, Passage, Scored

DEPTHS = (100, 10_000)
"""First as deep as most passages stand that anybody asks for, then as deep as a search goes."""
OWN_DEPTHS: dict[Mode, int] = {"paths": EXPLORE_PASSAGES, "statements": INITIAL, "topics": INITIAL}


def standings(
    index: Index, question: str, passage_id: str, settings: RetrieveSettings
) -> Iterator[tuple[Standing, Sequence[Scored[Passage]]]]:
    """The passage's standing in the mode of `settings` and then in the others, each with the passages that the question gets.

    `plan` is left out: without a model it is `hops`.
    """
    others = (mode for mode in get_args(Mode) if mode not in (settings.mode, "plan"))
    for mode in (settings.mode, *others):
        asked = settings.model_copy(update={"mode": mode})
        found = retrieve(index, question, asked)
        yield standing_in(found, look_deeper(index, found, passage_id, asked), passage_id), found.passages


def look_deeper(index: Index, found: Evidence, passage_id: str, settings: RetrieveSettings) -> Evidence:
    """What was found, or what is found as deep as it takes to meet the passage, if the mode ranks it at all."""
    nodes = max(len(index.data.passage_ids) + len(index.data.summary_ids), len(index.data.proposition_ids))
    depth = settings.top_k
    for deeper in (OWN_DEPTHS[settings.mode],) if settings.mode in OWN_DEPTHS else DEPTHS:
        if place_in(found, passage_id) is not None or depth >= nodes:
            break
        if deeper > depth:
            depth = deeper
            found = retrieve(index, found.query, settings.model_copy(update={"top_k": depth}))
    return found


def place_in(evidence: Evidence, passage_id: str) -> int | None:
    """The place of a passage among those of an evidence, from 0."""
    return next((place for place, each in enumerate(evidence.passages) if each.item.id == passage_id), None)


def standing_in(found: Evidence, deep: Evidence, passage_id: str) -> Standing:
    """Where the passage stands in `deep`, beside what the question gets, `found`."""
    place = place_in(deep, passage_id)
    return Standing(
        mode=cast(Mode, found.trace.mode),
        rank=None if place is None else place + 1,
        score=None if place is None else deep.passages[place].score,
        ranked=len(deep.passages),
        found=len(found.passages),
        first_score=found.passages[0].score if found.passages else None,
        last_score=found.passages[-1].score if found.passages else None,
        path=deep.paths[place] if place is not None and deep.paths else (),
        steps=found.trace.steps,
    )

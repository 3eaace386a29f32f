"""An explanation as a person at a terminal reads it."""

from collections.abc import Iterator, Sequence

from graph.explain.types import Clue, Explanation, Lead, Standing
from graph.retrieve.parts.links import SEEDS
from serve.show import place_of, wrapped


def show_explanation(told: Explanation) -> str:
    """The passage, its rank and score in every mode, what it has of the question, what leads to it, and what stands before it."""
    parts = [
        [wrapped(f"{told.passage.title} · {place_of(told.passage)}", ""), wrapped(told.passage.text)],
        list(_table(told.standings)),
        [f"How {told.mode} found it", *_path(told.standings[0])],
        [
            "What it has of the question (and how many passages do)",
            *_clues("words", told.words),
            *_clues("names", told.names),
        ],
        ["Its propositions nearest to the question", *_stated(told)],
        [
            f"What leads to it (hops): by itself it is no. {told.own_rank:,} with {told.own_score:.3f}",
            *_lift(told),
            *(wrapped(_lead(lead), "- ") for lead in told.leads),
            *(
                ()
                if told.leads
                else ("- nothing: no other document shares a rare entity with it, or mentions its own",)
            ),
        ],
        [f"What {told.mode} finds before it", *_before(told)],
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def _table(standings: Sequence[Standing]) -> Iterator[str]:
    yield f"{'mode':<12}{'rank':>14}{'score':>9}   what is found"
    for each in standings:
        rank = f"none of {each.ranked:,}" if each.rank is None else f"{each.rank:,}"
        score = "–" if each.score is None else f"{each.score:.3f}"
        found = f"{each.found:,}, from {each.first_score:.3f} to {each.last_score:.3f}" if each.found else "nothing"
        yield f"{each.mode:<12}{rank:>14}{score:>9}   {found}"


def _path(standing: Standing) -> Iterator[str]:
    for step in standing.steps:
        yield wrapped(step, "- ")
    if standing.rank is None:
        yield "- and it is not among what this mode ranks"
    else:
        yield wrapped(" → ".join(("question", *(standing.path or ("its own score",)))), "- ")


def _clues(what: str, clues: Sequence[Clue]) -> Iterator[str]:
    for held, told in ((True, f"{what} it has"), (False, f"{what} it lacks")):
        if listed := ", ".join(f"{clue.text} ({clue.passages:,})" for clue in clues if clue.held == held):
            yield wrapped(f"{told}: {listed}", "- ")


def _stated(told: Explanation) -> Iterator[str]:
    for each in told.propositions:
        yield wrapped(f"{each.cosine:.3f}, no. {each.rank:,} of all: “{each.text}”", "- ")


def _lift(told: Explanation) -> Iterator[str]:
    if told.lift > 0:
        yield wrapped(f"{told.lift:.3f} of this is by words of the question: {', '.join(told.lifted_by)}", "- ")


def _lead(lead: Lead) -> str:
    how = "as this one is called" if lead.by_title else "of which this one says more"
    followed = "followed" if lead.followed else f"not followed: only the first {SEEDS} lead on"
    place = f"no. {lead.rank:,} by itself, {lead.passage.title} · {place_of(lead.passage)}"
    return f"{place}: “{lead.proposition}” mentions “{lead.entity}”, {how}; worth {lead.worth:.3f}, {followed}"


def _before(told: Explanation) -> Iterator[str]:
    for rank, found in enumerate(told.before, start=1):
        yield wrapped(f"{rank}. {found.score:.3f} · {found.item.title} · {place_of(found.item)}", "")
    if not told.before:
        yield "nothing"

"""From evidence to what a prompt quotes: numbered excerpts, best first, that a citation can be traced back from."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graph.answer.prompt import numbered
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.types import Evidence, Excerpt, Finding, Passage, Proposition, Summary


@dataclass(frozen=True)
class TokenBudget:
    """How long the excerpts of a prompt may be together, numbers and titles included, as `count_tokens` counts them."""

    max_tokens: int
    count_tokens: Callable[[str], int]


def token_budget(max_tokens: int | None, count_tokens: Callable[[str], int]) -> TokenBudget | None:
    """The budget of `max_tokens`; None for no limit."""
    return None if max_tokens is None else TokenBudget(max_tokens, count_tokens)


def build_context(evidence: Evidence, limit: int, budget: TokenBudget | None = None) -> tuple[Excerpt, ...]:
    """The excerpts of a prompt, in the order in which it shows them. UserError when there are excerpts and none fits the budget."""
    return in_prompt_order(rank_excerpts(evidence, limit, budget), evidence)


def in_prompt_order(ranked: tuple[Excerpt, ...], evidence: Evidence) -> tuple[Excerpt, ...]:
    """Best first, or, where there are findings beside passages, in the order of `both_ends`."""
    return both_ends(ranked) if evidence.findings else ranked


def fit_excerpts(ranked: tuple[Excerpt, ...], fits: Callable[[tuple[Excerpt, ...]], bool]) -> tuple[Excerpt, ...]:
    """As many of the first excerpts as fit together; where not even the first does, the first that fits by itself; or none."""
    count = largest_fitting(len(ranked), lambda first: fits(ranked[:first]))
    return ranked[:count] or next(((each,) for each in ranked[1:] if fits((each,))), ())


def largest_fitting(count: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `count` that fits, where each smaller one does, too; 0 is not tried.

    >>> largest_fitting(5, lambda number: number <= 3)
    3
    """
    if count == 0 or fits(count):
        return count
    return bisect_left(range(1, count), True, key=lambda number: not fits(number))


def rank_excerpts(evidence: Evidence, limit: int, budget: TokenBudget | None = None) -> tuple[Excerpt, ...]:
    """The best excerpts, at most `limit`: passages and summaries by score; propositions for passages where a mode ranks them.

    Findings come beside them, best first. With a budget, an excerpt that is longer than the room left is skipped; those after
    it may still fit. None where the documents are taken to hold nothing on the question (`absence`). UserError when there are
    excerpts and none fits.
    """
    if evidence.absence is not None and evidence.absence.abstained:
        return ()
    ranked: list[tuple[float, Excerpt]] = [(found.score, of_summary(found.item)) for found in evidence.summaries]
    if evidence.propositions:
        titles = {found.item.source: found.item.title for found in evidence.passages}
        ranked += [(found.score, of_proposition(found.item, titles)) for found in evidence.propositions]
    else:
        ranked += [(found.score, of_passage(found.item)) for found in evidence.passages]
    ranked.sort(key=lambda pair: -pair[0])
    findings = sorted(evidence.findings, key=lambda finding: -finding.score)
    excerpts = (*map(_of_finding, findings), *(excerpt for _, excerpt in ranked))
    return excerpts[: len(findings) + limit] if budget is None else _fill(excerpts, len(findings) + limit, budget)


def both_ends(excerpts: tuple[Excerpt, ...]) -> tuple[Excerpt, ...]:
    """From best first to the best at both ends: what stands in the middle of a long prompt is read least (Liu et al. 2024)."""
    return (*excerpts[::2], *reversed(excerpts[1::2]))


def of_passage(passage: Passage) -> Excerpt:
    """A passage as an excerpt."""
    place = (passage.source, passage.start, passage.end)
    return Excerpt(passage.id, passage.title, passage.text, *place, page=passage.page)


def of_proposition(proposition: Proposition, titles: Mapping[str, str]) -> Excerpt:
    """A proposition as an excerpt, at its first place; `titles` are those of documents, by source."""
    place = proposition.spans[0]
    title = titles.get(place.source, "")
    return Excerpt(proposition.id, title, proposition.text, place.source, place.start, place.end, page=place.page)


def of_summary(summary: Summary) -> Excerpt:
    """A summary as an excerpt."""
    return Excerpt(summary.id, "Summary", summary.text, members=summary.members)


def _fill(excerpts: tuple[Excerpt, ...], limit: int, budget: TokenBudget) -> tuple[Excerpt, ...]:
    kept: list[Excerpt] = []
    room = budget.max_tokens
    for excerpt in excerpts:
        if len(kept) == limit:
            break
        length = budget.count_tokens(numbered(len(kept) + 1, excerpt))
        if length <= room:
            kept.append(excerpt)
            room -= length
    if excerpts and not kept:
        shortest = min(budget.count_tokens(numbered(1, excerpt)) for excerpt in excerpts)
        raise UserError(
            f"max_context_tokens = {budget.max_tokens:,}: none of {len(excerpts)} excerpts fits",
            f"room for the shortest, {shortest:,} tokens",
            "raise it",
        )
    return tuple(kept)


def _of_finding(finding: Finding) -> Excerpt:
    text = f"{finding.question} {finding.answer}"
    return Excerpt(content_id(text), "Found on the way", text, members=finding.passage_ids)

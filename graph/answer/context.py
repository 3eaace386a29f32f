"""Evidence as the numbered excerpts of a prompt, to which citations can be traced back."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graph.answer.prompt import numbered_excerpt
from graph.errors import UserError
from graph.shared.ids import content_id
from graph.types import Evidence, Excerpt, Finding, Passage, Proposition, Summary


@dataclass(frozen=True)
class TokenBudget:
    """The maximum total length of a prompt's excerpts, numbers and titles included, as `count_tokens` counts it."""

    max_tokens: int
    count_tokens: Callable[[str], int]


def token_budget(max_tokens: int | None, count_tokens: Callable[[str], int]) -> TokenBudget | None:
    """The budget of `max_tokens`; None for no limit."""
    return None if max_tokens is None else TokenBudget(max_tokens, count_tokens)


def build_context(evidence: Evidence, limit: int, budget: TokenBudget | None = None) -> tuple[Excerpt, ...]:
    """The excerpts of a prompt, in prompt order. UserError if there are excerpts but none fits the budget."""
    return in_prompt_order(rank_excerpts(evidence, limit, budget), evidence)


def in_prompt_order(ranked: tuple[Excerpt, ...], evidence: Evidence) -> tuple[Excerpt, ...]:
    """The excerpts best first; with findings, the best at both ends: models use the middle of a long prompt least (Liu et al. 2024)."""
    return (*ranked[::2], *reversed(ranked[1::2])) if evidence.findings else ranked


def fit_excerpts(ranked: tuple[Excerpt, ...], fits: Callable[[tuple[Excerpt, ...]], bool]) -> tuple[Excerpt, ...]:
    """The longest run of leading excerpts that fits; if the first does not fit, the first later excerpt that fits alone; otherwise none."""
    count = largest_fitting(len(ranked), lambda first: fits(ranked[:first]))
    return ranked[:count] or next(((excerpt,) for excerpt in ranked[1:] if fits((excerpt,))), ())


def largest_fitting(count: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `count` that fits, assuming that every smaller number fits too; 0 counts as fitting.

    >>> largest_fitting(5, lambda number: number <= 3)
    3
    """
    if count == 0 or fits(count):
        return count
    return bisect_left(range(1, count), True, key=lambda number: not fits(number))


def rank_excerpts(evidence: Evidence, limit: int, budget: TokenBudget | None = None) -> tuple[Excerpt, ...]:
    """The best excerpts, at most `limit`: passages and summaries by score; propositions instead of passages if the retrieval mode ranked any.

    Findings precede these, best first, and do not count towards `limit`. With a budget, an excerpt longer than
    the remaining budget is skipped; later excerpts may still fit. Empty if the documents are judged to contain nothing on the question
    (`absence`). UserError if there are excerpts but none fits.
    """
    if evidence.absence is not None and evidence.absence.abstained:
        return ()
    ranked: list[tuple[float, Excerpt]] = [(match.score, of_summary(match.item)) for match in evidence.summaries]
    if evidence.propositions:
        titles = {match.item.source: match.item.title for match in evidence.passages}
        ranked += [(match.score, of_proposition(match.item, titles)) for match in evidence.propositions]
    else:
        ranked += [(match.score, of_passage(match.item)) for match in evidence.passages]
    ranked.sort(key=lambda pair: -pair[0])
    findings = sorted(evidence.findings, key=lambda finding: -finding.score)
    excerpts = (*map(_of_finding, findings), *(excerpt for _, excerpt in ranked))
    return excerpts[: len(findings) + limit] if budget is None else _fill(excerpts, len(findings), limit, budget)


def of_passage(passage: Passage) -> Excerpt:
    span = (passage.source, passage.start, passage.end)
    return Excerpt(passage.id, passage.title, passage.text, *span, page=passage.page, header=passage.header)


def of_proposition(proposition: Proposition, titles: Mapping[str, str]) -> Excerpt:
    """A proposition as an excerpt, at its first span; `titles` are document titles by source."""
    span = proposition.spans[0]
    title = titles.get(span.source, "")
    return Excerpt(proposition.id, title, proposition.text, span.source, span.start, span.end, page=span.page)


def of_summary(summary: Summary) -> Excerpt:
    return Excerpt(summary.id, "Summary", summary.text, members=summary.members)


def _fill(excerpts: tuple[Excerpt, ...], findings: int, limit: int, budget: TokenBudget) -> tuple[Excerpt, ...]:
    """Those of the first `findings` excerpts that fit, then up to `limit` of the others."""
    chosen: list[Excerpt] = []
    remaining, others = budget.max_tokens, 0
    for position, excerpt in enumerate(excerpts):
        if others == limit:
            break
        length = budget.count_tokens(numbered_excerpt(len(chosen) + 1, excerpt))
        if length <= remaining:
            chosen.append(excerpt)
            remaining -= length
            others += position >= findings
    if excerpts and not chosen:
        shortest = min(budget.count_tokens(numbered_excerpt(1, excerpt)) for excerpt in excerpts)
        found = f"max_context_tokens = {budget.max_tokens:,}: none of the {len(excerpts)} excerpts fits"
        raise UserError(found, f"at least {shortest:,} tokens, the length of the shortest", "raise max_context_tokens")
    return tuple(chosen)


def _of_finding(finding: Finding) -> Excerpt:
    text = f"{finding.question} {finding.answer}"
    return Excerpt(content_id(text), "Found on the way", text, members=finding.passage_ids)

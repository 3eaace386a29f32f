"""Answers, evidence and explanations as text for a terminal. Foreign text is shown as one line of printable characters."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from graph.explain import Clue, Explanation, Lead, ModeRank
from graph.retrieve.hops.mode import SEEDS
from graph.shared.ids import shown_id
from graph.types import Absence, Evidence, Excerpt, Passage, Scored, Summary
from serve.pipeline import Answer
from serve.types import Cost

MAX_WIDTH = 110
INDENT = "    "


def show_evidence(evidence: Evidence) -> str:
    """Every passage with rank, score, title, source, offsets and text; the summaries among themselves; what a model found."""
    lines: list[str] = []
    for rank, found in enumerate(evidence.passages, start=1):
        lines += [_heading(rank, found, found.item.title, place_of(found.item)), wrapped(found.item.text), ""]
    if evidence.summaries:
        lines += ["Summaries", ""]
    for rank, summed in enumerate(evidence.summaries, start=1):
        title = f"layer {summed.item.layer}"
        lines += [
            _heading(rank, summed, title, f"of {len(summed.item.members)} passages"),
            wrapped(summed.item.text),
            "",
        ]
    if evidence.findings:
        lines += ["Found on the way", ""]
    for finding in evidence.findings:
        told = f"from {len(finding.passage_ids)} passages"
        lines += [wrapped(f"{finding.score:.2f} · {finding.question} · {told}", ""), wrapped(finding.answer), ""]
    absent = [f"{_absence_line(evidence.absence)}.", ""] if evidence.absence is not None else []
    return "\n".join([*absent, *(lines or ["Nothing found.", ""])]).rstrip("\n")


def show_answer(answer: Answer) -> str:
    """The answer, the reason, each citation with source, offsets and text, what was wrong, if anything, and what it cost.

    Where there is no answer and nothing is cited, the evidence.
    """
    lines = [wrapped(answer.answer or no_answer(answer.reason), "")]
    if answer.reason:
        lines += ["", wrapped(f"Reason: {answer.reason}", "")]
    for number, excerpt in answer.citations.items():
        lines += ["", wrapped(f"[{number}] {excerpt.title} · {place_of(excerpt)}", ""), wrapped(excerpt.text)]
    if not answer.answer and not answer.citations:
        lines += ["", "What was found:", "", show_evidence(answer.evidence)]
    spent = f"{_cost_line(answer.retrieval, 'Retrieval')} · {_cost_line(answer.writing, 'Answer')}"
    return "\n".join([*lines, "", *_notes(answer), spent])


def no_answer(reason: str) -> str:
    """What stands in the place of an answer that is empty."""
    return "(the model wrote no answer)" if reason else "(the model wrote nothing)"


def show_paths(evidence: Evidence) -> str:
    """What the retrieval did, step by step, and the path from the question to each passage, in words."""
    lines = [wrapped(step, "- ") for step in evidence.trace.steps]
    for rank, found in enumerate(evidence.passages, start=1):
        path = evidence.paths[rank - 1] if evidence.paths else (f"scored {found.score:.3f} by itself",)
        lines += [
            wrapped(f"{rank}. {found.item.title} · {place_of(found.item)}", ""),
            wrapped(" → ".join(("question", *path))),
        ]
    return "\n".join([f"How it was found ({evidence.trace.mode})", *lines])


def printable(text: str) -> str:
    """Text as one line without control characters, so that no document can steer the terminal.

    >>> printable("a\\x1b[31m red\\n b")
    'a[31m red b'
    """
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def _absence_line(absence: Absence) -> str:
    return f"Not in these documents: probability {absence.probability:.2f}"


def _notes(answer: Answer) -> Iterator[str]:
    if answer.evidence.absence is not None:
        asked = "; so no model was asked" if answer.evidence.absence.abstained else ""
        yield f"{_absence_line(answer.evidence.absence)}{asked}."
    if answer.removed:
        yield f"Removed: {', '.join(f'[{number}]' for number in answer.removed)}, cited but not among the passages."
    for sentence in answer.unsupported:
        where = " ".join(f"[{number}]" for number in sentence.cited) or "the passages"
        absent = f" (not there: {', '.join(sentence.missing)})" if sentence.missing else ""
        left_out = "Left out: not" if sentence.start == sentence.end else "Not"
        yield wrapped(f"{left_out} supported by {where}{absent}: “{sentence.text}”", "")
    if answer.left_out:
        yield f"Left out: {answer.left_out:,} of the passages found, which the model's window does not hold."
    if answer.finish_reason == "length":
        yield f"Cut: the model reached the limit after {answer.writing.completion_tokens:,} tokens (--max-answer-tokens)."
    said = answer.answer or answer.reason
    if answer.model and said and not answer.well_formed and answer.writing.calls:
        yield "The model did not keep to the form of answers; its text is shown as it is."


def _cost_line(cost: Cost, what: str) -> str:
    tokens = f"{cost.prompt_tokens:,} + {cost.completion_tokens:,} tokens"
    calls = f"{cost.calls:,} model call{'' if cost.calls == 1 else 's'}, {tokens}, " if cost.calls else ""
    untimed = f", {cost.untimed:,} of unknown time" if cost.untimed else ""
    replayed = f" ({cost.replayed:,} from the ledger, with the time of their making{untimed})" if cost.replayed else ""
    return f"{what}: {calls}{cost.seconds:.2f} s{replayed}"


def _heading(rank: int, found: Scored[Passage] | Scored[Summary], title: str, place: str) -> str:
    return wrapped(f"{rank}. {found.score:.3f} · {title} · {place}", "")


def place_of(item: Passage | Excerpt) -> str:
    """Where a passage or an excerpt stands, and, of a passage, the digits by which `modegraph explain` knows it."""
    if isinstance(item, Excerpt) and not item.source:
        return f"from {len(item.members)} passages"
    page = f" p. {item.page}," if item.page is not None else ""
    identity = f" · {shown_id(item.id)}" if isinstance(item, Passage) else ""
    return f"{item.source}{page} {item.start}–{item.end}{identity}"


def wrapped(text: str, indent: str = INDENT) -> str:
    """Text in lines as wide as the terminal, the first after `indent`, the others below it."""
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    return textwrap.fill(printable(text), width, initial_indent=indent, subsequent_indent=" " * len(indent))


def show_explanation(told: Explanation) -> str:
    """The passage, its rank and score in every mode, what it has of the question, what leads to it, and what stands before it."""
    parts = [
        [wrapped(f"{told.passage.title} · {place_of(told.passage)}", ""), wrapped(told.passage.text)],
        list(_rank_table(told.standings)),
        [f"How {told.mode} found it", *_path(told.standings[0])],
        [
            "What it has of the question (and how many passages do)",
            *_clues("words", told.words),
            *_clues("names", told.names),
        ],
        ["Its propositions nearest to the question", *_nearest_propositions(told)],
        [
            f"What leads to it (hops): by itself it is no. {told.own_rank:,} with {told.own_score:.3f}",
            *_word_bonus(told),
            *(wrapped(_lead(lead), "- ") for lead in told.leads),
            *(
                ()
                if told.leads
                else ("- nothing: no other document shares a rare entity with it, or mentions its own",)
            ),
        ],
        [f"What {told.mode} finds before it", *_ranked_before(told)],
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def _rank_table(standings: Sequence[ModeRank]) -> Iterator[str]:
    yield f"{'mode':<12}{'rank':>14}{'score':>9}   what is found"
    for each in standings:
        rank = f"none of {each.ranked:,}" if each.rank is None else f"{each.rank:,}"
        score = "–" if each.score is None else f"{each.score:.3f}"
        found = f"{each.found:,}, from {each.first_score:.3f} to {each.last_score:.3f}" if each.found else "nothing"
        yield f"{each.mode:<12}{rank:>14}{score:>9}   {found}"


def _path(standing: ModeRank) -> Iterator[str]:
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


def _nearest_propositions(told: Explanation) -> Iterator[str]:
    for each in told.propositions:
        yield wrapped(f"{each.cosine:.3f}, no. {each.rank:,} of all: “{each.text}”", "- ")


def _word_bonus(told: Explanation) -> Iterator[str]:
    if told.lift > 0:
        yield wrapped(f"{told.lift:.3f} of this is by words of the question: {', '.join(told.lifted_by)}", "- ")


def _lead(lead: Lead) -> str:
    how = "as this one is called" if lead.by_title else "of which this one says more"
    followed = "followed" if lead.followed else f"not followed: only the first {SEEDS} lead on"
    place = f"no. {lead.rank:,} by itself, {lead.passage.title} · {place_of(lead.passage)}"
    return f"{place}: “{lead.proposition}” mentions “{lead.entity}”, {how}; worth {lead.worth:.3f}, {followed}"


def _ranked_before(told: Explanation) -> Iterator[str]:
    for rank, found in enumerate(told.before, start=1):
        yield wrapped(f"{rank}. {found.score:.3f} · {found.item.title} · {place_of(found.item)}", "")
    if not told.before:
        yield "nothing"

"""Answers, evidence and explanations as text for a terminal. Text from documents and models is reduced to printable characters."""

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from graph.answer.context import of_proposition
from graph.answer.support import Unsupported
from graph.explain import Clue, Explanation, Lead, ModeRank
from graph.retrieve.hops.mode import SEEDS
from graph.shared.console import counted
from graph.shared.ids import shown_id
from graph.text.sentences import spell_out_row, spell_out_rows
from graph.types import Absence, Evidence, Excerpt, Passage
from serve.pipeline import Answer
from serve.types import Cost

MAX_WIDTH = 110
INDENT = "    "
JOINERS = "\u200c\u200d"
"""The zero-width non-joiner and joiner, which Persian, Indic scripts and emoji need."""


def show_evidence(evidence: Evidence) -> str:
    """Every passage with rank, score, title, source, offsets and text; propositions and summaries, ranked separately; a model's intermediate findings."""
    lines: list[str] = []
    for rank, found in enumerate(evidence.passages, start=1):
        lines += [_heading(rank, found.score, location_of(found.item)), passage_text(found.item), ""]
    if evidence.propositions:
        lines += ["Propositions", ""]
    for rank, proposition in enumerate(evidence.propositions, start=1):
        location = location_of(of_proposition(proposition.item, {}))
        lines += [_heading(rank, proposition.score, location), wrapped(proposition.item.text), ""]
    if evidence.summaries:
        lines += ["Summaries", ""]
    for rank, summary in enumerate(evidence.summaries, start=1):
        location = f"layer {summary.item.layer} · from {counted(len(summary.item.members), 'passage')}"
        lines += [_heading(rank, summary.score, location), wrapped(summary.item.text), ""]
    if evidence.findings:
        lines += ["Intermediate findings", ""]
    for finding in evidence.findings:
        origin = f"from {counted(len(finding.passage_ids), 'passage')}"
        lines += [wrapped(f"{finding.score:.2f} · {finding.question} · {origin}", ""), wrapped(finding.answer), ""]
    absent = [f"{line}.", ""] if (line := _absence_line(evidence.absence)) else []
    return "\n".join([*absent, *(lines or ["Nothing found.", ""])]).rstrip("\n")


def show_answer(answer: Answer) -> str:
    """The answer, the reason, each citation with source, offsets and text, any problems, and the cost.

    If there is neither an answer nor a citation, the evidence follows.
    """
    lines = [wrapped(answer.answer or no_answer(answer.reason), "")]
    if answer.reason:
        lines += ["", wrapped(f"Reason: {answer.reason}", "")]
    for number, citation in answer.citations.items():
        origin = " · attributed, not cited by the model" if citation.attributed else ""
        heading = wrapped(f"[{number}] {location_of(citation)}{origin}", "")
        lines += ["", heading, passage_text(citation)]
        quoted = (spell_out_row(quote.text, citation.text, citation.header) for quote in citation.quotes)
        lines += [wrapped(f"Closest: “{text}”") for text in dict.fromkeys(quoted)]
    if not answer.answer and not answer.citations:
        lines += ["", "What was found:", "", show_evidence(answer.evidence)]
    costs = f"{_cost_line(answer.retrieval, 'Retrieval')} · {_cost_line(answer.writing, 'Answer')}"
    return "\n".join([*lines, "", *_notes(answer), costs])


def no_answer(reason: str) -> str:
    """The placeholder for an empty answer."""
    return "(the model wrote no answer)" if reason else "(the model wrote nothing)"


def unsupported_line(sentence: Unsupported) -> str:
    """A sentence that its passages do not seem to support, with the probability, and the names and numbers that they lack.

    >>> unsupported_line(Unsupported("answer", "It sank in 1921.", 0, 16, 0.861, (2,), ("1921",)))
    'Not supported by [2] (probability 0.86; missing: 1921): “It sank in 1921.”'
    """
    left_out = "Left out: not" if sentence.start == sentence.end else "Not"
    sources = " ".join(f"[{number}]" for number in sentence.cited) or "the passages"
    missing = f"; missing: {', '.join(sentence.missing)}" if sentence.missing else ""
    return f"{left_out} supported by {sources} (probability {sentence.probability:.2f}{missing}): “{sentence.text}”"


def show_paths(evidence: Evidence) -> str:
    """The steps of the retrieval, and the path from the question to each passage, in words."""
    lines = [wrapped(step, "- ") for step in evidence.trace.steps]
    for rank, found in enumerate(evidence.passages, start=1):
        path = evidence.paths[rank - 1] if evidence.paths else (f"score {found.score:.3f}",)
        heading = wrapped(f"{rank}. {location_of(found.item)}", "")
        lines += [heading, wrapped(" → ".join(("question", *path)))]
    return "\n".join([f"How it was found ({evidence.trace.mode})", *lines])


def printable(text: str) -> str:
    """Text as one line without control characters, so that no document can control the terminal.

    >>> printable("a\\x1b[31m red\\n b")
    'a[31m red b'
    """
    return "".join(each for each in " ".join(text.split()) if each.isprintable() or each in JOINERS)


def _absence_line(absence: Absence | None) -> str:
    """A warning if the documents probably do not cover the question, else ""."""
    if absence is None or absence.probability < 0.5:
        return ""
    return f"Not in these documents: probability {absence.probability:.2f}"


def _notes(answer: Answer) -> Iterator[str]:
    absence = answer.evidence.absence
    if line := _absence_line(absence):
        consequence = "; the model was not called" if absence is not None and absence.abstained else ""
        yield f"{line}{consequence}."
    if answer.removed:
        yield f"Removed: {', '.join(f'[{number}]' for number in answer.removed)}, cited but not among the passages."
    for sentence in answer.unsupported:
        yield wrapped(unsupported_line(sentence), "")
    if answer.not_checked:
        sentences = "; ".join(f"“{each.text}” {each.because}" for each in answer.not_checked)
        yield wrapped(f"Not checked: {sentences}.", "")
    if answer.left_out:
        yield f"Left out: {answer.left_out:,} of the passages found, because they do not fit the model's window."
    if answer.finish_reason == "length":
        yield f"Cut off: the model reached the limit after {answer.writing.completion_tokens:,} tokens (--max-answer-tokens, or the model's window)."
    text = answer.answer or answer.reason
    if answer.model and text and not answer.well_formed and answer.writing.calls:
        yield "The model did not follow the answer format: reason and answer may be separated wrongly."


def _cost_line(cost: Cost, what: str) -> str:
    tokens = f"{cost.prompt_tokens:,} + {cost.completion_tokens:,} tokens"
    calls = f"{counted(cost.calls, 'model call')}, {tokens}, " if cost.calls else ""
    replayed = f" ({cost.replayed:,} from the ledger, with their original time)" if cost.replayed else ""
    return f"{what}: {calls}{cost.seconds:.2f} s{replayed}"


def _heading(rank: int, score: float, location: str) -> str:
    return wrapped(f"{rank}. {score:.3f} · {location}", "")


def location_of(item: Passage | Excerpt) -> str:
    """The title (if any), source, page and offsets of a passage or excerpt, and a passage's short id, for `modegraph explain`; of a summary, the title and
    the number of passages.
    """
    title = f"{item.title} · " if item.title else ""
    if isinstance(item, Excerpt) and not item.source:
        return f"{title}from {counted(len(item.members), 'passage')}"
    page = f" p. {item.page}," if item.page is not None else ""
    identity = f" · {shown_id(item.id)}" if isinstance(item, Passage) else ""
    return f"{title}{item.source}{page} {item.start}–{item.end}{identity}"


def wrapped(text: str, indent: str = INDENT) -> str:
    """Text wrapped to the width of the terminal; the first line starts with `indent`, the others with the same number of spaces."""
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    return textwrap.fill(printable(text), width, initial_indent=indent, subsequent_indent=" " * len(indent))


def passage_text(passage: Passage | Excerpt) -> str:
    """The text of a passage, wrapped; with a table, paragraph by paragraph and row by row, each value after its header."""
    spelled = spell_out_rows(passage.text, passage.header)
    parts = [spelled] if spelled == passage.text else re.split(r"\n\s*\n|(?<=[.;:])\n", spelled)
    return "\n".join(wrapped(part) for part in parts if part.strip())


def show_explanation(explanation: Explanation) -> str:
    """The passage, its rank and score in every mode, what it shares with the question, the links to it, and the passages ranked above it."""
    passage = explanation.passage
    own = f"its rank is {explanation.own_rank:,} and its score {explanation.own_score:.3f}"
    first = explanation.standings[0]
    heading = f"{explanation.mode} does not rank it" if first.rank is None else f"How {explanation.mode} found it"
    clues = [*_clues("words", explanation.words), *_clues("names", explanation.names)]
    parts = [
        [wrapped(location_of(passage), ""), passage_text(passage)],
        list(_rank_table(explanation.standings)),
        [heading, *_path(first)],
        ["Words and names of the question (and the number of passages that contain each)", *clues],
        ["Its propositions nearest to the question", *_nearest_propositions(explanation)],
        [f"Links to it (hops): without them {own}", *_links(explanation)],
        [f"Passages that {explanation.mode} ranks above it", *_ranked_before(explanation)],
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def _rank_table(ranks: Sequence[ModeRank]) -> Iterator[str]:
    yield f"{'mode':<12}{'rank':>14}{'score':>9}   passages found"
    for mode_rank in ranks:
        rank = f"none of {mode_rank.ranked:,}" if mode_rank.rank is None else f"{mode_rank.rank:,}"
        score = "–" if mode_rank.score is None else f"{mode_rank.score:.3f}"
        found = "none"
        if mode_rank.found:
            found = f"{mode_rank.found:,}, from {mode_rank.first_score:.3f} to {mode_rank.last_score:.3f}"
        yield f"{mode_rank.mode:<12}{rank:>14}{score:>9}   {found}"


def _path(mode_rank: ModeRank) -> Iterator[str]:
    for step in mode_rank.steps:
        yield wrapped(step, "- ")
    if mode_rank.rank is not None:
        yield wrapped(" → ".join(("question", *(mode_rank.path or ("its score without links",)))), "- ")


def _clues(what: str, clues: Sequence[Clue]) -> Iterator[str]:
    for is_present, label in ((True, f"{what} it contains"), (False, f"{what} it lacks")):
        if items := ", ".join(f"{clue.text} ({clue.passages:,})" for clue in clues if clue.held == is_present):
            yield wrapped(f"{label}: {items}", "- ")


def _nearest_propositions(explanation: Explanation) -> Iterator[str]:
    for proposition in explanation.propositions:
        yield wrapped(f"{proposition.cosine:.3f}, no. {proposition.rank:,} of all: “{proposition.text}”", "- ")


def _links(explanation: Explanation) -> Iterator[str]:
    if explanation.lift > 0:
        words = ", ".join(explanation.lifted_by) or "function words"
        yield wrapped(f"{explanation.lift:.3f} of this score comes from words of the question: {words}", "- ")
    for lead in explanation.leads:
        yield wrapped(_lead(lead), "- ")
    if not explanation.leads:
        why = "no other document shares a rare entity with it, and no link by title leads to it"
        yield wrapped(f"none: {why} (these lead to a document's best passage)", "- ")


def _lead(lead: Lead) -> str:
    how = "a title of this passage" if lead.by_title else "which this passage also mentions"
    followed = "followed" if lead.followed else f"not followed, like all links of passages after the first {SEEDS}"
    location = f"no. {lead.rank:,} without links, {location_of(lead.passage)}"
    return f"{location}: “{lead.proposition}” mentions “{lead.entity}”, {how}; link score {lead.worth:.3f}, {followed}"


def _ranked_before(explanation: Explanation) -> Iterator[str]:
    for rank, found in enumerate(explanation.before, start=1):
        yield _heading(rank, found.score, location_of(found.item))
    if not explanation.before:
        yield "none"

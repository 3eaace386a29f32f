"""Reading rows as a form: columns, counts, and problems of a row; and the scores of an answer, which training and evaluation share:
exact match, word F1, refusal and citations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from data_synth.rows import (
    Form,
    ReadingRow,
    messages_type,
    prompt_problems,
    reading_from_json,
    reading_to_json,
    row_schema,
    split_problems,
)
from graph.answer.citations import check_citations, own_citations, short_answer
from graph.answer.match import exact_match, token_f1
from graph.answer.prompt import NOT_FOUND, is_no_answer
from graph.text.word_forms import count_words


@dataclass(frozen=True)
class ReadingScore:
    """Scores from 0 to 1. For a question without an answer, refusing is right: `exact` and `f1` are 1 for a refusal and 0 otherwise.

    `cites` is 1 if the text cites at least one existing passage, `cites_gold` if it does so and all of those cited are gold.
    """

    exact: float
    f1: float
    refuses: float
    cites: float
    cites_gold: float


def score_reading(text: str, answers: Sequence[str], gold: Collection[int], passages: int) -> ReadingScore:
    """Score a model's text against the accepted answers (empty: unanswerable) and the numbers of the gold passages.

    >>> score_reading("Tarn [2]", ["Tarn"], {2}, 3)
    ReadingScore(exact=1.0, f1=1.0, refuses=0.0, cites=1.0, cites_gold=1.0)
    >>> score_reading("Tarn [2][3]", ["Tarn"], {2}, 3).cites_gold
    0.0
    >>> score_reading("not in the documents", [], set(), 3).exact
    1.0
    >>> score_reading("Unknown [1]", ["unknown"], {1}, 3).refuses
    0.0
    """
    answer = short_answer(text)
    exact = exact_match(answer, answers) if answer else 0.0
    refuses = is_no_answer(answer) and not exact
    cited = own_citations(text, passages).existing
    if answers:
        f1 = 0.0 if refuses else token_f1(answer, answers)
    else:
        exact = f1 = float(refuses)
    cites_gold = bool(cited) and all(number in gold for number in cited)
    return ReadingScore(exact, f1, float(refuses), float(bool(cited)), float(cites_gold))


ABOUT = """\
Questions over passages with short, cited answers, after RAFT (Zhang et al. 2024). Rows over one set of passages are adjacent: training reads
the passages once for all of them. The passages are shuffled; distractors come with the question, are among BM25's top hits, or are gold
for another question, and none of them contains the answer. Where the passages do not answer the question, the answer is "not in the documents"."""


def reading_problems(row: ReadingRow) -> list[str]:
    """The problems that make a row unusable for training, in words; empty for a good row."""
    problems = prompt_problems(row)
    if not row.completion.strip():
        problems.append("completion is empty")
    problems += split_problems(row)
    numbers = {passage_id: number for number, passage_id in enumerate(row.context_ids, start=1)}
    if absent := [passage_id for passage_id in row.gold_ids if passage_id not in numbers]:
        problems.append(f"gold_ids name {absent[0]!r}, which is not a passage of the context")
    gold = {numbers[passage_id] for passage_id in row.gold_ids if passage_id in numbers}
    score = score_reading(row.completion, row.answers, gold, len(numbers))
    if not score.exact:
        problems.append(f"completion answers {row.completion!r:.60}, expected {list(row.answers) or NOT_FOUND!r}")
    elif row.answers and not score.cites_gold:
        problems.append(f"completion must cite gold passages {sorted(gold)} and no others")
    if missing := check_citations(row.completion, len(numbers)).removed:
        problems.append(f"completion cites [{missing[0]}], but the prompt has {len(numbers)} passages")
    if any("<|" in text for text in (row.completion, *(turn.content for turn in row.prompt))):
        problems.append("the prompt or the completion contains a special token ('<|')")
    return problems


def _counts(row: ReadingRow) -> dict[str, str]:
    answer = "yes or no" if row.answers and row.answers[0].casefold() in ("yes", "no") else "words of the passages"
    positions = sorted(row.context_ids.index(passage_id) + 1 for passage_id in row.gold_ids)
    return {
        "set": row.id.partition(":")[0],
        "kind of question": row.kind or "unspecified",
        "answer": answer if row.answers else NOT_FOUND,
        "passages": str(len(row.context_ids)),
        "first gold passage": str(positions[0]) if positions else "none",
    }


READING: Form[ReadingRow] = Form(
    name="reading",
    title="Reading rows",
    about=ABOUT,
    to_json=reading_to_json,
    from_json=reading_from_json,
    schema=lambda: row_schema(ReadingRow, completion=messages_type()),
    problems=reading_problems,
    counts=_counts,
    lengths=lambda row: {
        "prompt": sum(count_words(turn.content) for turn in row.prompt),
        "answer": 0 if is_no_answer(row.completion) else count_words(row.completion),
    },
    texts=lambda row: [*(turn.content for turn in row.prompt), row.completion],
)

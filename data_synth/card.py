"""The dataset card: what `datasets` needs to load the rows, then what a reader needs to trust them."""

from collections.abc import Iterable, Mapping

from data_synth.summary import Summary

MAKER = "modegraph synth preferences"
_CARD = """\
---
configs:
- config_name: default
  data_files:
{data_files}
---

# Preference pairs

{rows:,} pairs (prompt, chosen, rejected) made by `{maker}`, after GraphMPA §3.2.
Chosen: `###Reason: … ###Answer: …` with the gold answer. Rejected: the gold answer alone.

```python
from datasets import load_dataset

pairs = load_dataset("path/to/this/folder")
```

* Index: {origin.index}
* Questions: {origin.questions}
* Contexts: 0 to {origin.max_context} excerpts{budget}, the best of retrieval mode `{origin.mode}`, best first. Gold passages that
  retrieval missed are not added; `gold_in_context` is the share of gold documents that a context quotes.
* Reasoning written by: {origin.reasoner}

## Counts

{counts}

## Lengths in words

{lengths}

The chosen side is the longer one in {chosen_longer:.1%} of the pairs: length alone tells the sides apart that often.

## Filters

Every chosen side parses back to the gold answer, and cites only passages that its prompt shows. A reasoning written by
a model is kept only if it has the form, ends in the gold answer (case and outer punctuation aside), says something,
does not copy the question and does not tell that the answer was given.

{drops}

Exact duplicates removed: {duplicates:,}.
"""


def dataset_card(summary: Summary) -> str:
    """README.md of the dataset, with its YAML front matter; no dates or paths, so that equal data give equal cards."""
    counts = {
        "split": summary.by_split,
        "kind of question": summary.by_kind,
        "context size (excerpts)": summary.by_context_size,
    }
    room = summary.origin.max_context_tokens
    sides = {"chosen": summary.chosen_words, "rejected": summary.rejected_words}
    lengths = [(side, words.mean, words.median, words.longest) for side, words in sides.items()]
    return _CARD.format(
        data_files="\n".join(f"  - split: {split}\n    path: {split}.parquet" for split in summary.by_split),
        rows=summary.rows,
        maker=MAKER,
        origin=summary.origin,
        budget="" if room is None else f" of at most {room:,} tokens together",
        counts="\n\n".join(_count_table(head, by) for head, by in counts.items()),
        lengths=_table(("side", "mean", "median", "longest"), lengths),
        chosen_longer=summary.chosen_longer,
        drops=_count_table("dropped because", summary.drops) if summary.drops else "No row was dropped.",
        duplicates=summary.duplicates,
    )


def _count_table(head: str, counts: Mapping[str, int]) -> str:
    return _table((head, "rows"), counts.items())


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    titles = [str(title) for title in head]
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

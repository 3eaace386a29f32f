"""The dataset card: what `datasets` needs to load the rows, then what a reader needs to trust them."""

from collections.abc import Iterable, Mapping

from data_synth.dataset.summary import Summary
from data_synth.forms import Form, R

MAKER = "modegraph"
_CARD = """\
---
configs:
- config_name: default
  data_files:
{data_files}
---

# {title}

{rows:,} rows made by `{maker} synth {name}`. {about}

```python
from datasets import load_dataset

rows = load_dataset("path/to/this/folder")
```

{origin}

## Counts

{counts}

## Lengths in words

{lengths}
{measures}
## What was left out

{drops}

Exact duplicates removed: {duplicates:,}.
"""


def dataset_card(summary: Summary, form: Form[R]) -> str:
    """README.md of the dataset, with its YAML front matter; no dates or paths, so that equal data give equal cards."""
    counts = {"split": summary.by_split, **summary.counts}
    lengths = [(part, words.mean, words.median, words.longest) for part, words in summary.lengths.items()]
    figures = _table(("measured on a sample", "figure"), summary.measures.items())
    return _CARD.format(
        data_files="\n".join(f"  - split: {split}\n    path: {split}.parquet" for split in summary.by_split),
        title=form.title,
        rows=summary.rows,
        maker=MAKER,
        name=form.name,
        about=form.about,
        origin="\n".join(f"* {what}: {value}" for what, value in summary.origin.items()),
        counts="\n\n".join(_count_table(head, by) for head, by in counts.items()),
        lengths=_table(("part", "mean", "median", "longest"), lengths),
        measures=f"\n## Measures\n\n{figures}\n" if summary.measures else "",
        drops=_count_table("dropped because", summary.drops) if summary.drops else "No row was dropped.",
        duplicates=summary.duplicates,
    )


def _count_table(head: str, counts: Mapping[str, int]) -> str:
    return _table((head, "rows"), counts.items())


def _table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    titles = [str(title) for title in head]
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

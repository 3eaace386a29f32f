"""Documents to passages: slices of at most `max_tokens` tokens, cut at the most meaningful place, with exact offsets."""

from collections.abc import Callable

import semchunk

from graph.ids import content_id
from graph.types import Document, Passage


def split_passages(document: Document, max_tokens: int, count_tokens: Callable[[str], int]) -> tuple[Passage, ...]:
    """Passages in order; `passage.text == document.text[passage.start:passage.end]`, none empty, none overlapping."""
    chunker = semchunk.chunkerify(count_tokens, max_tokens, memoize=False)
    texts, offsets = chunker(document.text, offsets=True)
    return tuple(
        Passage(
            id=content_id("passage", document.source, document.title, str(start), text),
            source=document.source,
            title=document.title,
            order=order,
            start=start,
            end=end,
            text=text,
        )
        for order, (text, (start, end)) in enumerate(zip(texts, offsets, strict=True))
    )

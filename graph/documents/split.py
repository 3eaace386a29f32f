"""From documents to passages: slices of at most `max_tokens` tokens, cut at the most meaningful boundary, with exact offsets."""

from collections.abc import Callable, Iterator

import semchunk

from graph.shared.ids import content_id
from graph.text.sentences import headers_at
from graph.text.word_forms import SENTENCE_ENDS
from graph.types import Document, Passage

_AS_LATIN = str.maketrans(SENTENCE_ENDS, "." * len(SENTENCE_ENDS))


def split_passages(document: Document, max_tokens: int, count_tokens: Callable[[str], int]) -> tuple[Passage, ...]:
    """Passages in order; `passage.text == document.text[passage.start:passage.end]`, none empty, none overlapping."""
    passages: list[Passage] = []
    pieces = list(_cut(document.text, max_tokens, count_tokens))
    headers = headers_at(document.text, (start for start, _, _ in pieces))
    for order, ((start, end, text), header) in enumerate(zip(pieces, headers, strict=True)):
        identity = content_id("passage", document.source, document.title, str(start), text)
        passages.append(Passage(identity, document.source, document.title, order, start, end, text, header=header))
    return tuple(passages)


def _cut(text: str, max_tokens: int, count_tokens: Callable[[str], int]) -> Iterator[tuple[int, int, str]]:
    """Offsets and text of every passage. Sentence ends of other scripts are first replaced by full stops: semchunk recognises only Latin marks.

    A passage that is too long in its original script is cut again.
    """
    chunker = semchunk.chunkerify(count_tokens, max_tokens, memoize=False)
    latin = text.translate(_AS_LATIN)
    for start, end in chunker(latin, offsets=True)[1]:
        piece = text[start:end]
        if latin[start:end] == piece or count_tokens(piece) <= max_tokens:
            yield start, end, piece
        else:
            for part, (first, last) in zip(*chunker(piece, offsets=True), strict=True):
                yield start + first, start + last, part

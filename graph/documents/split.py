"""From documents to passages: slices of at most `max_tokens` tokens, cut at the most meaningful boundary, with exact offsets."""

import re
from collections.abc import Callable, Iterator

import semchunk

from graph.shared.ids import content_id
from graph.text.sentences import headers_at, is_row
from graph.text.word_forms import SENTENCE_ENDS
from graph.types import Document, Passage

_AS_LATIN = str.maketrans(SENTENCE_ENDS, "." * len(SENTENCE_ENDS))
_BEFORE_BAR = re.compile(r"[ \t]+(?=\|)")
_FILL = "\ufdd0"
"""Replaces a blank before a bar; it occurs in no text, because Unicode reserves it."""


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
    """Offsets and text of every passage. To cut, sentence ends of other scripts are replaced by full stops, because semchunk recognises only Latin marks;
    in a row longer than a passage, the blanks before bars are filled, so that the rest of the row does not begin with a bar like a row of its own.

    A passage that is too long in its original script is cut again.
    """
    chunker = semchunk.chunkerify(lambda piece: count_tokens(piece.replace(_FILL, " ")), max_tokens, memoize=False)

    def prepared(line: str) -> str:
        is_long_row = len(line) > max_tokens and is_row(line) and count_tokens(line) > max_tokens
        return _BEFORE_BAR.sub(lambda blanks: _FILL * len(blanks[0]), line) if is_long_row else line

    latin = "\n".join(map(prepared, text.translate(_AS_LATIN).split("\n")))
    for start, end in chunker(latin, offsets=True)[1]:
        piece = text[start:end]
        if latin[start:end] != piece and count_tokens(piece) > max_tokens:
            for part, (first, last) in zip(*chunker(piece, offsets=True), strict=True):
                yield start + first, start + last, part
        elif piece.strip():
            yield start, end, piece

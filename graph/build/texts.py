"""What the encoder sees of passages, and what their terms are counted in."""

from collections.abc import Sequence
from dataclasses import dataclass

from graph.store.columns.numbers import Numbers
from graph.store.columns.strings import Strings
from graph.store.data import IndexData


def encoded_text(title: str, text: str) -> str:
    """What the encoder sees of a passage: its document's title, then the text, unless the text opens with the title."""
    return text if not title or text.lstrip("# \n").startswith(title) else f"{title}\n{text}"


@dataclass(frozen=True)
class EncodedTexts(Sequence[str]):
    """What the encoder sees of every passage, put together when it is asked for."""

    titles: Strings
    document_P: Numbers
    texts: Strings

    @classmethod
    def of(cls, data: IndexData) -> "EncodedTexts":
        """Those of the passages of a generation."""
        return cls(data.document_titles, data.passage_document_P, data.passage_texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        return encoded_text(self.titles[int(self.document_P[row])], self.texts[row])

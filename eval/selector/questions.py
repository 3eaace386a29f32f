"""Questions with the text of their gold sentences, where their file knows them."""

from __future__ import annotations

from pathlib import Path

from data_synth.relevance.gold import CORPUS, read_gold_questions, with_sentences
from graph.documents.questions import Question


def read_with_sentences(file: Path) -> list[Question]:
    """The questions; numbered gold sentences become quotes where the corpus that they count lies beside the questions."""
    asked, corpus = read_gold_questions(file), file.parent / CORPUS
    return [each.question for each in (with_sentences(asked, corpus) if corpus.is_file() else asked)]

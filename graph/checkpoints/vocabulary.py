"""Whether a model has a row for every token that it can be given: a missing one ends a run in the middle, on a GPU without a reason."""

from __future__ import annotations

from typing import Any

from graph.shared.errors import UserError
from graph.text.special_tokens import special_token_pattern


def check_vocabulary(model: Any, tokenizer: Any, called: str) -> None:
    """UserError for a tokenizer whose texts, end or padding hold tokens that the model has no row for; spare rows do no harm.

    A special token without a row is let through (Gemma 3 has one for images): none that a text spells out is read as one.
    """
    rows = vocabulary_rows(model)
    beyond = {token for token, number in tokenizer.get_vocab().items() if number >= rows}
    pattern = special_token_pattern(tokenizer)
    spoken = {token for token in beyond if pattern is None or not pattern.fullmatch(token)}
    spoken |= beyond & {tokenizer.eos_token, tokenizer.pad_token}
    if tokenizer.chat_template:
        spoken |= {token for token in beyond if token in str(tokenizer.chat_template)}
    if spoken:
        raise UserError(
            f"{called}: its tokenizer has {len(spoken):,} tokens beyond the model's {rows:,} rows, {min(spoken)!r} among them",
            "a row of the embeddings and of the head for every token",
            "take the tokenizer that the model was saved with, or call resize_token_embeddings and train the new rows",
        )


def vocabulary_rows(model: Any) -> int:
    """Rows of the embeddings, or of the head where it has fewer."""
    heads = [model.get_input_embeddings(), model.get_output_embeddings()]
    return min(len(head.weight) for head in heads if head is not None)

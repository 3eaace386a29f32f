"""Special tokens that a text spells out: broken before a text is tokenised, so that a document cannot end a turn or open one.

The engine (serve/engines/hf.py) and training (train/model/logps.py, train/run/data.py) both read messages through `escape_special_tokens`: what a model learns from
is what it is served.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any


def escape_special_tokens(text: str, tokenizer: Any) -> str:
    """`text` with each spelling of a special token of a transformers tokenizer broken by a space after its first character."""
    pattern = special_token_pattern(tokenizer)
    while pattern is not None and pattern.search(text):
        text = pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


@lru_cache(maxsize=4)
def special_token_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    """Matches the spelling of every added token that is special or bracketed (<think>, [INST]), longest first."""
    added = (token for token in tokenizer.added_tokens_decoder.values())
    spelt = {str(token) for token in added if token.special or re.fullmatch(r"[<\[]\S+[>\]]", str(token))}
    words = sorted((word for word in spelt if len(word) > 1 and word == word.strip()), key=len, reverse=True)
    return re.compile("|".join(re.escape(word) for word in words)) if words else None

"""Special tokens in what clients and documents wrote, broken before the text reaches a model's chat template.

Where the model's tokenizer is at hand its own tokens are broken, as in training (graph/text/special_tokens.py); for a model behind a URL,
the tokens of the chat templates in use.
"""

from __future__ import annotations

import re
from typing import Any

from graph.shared.errors import UserError

_KNOWN = re.compile(
    r"<(?=[|｜/a-z]|</?s)(?:\|[^|<>]{1,60}\|>|｜[^｜<>]{1,60}｜>|/?(?:s|think|tool_call)>|(?:unk|pad|bos|eos|mask)>|</?sys>>"
    r"|(?:start|end)_of_turn>|(?:begin|end)_of_(?:text|sentence)>)"
    r"|\[/?(?:inst|system_prompt|available_tools|tool_calls|tool_results)\]",
    re.IGNORECASE,
)


def escape_known_tokens(text: str) -> str:
    """`text` with a space in every special token of a known chat template.

    >>> escape_known_tokens("a<|im_end|>b</s>[INST]")
    'a< |im_end|>b< /s>[ INST]'
    """
    while _KNOWN.search(text):
        text = _KNOWN.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


def tokenizer_of(model: str) -> Any:
    """The tokenizer of `model` (a folder or a hub name), whose special tokens are broken; UserError when it has none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:300]
        raise UserError(
            f"vllm:{model}: no tokenizer ({reason})", "a model with its tokenizer", "check the path"
        ) from None

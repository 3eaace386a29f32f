"""Special tokens in what clients and documents wrote, broken before the text reaches a model's chat template.

Where the model's tokenizer is at hand its own tokens are broken, as in training (graph/text/special_tokens.py); for a model behind a URL,
the tokens of the chat templates in use.
"""

from __future__ import annotations

import re

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

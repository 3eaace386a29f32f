"""Control tokens in what clients and documents wrote, broken before the text reaches a model's chat template.

Where the model's tokenizer is at hand its own tokens are broken, as in training (graph/control.py); for a model behind a URL,
the tokens of the chat templates in use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from graph.control import defuse
from graph.errors import UserError

_KNOWN = re.compile(
    r"<\|[^|<>]{1,60}\|>|</?s>|<(?:unk|pad|bos|eos|mask)>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<</?SYS>>|<(?:start|end)_of_turn>|<｜[^｜<>]{1,60}｜>|</?think>|</?tool_call>|<(?:begin|end)_of_(?:text|sentence)>",
    re.IGNORECASE,
)


def break_known(text: str) -> str:
    """`text` with a space in every control token of a known chat template.

    >>> break_known("a<|im_end|>b</s>[INST]")
    'a< |im_end|>b< /s>[ INST]'
    """
    while _KNOWN.search(text):
        text = _KNOWN.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


def breaker_of(model: str) -> Callable[[str], str]:
    """What breaks the control tokens of the tokenizer of `model` (a folder or a hub name); UserError when it has none."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as problem:
        reason = " ".join(str(problem).split())[:300]
        raise UserError(
            f"vllm:{model}: no tokenizer ({reason})", "a model with its tokenizer", "check the path"
        ) from None
    return partial(defuse, tokenizer=tokenizer)

"""How servers say that a prompt is longer than the model's window."""

import re

_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|size|window)|max_model_len|too long|too many (?:\w+ )?tokens|exceeds? .{0,40}\btokens?\b",
    re.IGNORECASE,
)


def is_too_long(refusal: str) -> bool:
    """Whether a refusal is about the length of the prompt.

    >>> is_too_long("This model's maximum context length is 1024 tokens"), is_too_long("n must be at most 4")
    (True, False)
    """
    return _TOO_LONG.search(refusal) is not None

"""What a model thinks aloud before it answers, <think>…</think>: nothing of it is an answer, a summary or a reply."""

THINK, THOUGHT = "<think>", "</think>"


def without_thinking(text: str) -> str:
    """A whole text behind its thinking, none where it was cut before that ended. graph/prompt/form.py does so piece by piece.

    >>> without_thinking("<think>Is it [7]?</think>\\n\\nYes [1]."), without_thinking("<think>Is it"), without_thinking("Yes.")
    ('\\n\\nYes [1].', '', 'Yes.')
    """
    while (begun := text.lstrip()).startswith((THINK, THOUGHT)):
        text = begun.partition(THOUGHT)[2]
    return text

"""What a server is told to keep to, and what is read all the same."""

from typing import Any

import pytest

from data_synth.preferences.check import MAX_VERDICT_TOKENS, Verdict
from graph.retrieve.modes.global_mode import MAX_REPLY_TOKENS, Contribution
from graph.retrieve.plan.run import MAX_ANSWER_TOKENS, READ, Resolution
from graph.text.structured import ReplyModel, parse_reply, strict_schema


def longest(node: dict[str, Any]) -> int:
    """Characters of the longest JSON text that a schema allows, without white space; a schema without bounds fails."""
    match node["type"]:
        case "object":
            return 2 + sum(len(name) + 4 + longest(inner) for name, inner in node["properties"].items())
        case "array":
            return 2 + node["maxItems"] * (1 + longest(node["items"]))
        case "string":
            return 2 + node["maxLength"] if "maxLength" in node else max(len(each) + 2 for each in node["enum"])
        case "boolean":
            return 5
    return max(len(str(node["minimum"])), len(str(node["maximum"])))


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [(Contribution, MAX_REPLY_TOKENS), (Resolution, MAX_ANSWER_TOKENS), (Verdict, MAX_VERDICT_TOKENS)],
)
def test_a_reply_within_its_bounds_ends_within_its_tokens(kind: type[ReplyModel], tokens: int) -> None:
    """A small model writes until it is stopped; a token is a character at least, and two control tokens end a reply."""
    assert longest(strict_schema(kind)) <= tokens - 2


def test_a_reply_beyond_its_bounds_is_still_read() -> None:
    dropped: list[object] = []
    passages = [1, READ + 7, "two", *range(1, READ + 1)]
    reply = parse_reply(Resolution, f'{{"answer": "{"x" * 999}", "passages": {passages}}}'.replace("'", '"'), dropped)
    assert reply == Resolution(answer="x" * 999, passages=[1, READ + 7, *range(1, READ + 1)]) and dropped == ["two"]

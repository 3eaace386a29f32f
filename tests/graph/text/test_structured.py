"""The schemas that servers receive, and replies that are read although they violate them."""

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from data_synth.preferences.preferences import MAX_VERDICT_TOKENS, Verdict
from eval.judge import VERDICTS_SCHEMA
from graph.retrieve.learned.selectors import Selection
from graph.retrieve.modes.global_mode import MAX_REPLY_TOKENS, Contribution
from graph.retrieve.modes.plan import EXCERPTS_READ, MAX_ANSWER_TOKENS, Resolution
from graph.retrieve.parts.query import Caller
from graph.text.replies import ReplyModel, copies_example, numbers_up_to, parse_reply, strict_schema
from tests.fakes import ScriptedModel
from tests.places import ROOT

MODULES_WITH_REPLIES = tuple(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for folder in ("graph", "data_synth", "serve", "eval")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "(ReplyModel)" in file.read_text(encoding="utf-8")
)
"""The modules that request structured replies from a model."""


def longest_reply_chars(node: dict[str, Any]) -> int:
    """The number of characters of the longest JSON text that a schema allows, without white space; a KeyError if the schema has no bounds."""
    match node["type"]:
        case "object":
            return 2 + sum(len(name) + 4 + longest_reply_chars(inner) for name, inner in node["properties"].items())
        case "array":
            return 2 + node["maxItems"] * (1 + longest_reply_chars(node["items"]))
        case "string":
            return 2 + node["maxLength"] if "maxLength" in node else max(len(each) + 2 for each in node["enum"])
        case "boolean":
            return 5
    return max(len(str(node["minimum"])), len(str(node["maximum"])))


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [(Contribution, MAX_REPLY_TOKENS), (Resolution, MAX_ANSWER_TOKENS), (Verdict, MAX_VERDICT_TOKENS)],
)
def test_the_longest_allowed_reply_fits_the_token_limit(kind: type[ReplyModel], tokens: int) -> None:
    """A small model may write until its reply is cut off. A token contains at least one character, and two control tokens end a reply."""
    assert longest_reply_chars(strict_schema(kind)) <= tokens - 2


def unbounded_places(node: Any, place: str = "") -> Iterator[str]:
    """The paths, within a schema, of lists, numbers and texts without a limit, which a model could continue without end."""
    if isinstance(node, list):
        for number, inner in enumerate(node):
            yield from unbounded_places(inner, f"{place}.{number}")
    elif isinstance(node, dict):
        if node.get("type") == "array" and "maxItems" not in node:
            yield place
        if node.get("type") in ("integer", "number") and "enum" not in node and not {"minimum", "maximum"} <= set(node):
            yield place
        if node.get("type") == "string" and not {"maxLength", "enum", "const"} & set(node):
            yield place
        for name, inner in node.items():
            yield from unbounded_places(inner, f"{place}.{name}")


def subclasses_of(base: type[ReplyModel]) -> Iterator[type[ReplyModel]]:
    for kind in base.__subclasses__():
        yield kind
        yield from subclasses_of(kind)


def test_every_list_number_and_text_of_every_reply_has_a_limit() -> None:
    """Every subclass of ReplyModel in our modules, and the schema of the judge."""
    for module in MODULES_WITH_REPLIES:
        import_module(module)
    kinds = [kind for kind in subclasses_of(ReplyModel) if kind.__module__ in MODULES_WITH_REPLIES]
    assert {kind.__module__ for kind in kinds} == set(MODULES_WITH_REPLIES)
    schemas = {f"{kind.__module__}.{kind.__name__}": strict_schema(kind) for kind in kinds} | {"judge": VERDICTS_SCHEMA}
    assert [place for name, schema in schemas.items() for place in unbounded_places(schema, name)] == []


def test_json_schema_keywords_passed_for_a_field_restrict_it() -> None:
    schema = strict_schema(Selection, selected=numbers_up_to(7, 2, 9))
    assert schema["properties"]["selected"]["items"] == {"type": "integer", "minimum": 1, "maximum": 7}
    assert schema["properties"]["selected"]["maxItems"] == 7 and schema["properties"]["selected"]["minItems"] == 2
    assert strict_schema(Selection)["properties"]["selected"]["maxItems"] == 50, (
        "the class's schema should be unchanged"
    )


def test_every_example_is_recognised_in_a_reply_that_copies_it() -> None:
    """Every example reply that contains text names the invented place (EXAMPLE_NAME), so that a copy of it counts as unusable."""
    prompts = {file.name: file.read_text("utf-8") for file in ROOT.glob("*/prompts/*.txt")}
    replies = [line for text in prompts.values() for line in text.splitlines() if line.startswith("Reply: {")]
    assert len(replies) >= 9
    for line in replies:
        example = json.loads(line.removeprefix("Reply: "))
        assert copies_example(line, "Tarn is a village.") or set(example) == {"selected"}, line
        assert not copies_example(line, "Zumberly is a village.")


def test_a_reply_that_copies_the_example_is_requested_once_more() -> None:
    replies = iter(['{"answer": "Zumberly", "passages": [1]}', '{"answer": "Tarn", "passages": [1]}'])
    model = ScriptedModel(lambda request: next(replies))
    assert Caller(model).ask(Resolution, "s", ["Where?"], 9) == [Resolution(answer="Tarn", passages=[1])]
    assert "it was about the example" in model.requests[1].messages[-1].content
    assert "Zumberly" not in str(model.requests[1].messages)


def test_a_reply_that_exceeds_the_bounds_of_its_schema_is_still_read() -> None:
    dropped: list[object] = []
    passages = [1, EXCERPTS_READ + 7, "two", *range(1, EXCERPTS_READ + 1)]
    reply = parse_reply(Resolution, f'{{"answer": "{"x" * 999}", "passages": {passages}}}'.replace("'", '"'), dropped)
    assert reply == Resolution(
        answer="x" * 999, passages=[1, EXCERPTS_READ + 7, *range(1, EXCERPTS_READ + 1)]
    ) and dropped == ["two"]

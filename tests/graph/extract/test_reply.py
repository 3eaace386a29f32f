"""A model's reply, however bad, yields supported occurrences or one typed error."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.extract.grounding import best_span, entities_within, share_supported
from graph.extract.llm import MAX_PROPOSITIONS, Domain, Prompt, Reply, read_reply, repeats_proposition
from graph.text.replies import BadReply, as_one_line, strict_schema
from graph.types import Passage

TEXT = (
    "The Lantern left at 10:30 for https://example.org/a_b?c=1. It uses snake_case and (nested (round) brackets). "
    "The file ends with <|endoftext|>. It rains. Ada Marlow built her in 1911, and she cost 312 crowns."
)
PASSAGE = Passage("p", "lantern", "Lantern (ferry)", 0, 100, 100 + len(TEXT), TEXT)


def reply(*propositions: object) -> str:
    return json.dumps({"propositions": propositions})


def proposition(text: str, entities: list[object] | None = None, topic: str = "") -> dict[str, object]:
    return {"text": text, "entities": entities or [], "topic": topic}


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("The Lantern left at 10:30.", "10:30"),
        ("The Lantern left for https://example.org/a_b?c=1.", "https://example.org/a_b?c=1"),
        ("The Lantern uses snake_case.", "snake_case"),
        ("The Lantern uses (nested (round) brackets).", "(nested (round) brackets)"),
        ("The file ends with < |endoftext| >.", "<|endoftext|>"),
        ("It rains.", "It rains."),
    ],
)
def test_text_that_a_line_parser_would_lose_is_kept(text: str, fragment: str) -> None:
    (occurrence,), dropped = read_reply(reply(proposition(text)), PASSAGE)
    assert fragment in occurrence.text and dropped == 0 and occurrence.entities == ()
    assert fragment.rstrip(".") in TEXT[occurrence.start - 100 : occurrence.end - 100]


def test_an_occurrence_is_placed_at_the_sentence_it_shares_most_words_with() -> None:
    (occurrence,), _ = read_reply(reply(proposition("The Lantern (ferry) was built by Ada Marlow in 1911.")), PASSAGE)
    assert TEXT[occurrence.start - 100 : occurrence.end - 100].startswith("Ada Marlow built her")
    two = "Tarn is small. Ada Marlow was born there. She died of fever in Quill in 1931. It rains."
    start, end = best_span("Ada Marlow died of fever in Quill in 1931.", two)
    assert two[start:end] == "Ada Marlow was born there. She died of fever in Quill in 1931."
    assert best_span("xyz", two) == (0, len(two))


def test_parts_without_support_are_dropped_and_counted() -> None:
    good = proposition(
        "Ada Marlow built the Lantern in 1911.", ["Ada Marlow", "Lantern", "Port Ellery", 7], topic="ships"
    )
    text = reply(good, proposition("Vikings discovered Greenland centuries earlier."), {"text": 5}, "x")
    (occurrence,), dropped = read_reply(text, PASSAGE)
    assert occurrence.entities == ("Ada Marlow", "Lantern") and occurrence.topics == ("ships",)
    # Dropped: the entities Port Ellery and 7, and the last three propositions.
    assert dropped == 5


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "empty"),
        ("I cannot help with that.", "not a JSON object"),
        ("[" * 5000, "not a JSON object"),
        ('{"entities": []}', "propositions"),
        ('{"propositions": "none"}', "propositions"),
        (reply(proposition("Vikings discovered Greenland centuries earlier.")), "supported"),
        (reply({"text": None}), "well formed"),
    ],
)
def test_an_unusable_reply_is_a_typed_error_with_the_reason(text: str, fragment: str) -> None:
    with pytest.raises(BadReply, match=fragment):
        read_reply(text, PASSAGE)


def test_fenced_and_slightly_broken_json_is_repaired() -> None:
    broken = '```json\n{"propositions": [{"text": "It rains.", "entities": [],}]\n```'
    (occurrence,), dropped = read_reply(broken, PASSAGE)
    assert occurrence.text == "It rains." and dropped == 0


def test_null_entities_and_a_topic_that_is_no_text_count_as_left_out() -> None:
    for entities, topic in ((None, None), ([], 3), ([], ["x"])):
        text = reply({"text": "It rains.", "entities": entities, "topic": topic})
        (occurrence,), dropped = read_reply(text, PASSAGE)
        assert (occurrence.text, occurrence.entities, occurrence.topics, dropped) == ("It rains.", (), (), 0)


def test_a_reply_with_composed_accents_is_supported_by_a_passage_with_decomposed_ones() -> None:
    text = "Jose\u0301 Pen\u0303a lo\u0308st i\u0301t. Lan\u00adterns glow."
    passage = Passage("p", "d", "", 0, 0, len(text), text)
    found, dropped = read_reply(reply(proposition("José Peña löst ít.", ["José Peña"])), passage)
    assert [(each.entities, each.end) for each in found] == [(("José Peña",), text.index(" Lan"))] and dropped == 0
    assert share_supported("Lanterns glow", text) == 1.0


def test_an_empty_list_of_propositions_is_a_valid_reply() -> None:
    assert read_reply(reply(), PASSAGE) == ((), 0)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "entities", "propositions", "topic", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=values, cut=st.integers(0, 200))
def test_any_reply_yields_occurrences_or_the_typed_error(value: object, cut: int) -> None:
    for text in (json.dumps(value), json.dumps({"propositions": value}), json.dumps({"propositions": [value]})[:cut]):
        try:
            occurrences, dropped = read_reply(text, PASSAGE)
        except BadReply:
            continue
        assert dropped >= 0
        for occurrence in occurrences:
            assert occurrence.text.encode() and 100 <= occurrence.start < occurrence.end <= 100 + len(TEXT)


def test_surrogates_nul_characters_and_newlines_become_spaces() -> None:
    assert as_one_line("a\ud800b\x00c\nd") == "a b c d"


def test_support_is_counted_in_japanese_and_entities_are_matched_by_whole_words() -> None:
    assert share_supported("東京は日本の首都", "日本の首都は東京です") == 1.0
    assert share_supported("大阪", "日本の首都は東京です") == 0.0
    assert share_supported("...", "x") == 0.0
    assert entities_within("The York of New", ["New York"], ["New York"]) == (("New York",), 0)
    assert entities_within("Newer York", (), ["New York"]) == ((), 0)


def test_the_schema_follows_the_rules_of_strict_servers() -> None:
    def check(node: object) -> None:
        if isinstance(node, dict):
            if node.get("type") == "object":
                assert node["additionalProperties"] is False and set(node["required"]) == set(node["properties"])
            for inner in node.values():
                check(inner)
        elif isinstance(node, list):
            for inner in node:
                check(inner)

    schema = strict_schema(Reply)
    check(schema)
    assert set(schema["properties"]) == {"propositions"}
    assert set(schema["$defs"]["PropositionReply"]["properties"]) == {"text", "entities", "topic"}


def test_a_proposition_that_copies_the_passage_is_split_into_sentences() -> None:
    copied = "# Ferry\n\n" + TEXT + " It rai"
    occurrences, dropped = read_reply(reply(proposition(copied.ljust(500, "n"), ["Ada Marlow", "Lantern"])), PASSAGE)
    texts = [each.text for each in occurrences]
    assert texts[1] == "The Lantern left at 10:30 for https://example.org/a_b?c=1." and dropped == 0
    assert "It rains." in texts and texts[-1] == "Ada Marlow built her in 1911, and she cost 312 crowns."
    assert [each.entities for each in occurrences if "1911" in each.text] == [("Ada Marlow",)]
    two = proposition("It rains. Ada Marlow built her in 1911.")
    assert [each.text for each in read_reply(reply(two), PASSAGE)[0]] == [two["text"]]


def test_a_cut_proposition_of_few_sentences_loses_the_sentence_that_was_cut() -> None:
    cut = proposition("It rains.\n- Ada Marlow built her in 1911.\n- The file ends".ljust(500, "s"), ["Ada Marlow"])
    (occurrence,), dropped = read_reply(reply(cut), PASSAGE)
    assert (occurrence.text, occurrence.entities) == ("It rains. - Ada Marlow built her in 1911.", ("Ada Marlow",))
    assert dropped == 0
    one_word = proposition("Ada Marlow built her in 1911 ".ljust(500, "1"))
    (occurrence,), dropped = read_reply(reply(proposition("It rains."), one_word), PASSAGE)
    assert occurrence.text == "It rains." and dropped == 1


def test_a_truncated_reply_is_used_only_if_it_repeats_itself_and_only_up_to_the_repetition() -> None:
    looped = reply(*[proposition("It rains."), proposition("Ada Marlow built her in 1911.")] * 3, proposition("It"))
    whole = Reply.model_validate_json(reply(proposition("It rains."), proposition("It snows."), proposition("It")))
    assert repeats_proposition(looped[:-9]) and not repeats_proposition(whole.model_dump_json()[:-9])
    assert not repeats_proposition("It rains. It rains.")
    occurrences, dropped = read_reply(looped[:-9], PASSAGE, cut=True)
    assert [each.text for each in occurrences] == ["It rains.", "Ada Marlow built her in 1911."] and dropped == 0


def test_a_proposition_is_requested_for_each_sentence_of_the_passage() -> None:
    def min_items(text: str) -> int:
        passage = Passage("p", "p", "P", 0, 0, len(text), text)
        schema = Prompt("", 99).request(passage, Domain(), 0).schema
        assert schema is not None
        return int(schema["properties"]["propositions"]["minItems"])

    assert min_items("# Ferries") == 0 and min_items("# Ferries\n\nIt rains. It snows.\n\n| a | b |") == 2
    assert min_items("यह गाँव है। वह शहर है।") == min_items("هل هذه قرية؟ یہ گاؤں ہے۔") == 2
    assert min_items("It rains. " * 99) == MAX_PROPOSITIONS

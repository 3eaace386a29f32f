"""`without_thinking` removes from a complete text exactly the parts that `split_form` marks as thinking."""

import pytest
from hypothesis import example, given

from graph.answer.prompt import split_form
from graph.hierarchy.summaries import write_summaries
from graph.text.replies import END_OF_THINKING, THINK, BadReply, parse_object, without_thinking
from tests.fakes import ScriptedModel
from tests.graph.answer.test_form import TEXTS


@given(TEXTS)
@example(f" {THINK}a{END_OF_THINKING}\n{THINK}b{END_OF_THINKING}c")
@example(f"{END_OF_THINKING}{THINK}a")
@example(f"{END_OF_THINKING} ")
def test_without_thinking_leaves_the_same_text_as_split_form(text: str) -> None:
    """White space may differ, because `without_thinking` does not change a text without markers, even if it consists only of white space."""
    expected = [part.text.strip() for part in split_form(text) if part.kind != "thinking"]
    cut = [part.text.strip() for part in split_form(without_thinking(text))]
    assert [each for each in cut if each] == [each for each in expected if each]


def test_json_inside_the_thinking_is_ignored() -> None:
    thought = '<think>{"answer": "Quill"} or {"answer": "Orrin"}?'
    assert parse_object(f'{thought}</think>\n{{"answer": "Tarn"}}') == {"answer": "Tarn"}
    with pytest.raises(BadReply, match="empty"):
        parse_object(thought)


def test_a_summary_contains_no_thinking() -> None:
    model = ScriptedModel(lambda request: "<think>They ask for a summary.</think>\n\nThe yard burned.")
    assert write_summaries(model, 40, [["The yard burned in 1911.", "Its ropes were lost."]]) == ["The yard burned."]

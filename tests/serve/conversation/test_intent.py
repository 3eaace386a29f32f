"""Whether a turn of a conversation is a remark, a request about the last answer, or a question."""

import pytest

from serve.conversation.turn_rules import intent


@pytest.mark.parametrize(
    "text",
    [
        "Thanks!",
        "thank you very much",
        "OK",
        "Great, thanks.",
        "👍",
        "That's very helpful, thank you",
        "Got it.",
        "Danke!",
        "ありがとう",
        "धन्यवाद!",
        "hi",
        "yes, I see",
    ],
)
def test_a_remark_is_recognised(text: str) -> None:
    assert intent(text) == "remark"


@pytest.mark.parametrize(
    "text",
    [
        "Shorter, please", "shorter", "Translate that into French", "And in German?", "as a list", "List it", "in simple words", "Tell me more",
        "Explain it in simple words", "Can you make that shorter?", "Say that again", "Summarise that in one sentence", "Are you sure?", "What do you mean?",
        "TL;DR", "tldr, please", "In 2 sentences, please", "Shorten it to 50 words", "Summarise in 3 sentences", "List 3 points", "Explain like I'm 5",
        "Can you summarize that in 100 words?", "Explain in 5 bullet points.", "Explain it like I’m five", "French, please", "Now in simple French",
        "Translate it into the Dutch language",
    ],
)  # fmt: skip
def test_a_request_about_the_last_answer_is_recognised(text: str) -> None:
    assert intent(text) == "request"


@pytest.mark.parametrize(
    "text",
    [
        "List the ferries", "And in 2023?", "When was that?", "Which language?", "Translate the Lament", "What is the second sentence of the law?", "?",
        "Is that right?", "Who is right?", "No, the other one", "Yes, the ferry", "Thanks. And who built it?", "Was it a long list?", "How short is it?",
        "What about the French?", "Is there a table?", "", "thanks " * 99, "Good grief, what happened?", "Is it good?", "Right?", "Good?",
        "And table 3?", "Please explain form 8 in detail", "Summarize point 3", "And in 1911?", "And again in 1911?", "List 3 ferries", "5?", "And the Dutch?", "Or the Spanish?", "the Welsh?", "And the Italian one?", "And to the French?",
    ],
)  # fmt: skip
def test_anything_else_is_a_question(text: str) -> None:
    assert intent(text) == "question"

"""The search query derived from a conversation, with and without a model."""

import json
import time

import pytest

from graph.types import CompletionRequest, Message
from serve.conversation.prompt import MAX_CHARACTERS, Exchange, exchanges_of
from serve.conversation.rewrite import MAX_CARRIED_CHARS, Question, read_turn, with_context
from tests.fakes import ScriptedModel

BUILT = Exchange("Who built the Lantern?", "The Marlow Yard.")
FOUNDED = Exchange("Who founded it?", "###Reason: So says the page of the yard. ###Answer: Ada Marlow")


def read(history: list[Exchange], turn: str, reply: str = "no json", window: int | None = None) -> tuple[Question, int]:
    model = ScriptedModel(lambda request: reply, window=window)
    return read_turn(history, turn, model), len(model.requests)


def test_a_standalone_question_is_left_unchanged_without_a_call() -> None:
    assert read([BUILT, FOUNDED], "How many people live in Tarn?") == (Question("How many people live in Tarn?"), 0)
    assert read([], "When was that?") == (Question("When was that?"), 0)


def test_a_dependent_question_is_preceded_by_the_previous_question_and_its_answer() -> None:
    assert with_context([BUILT], "When was that?") == "Who built the Lantern? The Marlow Yard. When was that?"
    assert with_context([FOUNDED], "And when?") == "Who founded it? Ada Marlow And when?"


def test_names_that_the_earlier_question_relied_on_are_added_without_words_of_the_answer_format() -> None:
    other = Exchange("How long does Kelp bread keep?", "###Reason: Nine, says Page. ###Answer: nine days")
    assert with_context([other, BUILT, FOUNDED], "When?") == "Who founded it? Ada Marlow When? (Lantern, Marlow Yard)"


def test_remarks_and_requests_in_between_are_skipped() -> None:
    conversation = [BUILT, Exchange("Shorter, please", "Marlow."), Exchange("Thanks!", "You are welcome.")]
    assert with_context(conversation, "When was that?") == "Who built the Lantern? The Marlow Yard. When was that?"
    assert read(conversation, "In French, please") == (Question(BUILT.question, "request", "earlier"), 0)
    assert read([BUILT, FOUNDED], "Shorter") == (
        Question("Who built the Lantern? The Marlow Yard. Who founded it?", "request", "earlier"),
        0,
    )
    assert read(conversation, "Great!") == (Question("", "remark"), 0)
    assert read([], "Great!") == (Question("Great!"), 0)


def test_a_refusal_is_not_carried_over_and_a_long_answer_only_in_part() -> None:
    assert (
        with_context([Exchange(BUILT.question, "Not in the documents.")], "Why not?")
        == "Who built the Lantern? Why not?"
    )
    long = Exchange("Who built it? " * 90, "word " * 900)
    assert len(with_context([long], "Why?")) <= 2 * MAX_CARRIED_CHARS + len("  Why?")


def test_the_model_is_called_if_the_rule_finds_a_question_dependent() -> None:
    rewritten = json.dumps({"question": "When did the Marlow Yard build the Lantern?"})
    assert read([BUILT], "When was that?", rewritten) == (
        Question("When did the Marlow Yard build the Lantern?", by="model"),
        1,
    )
    repeated = json.dumps({"question": "When was that?"})
    assert read([BUILT], "When was that?", repeated)[0] == Question(with_context([BUILT], "When was that?"), by="turns")


@pytest.mark.parametrize("reply", ["no json", json.dumps({"question": ""}), json.dumps({"question": "x" * 999})])
def test_the_rule_is_used_if_the_rewrite_of_the_model_is_unusable(reply: str) -> None:
    assert read([BUILT], "When was that?", reply)[0] == Question(with_context([BUILT], "When was that?"), by="turns")


def test_in_other_languages_the_model_decides_and_if_its_reply_is_unusable_the_length_of_the_question() -> None:
    long = "Und in welchem Jahr wurde sie dann von der Gesellschaft verkauft?"
    assert read([BUILT], long, json.dumps({"question": long}))[0] == Question(long, by="model")
    assert read([BUILT], long)[0] == Question(long)
    assert read([BUILT], "Wann war das?")[0] == Question(
        "Who built the Lantern? The Marlow Yard. Wann war das?", by="turns"
    )
    assert (
        read([Exchange("ランタン号は誰が建造しましたか", "マーロウ造船所")], "いつですか")[0].text
        == "ランタン号は誰が建造しましたか マーロウ造船所 いつですか"
    )


def test_the_model_reads_as_much_of_a_long_conversation_as_its_window_allows() -> None:
    conversation = [Exchange("Who built the Lantern? " * 20, "The Yard. " * 20)] * 3
    requests: list[CompletionRequest] = []

    def reply(request: CompletionRequest) -> str:
        requests.append(request)
        return json.dumps({"question": "When was the Lantern built?"})

    for window, exchanges in ((None, 3), (500, 2), (400, 1)):
        assert read_turn(conversation, "When was that?", ScriptedModel(reply, window=window)).by == "model"
        assert requests[-1].messages[1].content.count("assistant: ") == exchanges
    assert (
        read_turn(conversation, "When was that?", ScriptedModel(reply, window=350)).by == "turns" and len(requests) == 3
    )


def test_turns_are_paired_without_the_numbers_of_old_citations() -> None:
    turns = [Message("assistant", "Hello!"), Message("user", "Who?"), Message("user", "Who built it?"), Message("assistant", "The yard [2]."), Message("assistant", "In 1911 [3, 4]."), Message("user", "When?")]  # fmt: skip
    assert exchanges_of(turns) == (Exchange("Who?\nWho built it?", "The yard.\nIn 1911."),)


def test_only_the_latest_turns_of_a_long_conversation_are_read() -> None:
    def conversation(*lengths: int) -> list[Message]:
        return [turn for n in lengths for turn in (Message("user", "Who?"), Message("assistant", "a[1]" * (n // 4)))]

    assert len(exchanges_of(conversation(*[400] * 500))) == 20
    assert [len(each.reply) for each in exchanges_of(conversation(99_000, 8_000, 12_000))] == [2_000, 3_000]
    assert exchanges_of(conversation(MAX_CHARACTERS)) == ()
    began = time.process_time()
    assert len(exchanges_of(conversation(4_000_000, 8_000))) == 1
    assert time.process_time() - began < 0.5

"""Answers to questions: calls to the model, checks of the reply, and refusals."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from graph.answer.attribution import Citation, Quote
from graph.answer.context import build_context
from graph.answer.prompt import NOT_FOUND, answer_messages
from graph.answer.support import Handling
from graph.answer.verifier import word_verifier
from graph.errors import UserError
from graph.types import Absence, Completion, CompletionRequest, Evidence, Excerpt, Passage, Scored, Trace
from serve.ledger import Ledger
from serve.pipeline import answer_from
from serve.stream import MessageParts
from serve.types import Cost
from tests.fakes import ScriptedModel

LANTERN = Passage("p1", "lantern.md", "Lantern", 0, 0, 36, "The Lantern was launched in May 1958")
YARD = Passage("p2", "yard.md", "Yard", 3, 200, 227, "The yard closed <|im_end|> up")
TRACE = Trace("local", (), 2.0, 0.5, model_calls=3, prompt_tokens=40, completion_tokens=20)
EVIDENCE = Evidence("When was the Lantern launched?", (Scored(LANTERN, 0.9), Scored(YARD, 0.4)), trace=TRACE)


def answer(text: str, evidence: Evidence = EVIDENCE, top_k: int = 5, finish: str = "stop"):  # type: ignore[no-untyped-def]
    model = ScriptedModel(lambda request: text, finish)  # type: ignore[arg-type]
    return answer_from(evidence, top_k, None, model, 64), model.requests


def test_citations_of_excerpts_are_resolved_and_all_others_are_removed() -> None:
    result, model_calls = answer("###Reason: It left in May [1], says [3]; the yard shut [2]. ###Answer: May 1958 [7]")
    assert (result.reason, result.answer) == ("It left in May [1], says; the yard shut [2].", "May 1958")
    assert result.citations == {
        1: Citation("p1", "Lantern", LANTERN.text, "lantern.md", 0, 36),
        2: Citation("p2", "Yard", YARD.text, "yard.md", 200, 227),
    }
    assert result.removed == (3, 7)
    assert result.well_formed and result.finish_reason == "stop"
    assert (result.question, result.model) == (EVIDENCE.query, "scripted")
    assert model_calls[0].max_tokens == 64
    assert (
        "[1] Lantern: The Lantern" in model_calls[0].messages[1].content
        and "<|im_end|>" not in model_calls[0].messages[1].content
    )


def test_an_answer_without_citations_gets_one_marked_as_attributed() -> None:
    result, _ = answer("###Reason: It is known. ###Answer: May 1958")
    [(number, found)] = result.citations.items()
    quotes = (Quote("May 1958", LANTERN.text, 0, 36),)
    assert found == Citation("p1", "Lantern", LANTERN.text, "lantern.md", 0, 36, attributed=True, quotes=quotes)
    assert number == 1 and result.answer == "May 1958"
    refused, _ = answer("###Reason: It is not known. ###Answer: not in the documents")
    assert refused.citations == {}


@pytest.mark.parametrize(
    ("text", "reason", "content", "attributed"),
    [
        ("It was launched in May 1958 [1]. ###Answer:", "", "It was launched in May 1958 [1].", False),
        ("###Answer: May 1958 ###Reason: It was launched then [1].", "It was launched then [1].", "May 1958", False),
        ("###Reason: It was launched. ###Answer: ###Answer: May 1958 [1]", "It was launched.", "May 1958 [1]", False),
        ("###Answer: The Lantern\n- Lantern", "", "The Lantern\n- Lantern", True),
        ("It was launched. ###Answer: May 1958 [1]", "", "It was launched.\n\nMay 1958 [1]", False),
    ],
)
def test_a_streamed_reply_is_read_like_a_complete_one(text: str, reason: str, content: str, attributed: bool) -> None:
    result, _ = answer(text)
    parts = MessageParts(build_context(EVIDENCE, 5), form=True, question=EVIDENCE.query)
    streamed = [parts.feed({"content": character}) for character in text] + [parts.finish()]
    shown = ["".join(getattr(delta, name) for delta in streamed) for name in ("reasoning", "content")]
    assert [result.reason, result.answer] == shown == [reason, content]
    assert [each.attributed for each in result.citations.values()] == [attributed]
    assert [each["number"] for each in parts.fields("")["citations"]] == list(result.citations) == [1]


@pytest.mark.parametrize("handling", ["mark", "drop"])
def test_only_citations_outside_of_thinking_count(handling: Handling) -> None:
    text = "<think>The yard closed [2].</think>###Reason: The Lantern was launched in May 1958 [1]. ###Answer: May 1958"
    parts = MessageParts(build_context(EVIDENCE, 5), True, handling, word_verifier(""), question=EVIDENCE.query)
    streamed = [parts.feed({"content": character}) for character in text] + [parts.finish()]
    reasoning = "The yard closed [2].\n\nThe Lantern was launched in May 1958 [1]."
    assert "".join(delta.reasoning for delta in streamed) == reasoning
    assert [each["number"] for each in parts.fields("")["citations"]] == list(answer(text)[0].citations) == [1]


def test_an_attributed_citation_is_placed_at_the_end_of_its_own_sentence() -> None:
    texts = ("The ferry calls at Tarn Harbour.", "The ferry stops at Tarn.")
    excerpts = [Excerpt(f"p{at}", "", text, "ferry.md") for at, text in enumerate(texts)]
    parts = MessageParts(excerpts, form=True, question="Where does the ferry stop?")
    content = (parts.feed({"content": "###Answer: - Tarn Harbour\n- Tarn"}).content + parts.finish().content).strip()
    found = parts.unmarked_citations(parts.checks())
    assert [content[: each.mark.end] for each in found] == ["- Tarn Harbour", "- Tarn Harbour\n- Tarn"]
    assert [each.statement for each in found] == ["Tarn Harbour", "Tarn"]


def test_a_short_answer_is_checked_together_with_its_question_unless_it_says_too_little() -> None:
    def marks(text: str) -> tuple[list[str], list[tuple[str, str]]]:
        model = ScriptedModel(lambda request: f"###Reason: The Lantern was launched. ###Answer: {text}")
        result = answer_from(EVIDENCE, 5, None, model, 64, word_verifier(""))
        return [each.text for each in result.unsupported], [(each.text, each.because) for each in result.not_checked]

    assert marks("May 1958") == ([], [])
    assert marks("Yes") == ([], [("Yes", "says too little")])
    assert marks("Это было в мае.") == ([], [("Это было в мае.", "is in another language")])
    assert marks(NOT_FOUND) == ([], [])


def test_sentences_that_the_passages_do_not_support_are_marked_and_can_be_dropped() -> None:
    text = (
        "###Reason: The Lantern was launched in May 1958 [1]. The yard opened in 1962 [2]. ###Answer: In May 1958 [1]."
    )
    model = ScriptedModel(lambda request: text)
    result = answer_from(EVIDENCE, 5, None, model, 64, word_verifier(""))
    (wrong,) = result.unsupported
    assert (wrong.part, wrong.text) == ("reason", "The yard opened in 1962 [2].")
    assert (wrong.cited, wrong.missing) == ((2,), ("1962",)) and result.reason[wrong.start : wrong.end] == wrong.text
    shortened = answer_from(EVIDENCE, 5, None, model, 64, word_verifier(""), drop_unsupported=True)
    assert (shortened.reason, shortened.answer) == ("The Lantern was launched in May 1958 [1].", "In May 1958 [1].")
    assert shortened.unsupported == (replace(wrong, start=41, end=41),) and set(shortened.citations) == {1}
    assert answer_from(EVIDENCE, 5, None, model, 64).unsupported == ()
    wrong_model = ScriptedModel(lambda request: "###Reason: So. ###Answer: The yard opened in 1962 [2].")
    refused = answer_from(EVIDENCE, 5, None, wrong_model, 64, word_verifier(""), drop_unsupported=True)
    assert (refused.answer, len(refused.unsupported), set(refused.citations)) == (NOT_FOUND, 1, set())
    headed = ScriptedModel(lambda request: "###Reason: So. ###Answer: # Yard\n\nThe yard opened in 1962 [2].")
    headed_refusal = answer_from(EVIDENCE, 5, None, headed, 64, word_verifier(""), drop_unsupported=True)
    assert (headed_refusal.answer, headed_refusal.citations) == (f"# Yard\n\n{NOT_FOUND}", {})


@pytest.mark.parametrize("abstained", [True, False])
def test_a_model_is_called_only_if_the_retrieval_did_not_abstain(abstained: bool) -> None:
    result, model_calls = answer(
        "###Reason: so [1]. ###Answer: May 1958", replace(EVIDENCE, absence=Absence(0.9, abstained))
    )
    assert (result.answer == NOT_FOUND, len(model_calls)) == (abstained, int(not abstained))
    assert result.evidence.passages == EVIDENCE.passages and result.writing.calls == len(model_calls)


def test_only_the_best_excerpts_are_shown_to_the_model() -> None:
    result, model_calls = answer("###Reason: x [2] ###Answer: y", top_k=1)
    assert "[2]" not in model_calls[0].messages[1].content
    assert result.removed == (2,) and result.citations == {}


def test_without_evidence_no_model_is_called() -> None:
    result, model_calls = answer("never", Evidence("Who?"))
    assert model_calls == []
    assert (result.answer, result.citations) == (NOT_FOUND, {})
    assert (result.writing.calls, result.writing.prompt_tokens, result.writing.completion_tokens) == (0, 0, 0)


@pytest.mark.parametrize("text", ["just May 1958", "", "###Answer: May 1958", "<think>May?</think>just May 1958"])
def test_a_reply_without_the_answer_format_is_shown_and_marked(text: str) -> None:
    result, _ = answer(text, finish="length")
    assert not result.well_formed and result.reason == "" and result.finish_reason == "length"
    assert result.answer == text.rpartition("</think>")[2].removeprefix("###Answer: ")


def test_a_cut_off_answer_shows_its_reason_with_checked_citations() -> None:
    result, _ = answer("###Reason: It left in May [1], says [3]; the", finish="length")
    assert (result.reason, result.answer, result.well_formed) == ("It left in May [1], says; the", "", False)
    assert set(result.citations) == {1} and result.removed == (3,)


def test_the_prompt_is_the_training_prompt() -> None:
    _, model_calls = answer("x")
    assert model_calls == [CompletionRequest(answer_messages(EVIDENCE.query, build_context(EVIDENCE, 5)), 64)]


def test_a_model_is_prompted_for_the_answer_form_that_it_was_trained_on() -> None:
    model = ScriptedModel(lambda request: "May 1958 [1]", form="cited")
    result = answer_from(EVIDENCE, 5, None, model, 64)
    assert model.requests[0].messages == answer_messages(EVIDENCE.query, build_context(EVIDENCE, 5), "cited")
    assert (result.answer, result.reason, result.well_formed, set(result.citations)) == ("May 1958 [1]", "", True, {1})
    assert not answer("May 1958 [1]")[0].well_formed, (
        "a reply without a reason should not be well-formed for a model trained to reason first"
    )


def test_costs_of_retrieval_and_of_the_answer_are_counted_separately() -> None:
    result, _ = answer("###Reason: r ###Answer: May 1958")
    assert result.retrieval == Cost(3, 40, 20, 2.5)
    assert (result.writing.calls, result.writing.prompt_tokens, result.writing.completion_tokens) == (1, 10, 5)
    assert 0 < result.writing.seconds < 2


def test_a_replayed_answer_has_the_cost_of_the_original_call(tmp_path: Path) -> None:
    def reply(request: CompletionRequest) -> str:
        time.sleep(0.3)
        return "###Reason: r ###Answer: May 1958"

    model = Ledger(ScriptedModel(reply), tmp_path / "ledger.sqlite")
    first, again = (answer_from(EVIDENCE, 5, None, model, 64).writing for _ in range(2))
    assert (first.replayed, again.replayed) == (0, 1) and again.completion_tokens == 5
    assert again.seconds >= 0.3 and first.seconds >= 0.3


def test_the_context_stays_within_its_token_limit() -> None:
    # ScriptedModel counts words: "[1] Lantern: The Lantern was …" has 9, and "[2] Yard: The … < |im_end| > up" has 9.
    model = ScriptedModel(lambda request: "x")
    answer_from(EVIDENCE, 5, 17, model, 64)
    answer_from(EVIDENCE, 5, 18, model, 64)
    first, second = (request.messages[1].content for request in model.requests)
    assert "[1] Lantern" in first and "[2]" not in first and "[2] Yard" in second
    with pytest.raises(UserError, match="max_context_tokens = 3: none of the 2 excerpts fits"):
        answer_from(EVIDENCE, 5, 3, model, 64)


def test_only_the_best_excerpts_are_sent_if_the_window_is_too_small_for_all() -> None:
    model = ScriptedModel(lambda request: "###Reason: r [1] [2] ###Answer: a", window=90)
    result = answer_from(EVIDENCE, 5, None, model, 64)
    assert "[1] Lantern" in model.requests[0].messages[1].content and "[2]" not in model.requests[0].messages[1].content
    assert (result.left_out, result.removed, model.requests[0].max_tokens) == (
        1,
        (2,),
        90 - model.prompt_tokens(model.requests[0].messages),
    )
    with pytest.raises(UserError, match="of the model's window of 40"):
        answer_from(EVIDENCE, 5, None, ScriptedModel(lambda request: "x", window=40), 64)


def test_a_prompt_refused_as_too_long_is_sent_again_with_fewer_excerpts() -> None:
    class RefusesLongPrompts(ScriptedModel):
        def complete(self, requests):  # type: ignore[no-untyped-def]
            result = super().complete(requests)
            long = "[2]" in requests[0].messages[1].content
            return [Completion("status 400 (maximum context length is 9)", "refused", 0, 0)] if long else result

    model = RefusesLongPrompts(lambda request: "###Reason: r [1] ###Answer: a")
    result = answer_from(EVIDENCE, 5, None, model, 64)
    assert (result.answer, result.left_out, len(model.requests)) == ("a", 1, 2)

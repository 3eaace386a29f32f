import time
from dataclasses import replace
from pathlib import Path

import pytest

from graph.answer.attribution import Citation, Quote
from graph.answer.prompt import NOT_FOUND
from graph.answer.verifier import open_verifier
from graph.errors import UserError
from graph.types import Absence, Completion, CompletionRequest, Evidence, Passage, Scored, Trace
from serve.ledger import Ledger
from serve.pipeline import answer_from
from serve.types import Cost
from tests.fakes import ScriptedModel

LANTERN = Passage("p1", "lantern.md", "Lantern", 0, 0, 36, "The Lantern was launched in May 1958")
YARD = Passage("p2", "yard.md", "Yard", 3, 200, 227, "The yard closed <|im_end|> up")
TRACE = Trace("local", (), 2.0, 0.5, model_calls=3, prompt_tokens=40, completion_tokens=20)
FOUND = Evidence("When was the Lantern launched?", (Scored(LANTERN, 0.9), Scored(YARD, 0.4)), trace=TRACE)


def answer(text: str, evidence: Evidence = FOUND, top_k: int = 5, finish: str = "stop"):  # type: ignore[no-untyped-def]
    model = ScriptedModel(lambda request: text, finish)  # type: ignore[arg-type]
    return answer_from(evidence, top_k, None, model, 64), model.requests


def test_citations_resolve_to_their_excerpts_and_others_are_removed() -> None:
    made, model_calls = answer("###Reason: It left in May [1], says [3]; the yard shut [2]. ###Answer: May 1958 [7]")
    assert (made.reason, made.answer) == ("It left in May [1], says; the yard shut [2].", "May 1958")
    assert made.citations == {
        1: Citation("p1", "Lantern", LANTERN.text, "lantern.md", 0, 36),
        2: Citation("p2", "Yard", YARD.text, "yard.md", 200, 227),
    }
    assert made.removed == (3, 7)
    assert made.well_formed and made.finish_reason == "stop"
    assert (made.question, made.model) == (FOUND.query, "scripted")
    assert model_calls[0].max_tokens == 64
    assert (
        "[1] Lantern: The Lantern" in model_calls[0].messages[1].content
        and "<|im_end|>" not in model_calls[0].messages[1].content
    )


def test_where_the_model_cites_nothing_the_passage_is_found_for_it() -> None:
    made, _ = answer("###Reason: It is known. ###Answer: May 1958")
    [(number, found)] = made.citations.items()
    quotes = (Quote("May 1958", LANTERN.text, 0, 36),)
    assert found == Citation("p1", "Lantern", LANTERN.text, "lantern.md", 0, 36, attributed=True, quotes=quotes)
    assert number == 1 and made.answer == "May 1958"
    refused, _ = answer("###Reason: It is not known. ###Answer: not in the documents")
    assert refused.citations == {}


def test_a_short_answer_is_judged_with_its_question_or_not_at_all() -> None:
    def judged(text: str) -> tuple[list[str], list[tuple[str, str]]]:
        model = ScriptedModel(lambda request: f"###Reason: The Lantern was launched. ###Answer: {text}")
        made = answer_from(FOUND, 5, None, model, 64, open_verifier(""))
        return [each.text for each in made.unsupported], [(each.text, each.because) for each in made.not_checked]

    assert judged("May 1958") == ([], [])
    assert judged("Yes") == ([], [("Yes", "says too little")])
    assert judged("Это было в мае.") == ([], [("Это было в мае.", "is in another language")])
    assert judged(NOT_FOUND) == ([], [])


def test_sentences_that_the_passages_do_not_support_are_marked_and_can_be_dropped() -> None:
    text = (
        "###Reason: The Lantern was launched in May 1958 [1]. The yard opened in 1962 [2]. ###Answer: In May 1958 [1]."
    )
    model = ScriptedModel(lambda request: text)
    made = answer_from(FOUND, 5, None, model, 64, open_verifier(""))
    (wrong,) = made.unsupported
    assert (wrong.part, wrong.text) == ("reason", "The yard opened in 1962 [2].")
    assert (wrong.cited, wrong.missing) == ((2,), ("1962",)) and made.reason[wrong.start : wrong.end] == wrong.text
    less = answer_from(FOUND, 5, None, model, 64, open_verifier(""), drops=True)
    assert (less.reason, less.answer) == ("The Lantern was launched in May 1958 [1].", "In May 1958 [1].")
    assert less.unsupported == (replace(wrong, start=41, end=41),) and set(less.citations) == {1}
    assert answer_from(FOUND, 5, None, model, 64).unsupported == ()


@pytest.mark.parametrize("abstained", [True, False])
def test_an_abstained_question_costs_no_call(abstained: bool) -> None:
    made, model_calls = answer(
        "###Reason: so [1]. ###Answer: May 1958", replace(FOUND, absence=Absence(0.9, abstained))
    )
    assert (made.answer == NOT_FOUND, len(model_calls)) == (abstained, int(not abstained))
    assert made.evidence.passages == FOUND.passages and made.writing.calls == len(model_calls)


def test_only_the_best_excerpts_are_shown_to_the_model() -> None:
    made, model_calls = answer("###Reason: x [2] ###Answer: y", top_k=1)
    assert "[2]" not in model_calls[0].messages[1].content
    assert made.removed == (2,) and made.citations == {}


def test_without_evidence_no_model_is_called() -> None:
    made, model_calls = answer("never", Evidence("Who?"))
    assert model_calls == []
    assert (made.answer, made.citations) == (NOT_FOUND, {})
    assert (made.writing.calls, made.writing.prompt_tokens, made.writing.completion_tokens) == (0, 0, 0)


@pytest.mark.parametrize("text", ["just May 1958", "", "###Answer: May 1958", "<think>May?</think>just May 1958"])
def test_a_reply_without_the_answer_format_is_shown_and_marked(text: str) -> None:
    made, _ = answer(text, finish="length")
    assert not made.well_formed and made.reason == "" and made.finish_reason == "length"
    assert made.answer == text.rpartition("</think>")[2].removeprefix("###Answer: ")


def test_a_cut_off_answer_shows_its_reason_with_checked_citations() -> None:
    made, _ = answer("###Reason: It left in May [1], says [3]; the", finish="length")
    assert (made.reason, made.answer, made.well_formed) == ("It left in May [1], says; the", "", False)
    assert set(made.citations) == {1} and made.removed == (3,)


def test_the_prompt_is_the_one_of_training() -> None:
    from graph.answer.context import build_context
    from graph.answer.prompt import answer_messages

    _, model_calls = answer("x")
    assert model_calls == [CompletionRequest(answer_messages(FOUND.query, build_context(FOUND, 5)), 64)]


def test_a_model_is_prompted_for_the_answer_form_that_it_was_trained_on() -> None:
    from graph.answer.context import build_context
    from graph.answer.prompt import answer_messages

    model = ScriptedModel(lambda request: "May 1958 [1]", form="cited")
    made = answer_from(FOUND, 5, None, model, 64)
    assert model.requests[0].messages == answer_messages(FOUND.query, build_context(FOUND, 5), "cited")
    assert (made.answer, made.reason, made.well_formed, set(made.citations)) == ("May 1958 [1]", "", True, {1})
    assert not answer("May 1958 [1]")[0].well_formed, "a model that reasons first must not answer in this form"


def test_costs_of_retrieval_and_of_the_answer_are_counted_separately() -> None:
    made, _ = answer("###Reason: r ###Answer: May 1958")
    assert made.retrieval == Cost(3, 40, 20, 2.5)
    assert (made.writing.calls, made.writing.prompt_tokens, made.writing.completion_tokens) == (1, 10, 5)
    assert 0 < made.writing.seconds < 2


def test_a_replayed_answer_costs_what_the_original_call_cost(tmp_path: Path) -> None:
    def reply(request: CompletionRequest) -> str:
        time.sleep(0.3)
        return "###Reason: r ###Answer: May 1958"

    model = Ledger(ScriptedModel(reply), tmp_path / "ledger.sqlite")
    first, again = (answer_from(FOUND, 5, None, model, 64).writing for _ in range(2))
    assert (first.replayed, again.replayed, again.untimed) == (0, 1, 0) and again.completion_tokens == 5
    assert again.seconds >= 0.3 and first.seconds >= 0.3


def test_the_context_stays_within_its_limit_of_tokens() -> None:
    # In words, as ScriptedModel counts: "[1] Lantern: The Lantern was …" has 9, "[2] Yard: The … < |im_end| > up" 9.
    model = ScriptedModel(lambda request: "x")
    answer_from(FOUND, 5, 17, model, 64)
    answer_from(FOUND, 5, 18, model, 64)
    first, second = (request.messages[1].content for request in model.requests)
    assert "[1] Lantern" in first and "[2]" not in first and "[2] Yard" in second
    with pytest.raises(UserError, match="max_context_tokens = 3: none of the 2 excerpts fits"):
        answer_from(FOUND, 5, 3, model, 64)


def test_a_window_that_is_too_small_for_all_excerpts_gets_the_best() -> None:
    model = ScriptedModel(lambda request: "###Reason: r [1] [2] ###Answer: a", window=90)
    made = answer_from(FOUND, 5, None, model, 64)
    assert "[1] Lantern" in model.requests[0].messages[1].content and "[2]" not in model.requests[0].messages[1].content
    assert (made.left_out, made.removed, model.requests[0].max_tokens) == (
        1,
        (2,),
        90 - model.prompt_tokens(model.requests[0].messages),
    )
    with pytest.raises(UserError, match="of the model's window of 40"):
        answer_from(FOUND, 5, None, ScriptedModel(lambda request: "x", window=40), 64)


def test_a_refusal_of_a_long_prompt_leads_to_fewer_excerpts() -> None:
    class Refusing(ScriptedModel):
        def complete(self, requests):  # type: ignore[no-untyped-def]
            made = super().complete(requests)
            long = "[2]" in requests[0].messages[1].content
            return [Completion("status 400 (maximum context length is 9)", "refused", 0, 0)] if long else made

    model = Refusing(lambda request: "###Reason: r [1] ###Answer: a")
    made = answer_from(FOUND, 5, None, model, 64)
    assert (made.answer, made.left_out, len(model.requests)) == ("a", 1, 2)

"""Which parts of a prompt are sent to a model: the latest turns and the best passages, never more than fits the model's window."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.answer.prompt import answer_messages
from graph.errors import UserError
from graph.types import Evidence, Excerpt, Message
from serve.conversation.prompt import ANSWER_DIVISOR, Exchange, Prompt, fit_prompt
from tests.fakes import ScriptedModel


def excerpt(number: int, words: int) -> Excerpt:
    return Excerpt(f"p{number}", f"T{number}", "word " * words, "doc", 0, 5 * words)


def prompt_of(passages: list[int], turns: list[int], turn: str = "Who?", intent: str = "question") -> Prompt:
    ranked = tuple(excerpt(number, words) for number, words in enumerate(passages))
    exchanges = tuple(Exchange(f"{number}? " * words, "so " * words) for number, words in enumerate(turns))
    return Prompt(intent, turn, "", Evidence("Who built it?"), ranked, exchanges, str)  # type: ignore[arg-type]


def words_of(prompt: Prompt) -> int:
    return model_of(None).prompt_tokens(prompt.messages())


def model_of(window: int | None) -> ScriptedModel:
    return ScriptedModel(lambda request: "", window=window)


@given(
    passages=st.lists(st.integers(1, 120), max_size=8),
    turns=st.lists(st.integers(1, 60), max_size=6),
    window=st.integers(20, 1_500),
    answer=st.integers(1, 2_000),
)
def test_the_fitted_prompt_contains_the_best_passages_and_the_latest_turns(
    passages: list[int], turns: list[int], window: int, answer: int
) -> None:
    whole = prompt_of(passages, turns)
    limit = window - min(answer, window // ANSWER_DIVISOR)
    try:
        fitted, max_tokens = fit_prompt(whole, model_of(window), answer)
    except UserError:
        alone = [words_of(whole.with_less(0, ranked)) for ranked in ([each] for each in whole.ranked)]
        shortest = min(alone, default=words_of(whole.with_less(0, ())))
        assert shortest > limit, f"refused, although {shortest} tokens without turns fit in {limit}"
        return
    assert words_of(fitted) <= limit and 1 <= max_tokens <= answer and words_of(fitted) + max_tokens <= window
    assert fitted.exchanges == whole.exchanges[len(turns) - len(fitted.exchanges) :]
    assert fitted.left_out == len(passages) - len(fitted.ranked)
    first = whole.ranked[: len(fitted.ranked)]
    assert fitted.ranked == first or len(fitted.ranked) == 1
    if fitted.ranked == first != whole.ranked:
        more = replace(fitted, ranked=whole.ranked[: len(first) + 1])
        assert words_of(more) > limit
    if words_of(whole) <= limit:
        assert (fitted.exchanges, fitted.ranked) == (whole.exchanges, whole.ranked)


def test_in_smaller_windows_earlier_turns_are_left_out_before_passages() -> None:
    whole = prompt_of([100, 100, 100], [40, 40, 40])
    assert words_of(whole) == 597
    for window, expected in ((600, (2, 3, 0)), (450, (1, 3, 0)), (300, (0, 2, 1))):
        prompt, max_tokens = fit_prompt(whole, model_of(window), 10)
        assert ((len(prompt.exchanges), len(prompt.ranked), prompt.left_out), max_tokens) == (expected, 10)
    assert fit_prompt(whole, model_of(700), 10)[0] == whole == fit_prompt(whole, model_of(None), 10)[0]


def test_turns_are_left_out_if_a_passage_fits_only_without_them() -> None:
    for words, turns in ((400, 1), (520, 0)):
        fitted, _ = fit_prompt(prompt_of([words], [40]), model_of(600), 10)
        assert (len(fitted.exchanges), len(fitted.ranked)) == (turns, 1)


def test_a_first_passage_that_is_too_long_is_replaced_by_a_shorter_one() -> None:
    fitted, max_tokens = fit_prompt(prompt_of([500, 400, 20, 10], []), model_of(300), 1_000)
    assert ([each.id for each in fitted.ranked], fitted.left_out) == (["p2"], 3)
    assert max_tokens == 300 - words_of(fitted)


def test_the_error_for_a_prompt_that_cannot_fit_names_a_remedy() -> None:
    with pytest.raises(
        UserError, match=r"of the model's window of 300.*Ask in fewer words, use a model with a larger window"
    ):
        fit_prompt(replace(prompt_of([20], []), evidence=Evidence("very " * 300)), model_of(300), 10)
    with pytest.raises(UserError, match="max_passage_tokens"):
        fit_prompt(prompt_of([400], []), model_of(300), 10)


def test_the_prompt_is_the_training_prompt_with_the_turns_inserted() -> None:
    whole = prompt_of([3], [1], "And when?")
    system, user = answer_messages("And when?", whole.ranked)
    assert whole.messages() == [system, Message("user", "0? "), Message("assistant", "so "), user]
    assert replace(whole, exchanges=()).messages() == list(answer_messages("Who built it?", whole.ranked))
    request = replace(whole, intent="request").messages()
    assert (
        request[0].content.startswith(system.content) and "another form" in request[0].content and request[-1] == user
    )
    remark = replace(whole, intent="remark", ranked=(), instructions="Be kind.").messages()
    assert remark[-1] == Message("user", "And when?") and remark[0].content.endswith("\n\nBe kind.")
    assert "###" not in remark[0].content


def test_halving_ends_with_one_passage_and_no_turns() -> None:
    prompt: Prompt | None = prompt_of([5] * 5, [1] * 3)
    sizes = []
    while prompt is not None:
        sizes.append((len(prompt.ranked), len(prompt.exchanges), prompt.left_out))
        prompt = prompt.halved()
    assert sizes == [(5, 3, 0), (3, 1, 2), (2, 0, 3), (1, 0, 4)]

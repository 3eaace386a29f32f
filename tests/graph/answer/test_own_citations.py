"""The citations of a response: those that repeat the prompt's example or appear in a thinking block do not count."""

import pytest

from graph.answer.citations import own_citations
from graph.text.prompting import read_prompt

FORM = "###Reason: {} ###Answer: {}"


@pytest.mark.parametrize(
    "response",
    [
        read_prompt("graph/answer.txt"),
        read_prompt("graph/answer_cited.txt"),
        read_prompt("graph/answer_quoted.txt"),
        FORM.format("The reasoning, citing passages by number like [1].", "The short answer."),
        FORM.format("the reasoning citing passages by number, like [1] and [2].", "Tarn"),
        FORM.format("Citing passages by number like ［2］ [1, 2].", "Tarn"),
        "The reasoning [1].",
        FORM.format("", "the short answer [1]"),
        "<think>Tarn [1]</think>Tarn",
    ],
)
def test_citations_that_repeat_the_prompt_or_appear_in_a_thinking_block_do_not_count(response: str) -> None:
    assert own_citations(response, 2) == ((), ())


@pytest.mark.parametrize(
    ("response", "existing", "missing"),
    [
        (FORM.format("The ferry sank [2], says [7].", "1911 [1]"), (2, 1), (7,)),
        (FORM.format("Citing passages by number like [1]. [2] says that the ferry sank.", "1911"), (2,), ()),
        (FORM.format("The reasoning, citing passages by number like [1], is that it sank [2].", "1911"), (2,), ()),
        (FORM.format("So the short answer is Tarn [1].", "Tarn"), (1,), ()),
        ("One [1].", (1,), ()),
        ("[2]", (2,), ()),
        (FORM.format("It is nowhere.", "not in the documents [1]"), (1,), ()),
        ("Tarn [0] [1] [p. 9] 【12345†source】", (1,), (9, 12345, 0)),
    ],
)
def test_other_citations_count(response: str, existing: tuple[int, ...], missing: tuple[int, ...]) -> None:
    assert own_citations(response, 2) == (existing, missing)

"""From evidence to a cited answer: number the excerpts, ask the model, and check every citation in code.

Used by the command line and the Python API. stream.py does the same for engines that stream, server/completion.py for HTTP and MCP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from graph.answer.attribution import Citation, cite_excerpts
from graph.answer.citations import check_citations
from graph.answer.context import rank_excerpts, token_budget
from graph.answer.prompt import NOT_FOUND, parse_answer, split_form
from graph.answer.support import NotChecked, SupportChecker, Unsupported, lacks_sentences, without_unsupported
from graph.answer.verifier import Verifier
from graph.errors import UserError
from graph.retrieve.parts.query import usage_of
from graph.types import Completion, CompletionRequest, Evidence, FinishReason, LanguageModel
from serve.conversation.prompt import Prompt, fit_prompt, halvings, is_too_long, standalone_prompt
from serve.types import Cost

NOTHING_FOUND = Completion(NOT_FOUND, "stop", prompt_tokens=0, completion_tokens=0)
"""The answer when there are no excerpts; no model is called for it."""


@dataclass(frozen=True)
class Answer:
    """One answer and its evidence. `citations` maps each number that the text cites to its excerpt. If the text cites none, it maps the numbers
    of the excerpts that modegraph finds for the sentences of the answer; these citations are `attributed`.

    `removed` are cited numbers without an excerpt; their brackets are removed from the text. `unsupported` are sentences of the reason or
    the answer that the excerpts do not seem to support, `not_checked` those that cannot be judged; both are empty without a verifier. `left_out`
    counts excerpts that did not fit the model's context window. `finish_reason` is "length" when the text was cut at the token limit.
    `retrieval` is the cost of finding the evidence, `writing` that of generating the answer.
    """

    question: str
    reason: str
    answer: str
    well_formed: bool
    finish_reason: FinishReason
    citations: Mapping[int, Citation]
    removed: tuple[int, ...]
    unsupported: tuple[Unsupported, ...]
    not_checked: tuple[NotChecked, ...]
    left_out: int
    evidence: Evidence
    model: str
    retrieval: Cost
    writing: Cost


def answer_from(
    evidence: Evidence,
    top_k: int,
    max_context_tokens: int | None,
    model: LanguageModel,
    max_answer_tokens: int,
    verifier: Verifier | None = None,
    drop_unsupported: bool = False,
) -> Answer:
    """Answer the query of `evidence` from its best `top_k` excerpts, which may have at most `max_context_tokens` of the model's tokens in total.

    With `drop_unsupported`, sentences that `verifier` finds unsupported are left out, as in `cite`; `unsupported` gives the
    positions where they would have been.
    """
    started = time.perf_counter()
    ranked = rank_excerpts(evidence, top_k, token_budget(max_context_tokens, model.count_tokens))
    prompt, completion = standalone_prompt(evidence, ranked), NOTHING_FOUND
    if ranked:
        prompt, answer_tokens = fit_prompt(prompt, model, max_answer_tokens)
        prompt, completion = ask_model(model, prompt, answer_tokens)
    return cite(prompt, completion, model.name, time.perf_counter() - started, verifier, drop_unsupported)


def ask_model(model: LanguageModel, prompt: Prompt, max_answer_tokens: int) -> tuple[Prompt, Completion]:
    """The prompt and the model's completion for it.

    If the model's server finds the prompt too long, the call is repeated with half of the excerpts, then a quarter, and so on. UserError if the
    server refuses even the shortest prompt, or refuses for another reason.
    """
    for part in halvings(prompt):
        completion = model.complete([CompletionRequest(tuple(part.messages()), max_answer_tokens)])[0]
        if completion.finish_reason != "refused":
            return part, completion
        if not is_too_long(completion.text):
            break
    remedy = "ask a shorter question, or use another model"
    raise UserError(f"{model.name}: {completion.text}", "a request that the server accepts", remedy)


def cite(
    prompt: Prompt,
    completion: Completion,
    model: str,
    seconds: float,
    verifier: Verifier | None = None,
    drop_unsupported: bool = False,
) -> Answer:
    """Parse the completion of a prompt, generated in `seconds`, into an Answer. Citations without an excerpt are removed from the reason and
    the answer. With `drop_unsupported`, so are unsupported sentences; if no sentence of the answer remains, a refusal takes their place.
    """
    evidence, excerpts = prompt.evidence, prompt.excerpts
    checked = {part: check_citations(text, len(excerpts)) for part, text in reason_and_answer(completion.text).items()}
    checker = SupportChecker(excerpts, verifier, evidence.query)
    shown = {part: (each.text, tuple(checker.unsupported(part, each.text))) for part, each in checked.items()}
    if drop_unsupported:
        shown = {part: without_unsupported(text, unsupported) for part, (text, unsupported) in shown.items()}
    texts = {part: text for part, (text, _) in shown.items()}
    if drop_unsupported and shown["answer"][1] and lacks_sentences(texts["answer"]):
        texts["answer"] = "\n\n".join(filter(None, (texts["answer"], NOT_FOUND)))
    unsupported = tuple(sentence for _, sentences in shown.values() for sentence in sentences)
    trace, usage = evidence.trace, usage_of([completion] if excerpts else [], seconds)
    return Answer(
        question=evidence.query,
        **texts,
        well_formed=parse_answer(completion.text, prompt.form).well_formed,
        finish_reason=completion.finish_reason,
        citations=cite_excerpts(
            evidence.query, **texts, excerpts=excerpts, unsupported={each.text for each in unsupported}
        ),
        removed=tuple(dict.fromkeys(number for each in checked.values() for number in each.removed)),
        unsupported=unsupported,
        not_checked=tuple(sentence for part, text in texts.items() for sentence in checker.not_checked(part, text)),
        left_out=prompt.left_out,
        evidence=evidence,
        model=model,
        retrieval=Cost(
            calls=trace.model_calls,
            prompt_tokens=trace.prompt_tokens,
            completion_tokens=trace.completion_tokens,
            seconds=trace.seconds + trace.encoder_seconds,
            replayed=trace.replayed_calls,
        ),
        writing=Cost(usage.calls, usage.prompt_tokens, usage.completion_tokens, usage.seconds, usage.replayed),
    )


def reason_and_answer(reply: str) -> dict[str, str]:
    """The `reason` and the `answer` of a reply, as a stream shows them: text before the first marker belongs to the answer, since a stream
    has shown it before the marker arrives. A thinking block belongs to neither.

    >>> reason_and_answer("It sank. ###Reason: So [1]. ###Answer: 1911")
    {'reason': 'So [1].', 'answer': 'It sank.\\n\\n1911'}
    """
    texts: dict[str, list[str]] = {"reason": [], "answer": []}
    for part in split_form(reply):
        if part.text and part.kind != "thinking":
            texts["reason" if part.is_reasoning else "answer"].append(part.text)
    return {name: "\n\n".join(parts).strip() for name, parts in texts.items()}

"""Response rows: up to K distinct responses of one policy to each prompt, with their rewards by component; a judging model's marks are one component.

The prompts have the contexts of preference rows, of all sizes or of selected ones, and ask for the policy's answer form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Literal

from data_synth.contexts import FindContexts, context_finder, draft_groups, task_of
from data_synth.preferences.support import MIN_SIMILARITY, MeasureSupport, Support, SupportScorer
from data_synth.responses.rewards import (
    answer_reward,
    citation_reward,
    format_reward,
    gold_reward,
    length_reward,
    supported_reward,
    variety_reward,
)
from data_synth.rows import Draft, Dropped, ResponseRow, Sampling
from graph.answer.prompt import answer_messages, parse_answer
from graph.answer.support import SupportChecker
from graph.answer.verifier import Verifier
from graph.documents.questions import Question
from graph.retrieve.parts.query import RetrieveSettings
from graph.shared.ids import content_id
from graph.text.prompting import break_special_tokens, fill, quote
from graph.text.replies import ReplyModel, replies_of, without_thinking
from graph.types import AnswerForm, Completion, CompletionRequest, LanguageModel, Message

if TYPE_CHECKING:
    from graph.index.index import Index


TOO_FEW = "fewer than two distinct complete responses"
PROMPTS_AT_ONCE = 16
"""Prompts whose responses are sampled together: enough to keep a server busy, and few enough for memory."""

Judge = Callable[[Draft, Sequence[str]], Sequence[float]]
"""A judging model: maps a draft and the responses to it to a reward from 0 to 1 for each response."""


@dataclass(frozen=True)
class SampledResponses:
    """The distinct complete responses to one prompt, in sampling order."""

    draft: Draft
    responses: tuple[str, ...]
    form: AnswerForm = "reasoned"
    """The answer form that the prompt asks for."""


Reward = Callable[[SampledResponses], Mapping[str, tuple[float, ...]]]
"""Maps the responses to one prompt to the rewards of each, by component."""


def response_rows(
    index: Index,
    questions: Iterable[Question],
    settings: RetrieveSettings,
    policy: LanguageModel,
    sampling: Sampling,
    sizes: Sequence[int],
    judge: Judge | None,
    verifier: Verifier | None,
) -> Iterator[ResponseRow | Dropped]:
    """The rows of `questions` over contexts of `sizes` excerpts (if none are given, of all sizes from 1 to `settings.top_k`)."""
    find_contexts = context_finder(index, settings, policy.count_tokens)
    reward = partial(rewards_of, measure=SupportScorer(index).of_drafts, judge=judge, verifier=verifier)
    yield from make_rows(questions, find_contexts, policy, sampling, reward, sizes)


def make_rows(
    questions: Iterable[Question],
    find_contexts: FindContexts,
    policy: LanguageModel,
    sampling: Sampling,
    reward: Reward,
    sizes: Sequence[int] = (),
) -> Iterator[ResponseRow | Dropped]:
    """Yield a row for each prompt in order; Dropped for a prompt with fewer than two usable responses, and for a question without a draft."""
    for group in draft_groups(questions, find_contexts, sizes):
        remaining = iter(group)
        while batch := list(islice(remaining, PROMPTS_AT_ONCE)):
            sampled = iter(sample_responses([draft for draft in batch if isinstance(draft, Draft)], policy, sampling))
            for draft in batch:
                yield draft if isinstance(draft, Dropped) else _response_row(next(sampled), policy, sampling, reward)


def sample_responses(drafts: Sequence[Draft], policy: LanguageModel, sampling: Sampling) -> list[SampledResponses]:
    """The responses of `sample_texts` to each draft, in the policy's answer form."""
    prompts = [answer_messages(draft.question.text, draft.excerpts, policy.form) for draft in drafts]
    keys = [(draft.question.id, str(len(draft.excerpts))) for draft in drafts]
    sampled = sample_texts(list(zip(keys, prompts, strict=True)), policy, sampling)
    return [SampledResponses(draft, each.texts, policy.form) for draft, each in zip(drafts, sampled, strict=True)]


@dataclass(frozen=True)
class SampledTexts:
    """The usable responses to one prompt, in sampling order, and the numbers (from 0) of those that were cut at the token limit."""

    texts: tuple[str, ...]
    cut: tuple[int, ...] = ()

    def without(self, unwanted: Callable[[str], bool]) -> SampledTexts:
        """The responses without the unwanted ones.

        >>> SampledTexts(("a", "b", "c"), cut=(1, 2)).without(lambda text: text == "b")
        SampledTexts(texts=('a', 'c'), cut=(1,))
        """
        wanted = [number for number, text in enumerate(self.texts) if not unwanted(text)]
        cut = tuple(place for place, number in enumerate(wanted) if number in self.cut)
        return SampledTexts(tuple(self.texts[number] for number in wanted), cut)


def sample_texts(
    prompts: Sequence[tuple[Sequence[str], tuple[Message, ...]]], policy: LanguageModel, sampling: Sampling
) -> list[SampledTexts]:
    """The usable responses of `sampling.samples` calls for each prompt; `prompts` are pairs of a key, for the seeds, and the messages."""
    requests = [
        CompletionRequest(
            messages, sampling.max_tokens, sampling.temperature, seed=response_seed(sampling.seed, key, number)
        )
        for key, messages in prompts
        for number in range(sampling.samples)
    ]
    completions = iter(policy.complete(requests))
    return [usable_texts(list(islice(completions, sampling.samples)), sampling.as_drawn) for _ in prompts]


def usable_texts(completions: Sequence[Completion], as_drawn: bool = False) -> SampledTexts:
    """The texts of completions without their thinking; refused and empty ones are left out.

    Unless `as_drawn`, each text is put on one line, and cut and repeated ones are left out, too.
    """
    tidy = break_special_tokens if as_drawn else quote
    usable = [
        (text, one.finish_reason)
        for one in completions
        if one.finish_reason != "refused" and (text := tidy(without_thinking(one.text)).strip())
    ]
    if not as_drawn:
        return SampledTexts(tuple(dict.fromkeys(text for text, reason in usable if reason == "stop")))
    cut = tuple(number for number, (_, reason) in enumerate(usable) if reason == "length")
    return SampledTexts(tuple(text for text, _ in usable), cut)


def response_seed(seed: int, key: Sequence[str], number: int) -> int:
    """The seed of one response: it differs for each prompt (by its key) and number, and is the same in every run."""
    return int(content_id(str(seed), *key, str(number))[:8], 16) >> 1


def _response_row(
    sampled: SampledResponses, policy: LanguageModel, sampling: Sampling, reward: Reward
) -> ResponseRow | Dropped:
    if len(sampled.responses) < 2:
        return Dropped(TOO_FEW)
    draft, question = sampled.draft, sampled.draft.question
    return ResponseRow(
        id=f"{question.id}#{len(draft.excerpts)}",
        prompt=answer_messages(question.text, draft.excerpts, policy.form),
        responses=sampled.responses,
        rewards=reward(sampled),
        question_id=question.id,
        question=question.text,
        answers=question.answers,
        kind=question.kind,
        split=question.split,
        context_size=len(draft.excerpts),
        context_ids=tuple(excerpt.id for excerpt in draft.excerpts),
        sampling=sampling,
        policy=policy.name,
    )


def rewards_of(
    sampled: SampledResponses, measure: MeasureSupport, judge: Judge | None = None, verifier: Verifier | None = None
) -> dict[str, tuple[float, ...]]:
    """The rewards of each response, by component; "gold" only if the question has gold documents, "judge" only with a judge, "supported" only with a verifier.

    Without a context, "grounded" and "supported" are 0 for every response.
    """
    draft, texts = sampled.draft, sampled.responses
    reasons = [parse_answer(text, sampled.form).reason or text for text in texts]
    support = measure([draft] * len(texts), reasons) if draft.excerpts else [Support(0.0, 0.0)] * len(texts)
    rewards = {
        "correct": tuple(answer_reward(text, draft.question.answers) for text in texts),
        "format": tuple(format_reward(text, sampled.form) for text in texts),
        "grounded": tuple(map(grounded_reward, support)),
        "citations": tuple(citation_reward(text, len(draft.excerpts)) for text in texts),
        "length": tuple(map(length_reward, texts)),
        "variety": tuple(map(variety_reward, texts)),
    }
    if draft.question.gold_sources:
        gold = gold_numbers(draft)
        rewards["gold"] = tuple(gold_reward(text, gold, len(draft.excerpts)) for text in texts)
    if verifier is not None:
        checker = SupportChecker(draft.excerpts, verifier, draft.question.text)
        rewards["supported"] = tuple(supported_reward(text, checker) for text in texts)
    if judge is not None:
        rewards["judge"] = tuple(judge(draft, texts))
    return {component: tuple(round(value, 4) for value in values) for component, values in rewards.items()}


def gold_numbers(draft: Draft) -> set[int]:
    """The numbers of the excerpts that come from the question's gold documents."""
    gold = set(draft.question.gold_sources)
    return {number for number, excerpt in enumerate(draft.excerpts, start=1) if excerpt.source in gold}


def grounded_reward(support: Support) -> float:
    """Similarity ÷ MIN_SIMILARITY, limited to [0, 1], times the share of names found in the context.

    >>> grounded_reward(Support(normalised_similarity=0.225, named=1.0)), grounded_reward(Support(normalised_similarity=0.8, named=0.5))
    (0.5, 0.5)
    """
    return min(1.0, max(0.0, support.normalised_similarity) / MIN_SIMILARITY) * support.named


MAX_MARK_TOKENS = 32
HIGHEST_MARK = 5


class JudgeMark(ReplyModel):
    """The reply of the judging model."""

    mark: Literal[1, 2, 3, 4, 5]


def judge_responses(draft: Draft, responses: Sequence[str], model: LanguageModel) -> list[float]:
    """(mark − 1) / 4 for each response; 0 if the model gave no mark, so that a missing mark is never rewarded."""
    task = task_of(draft)
    texts = [
        fill("data_synth/judge.txt", question_over_passages=task, answer=draft.answer, response=quote(response))
        for response in responses
    ]
    marks = replies_of(model, JudgeMark, texts, MAX_MARK_TOKENS)
    return [0.0 if each is None else (each.mark - 1) / (HIGHEST_MARK - 1) for each in marks]

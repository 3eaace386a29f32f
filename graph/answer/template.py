"""Prompts and answers rendered by a model's chat template, in the same way in training and in serving.

A template that supports thinking is rendered with thinking off (`enable_thinking`). If it then ends a prompt with an empty
thinking block, the block belongs to the prompt; if it writes one only before an answer, the block is left out; if the prompt leaves a block open
nevertheless, the answer closes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from graph.errors import UserError
from graph.text.prompting import escape_special_tokens
from graph.text.replies import END_OF_THINKING, THINK
from graph.types import Message

WITHOUT_THINKING = {"enable_thinking": False}
"""The variable that turns thinking off in the templates of Qwen3, SmolLM3, EXAONE, GLM and others. A template that does not use it ignores it."""
END_OF_OPEN_THINKING = f"\n{END_OF_THINKING}\n\n"
"""Precedes an answer whose prompt leaves a thinking block open."""
_PLACEHOLDER = "0f2f6c9e5b"
"""A word that no template contains."""
REMEDY = "choose another model, or fix its chat_template"


def prompt_text(tokenizer: Any, messages: Sequence[Message]) -> str:
    """A chat up to the start of the answer. A special token spelt out in a message stays text: a space breaks it up.

    UserError if the template rejects the chat (for example, because the template has no system role) or omits a turn.
    """
    return _render(tokenizer, _turns(tokenizer, messages), add_generation_prompt=True)


def prompt_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """The tokens of `prompt_text`."""
    return _ids(tokenizer, prompt_text(tokenizer, messages))


def chat_ids(tokenizer: Any, chats: Sequence[tuple[Sequence[Message], str]]) -> list[tuple[list[int], list[int]]]:
    """(prompt, answer) of each chat as tokens: `prompt_ids`, and the answer with the template's text around it, except an empty thinking block.

    All texts are tokenised together, each distinct prompt once. UserError as for `prompt_text`, and if the template writes the
    header of the assistant's turn only with the answer: a model would learn the header as part of the answer.
    """
    texts = [_parts(tokenizer, messages, answer) for messages, answer in chats]
    both = _ids_of_each(tokenizer, [prompt + continuation for prompt, continuation in texts])
    distinct = list(dict.fromkeys(prompt for prompt, _ in texts))
    prompts = dict(zip(distinct, _ids_of_each(tokenizer, distinct), strict=True))
    return [
        (prompts[prompt], _continuation_ids(tokenizer, prompts[prompt], ids, continuation))
        for (prompt, continuation), ids in zip(texts, both, strict=True)
    ]


def _parts(tokenizer: Any, messages: Sequence[Message], answer: str) -> tuple[str, str]:
    """A prompt, and everything that the template writes after it for this `answer`."""
    prompt = prompt_text(tokenizer, messages)
    turns = [*_turns(tokenizer, messages), {"role": "assistant", "content": _PLACEHOLDER}]
    before, _, after = _render(tokenizer, turns).partition(_PLACEHOLDER)
    return prompt, _opening(prompt, before) + answer + after


def leaves_thinking_open(tokenizer: Any) -> bool:
    """Whether a prompt ends within a thinking block despite WITHOUT_THINKING."""
    return _is_open(prompt_text(tokenizer, [Message("user", "?")]))


def reply_opening(tokenizer: Any) -> str:
    """The part of a reply that is already at the end of the prompt: an open thinking block if the template always opens one, else ""."""
    return f"{THINK}\n" if tokenizer.chat_template and leaves_thinking_open(tokenizer) else ""


def switches_thinking(tokenizer: Any) -> bool:
    """Whether the template can turn thinking off."""
    return "enable_thinking" in str(tokenizer.chat_template)


def _opening(prompt: str, before: str) -> str:
    """The text between a prompt and its answer; `before` is all that the template writes before the answer."""
    if _is_open(prompt):
        return END_OF_OPEN_THINKING
    framing = before.removeprefix(prompt) if before.startswith(prompt) else ""
    if END_OF_THINKING in framing:
        return ""
    if framing.strip():
        found = f"the chat template writes {framing!r} before an answer but not at the end of a prompt"
        remedy = "make the model's chat_template honour add_generation_prompt"
        raise UserError(found, "a template that ends a prompt with it", remedy)
    return framing


def _is_open(prompt: str) -> bool:
    return prompt.rstrip().endswith(THINK)


def _continuation_ids(tokenizer: Any, before: list[int], both: list[int], text: str) -> list[int]:
    """The tokens of `text` after its prompt: from both tokenised together, or from `text` alone if one token would span both."""
    return both[len(before) :] if both[: len(before)] == before else _ids(tokenizer, text)


def _turns(tokenizer: Any, messages: Sequence[Message]) -> list[dict[str, str]]:
    return [
        {"role": message.role, "content": escape_special_tokens(message.content, tokenizer)} for message in messages
    ]


def _render(tokenizer: Any, turns: list[dict[str, str]], add_generation_prompt: bool = False) -> str:
    name = tokenizer.name_or_path or "the tokenizer"
    try:
        text: str = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=add_generation_prompt, **WITHOUT_THINKING
        )
    except TemplateError as problem:
        roles = " and ".join(dict.fromkeys(turn["role"] for turn in turns))
        found = f"{name}: its chat template rejects turns with the roles {roles} ({problem})"
        raise UserError(found, "a template that accepts them", REMEDY) from None
    left_out = next((turn["role"] for turn in turns if _is_lost(turn, text)), None)
    if left_out is not None:
        found = f"{name}: its chat template omits the {left_out} turn"
        raise UserError(found, "a template that writes every turn", REMEDY)
    return text


def _is_lost(turn: Mapping[str, str], text: str) -> bool:
    """Whether a rendered chat lacks a turn; earlier answers are not checked, as templates may drop their thinking."""
    return turn["content"].strip() not in text and (turn["role"] != "assistant" or turn["content"] == _PLACEHOLDER)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _ids_of_each(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return [list(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]] if texts else []

"""What a model reads before it answers, and how its answer ends: its chat template, the same way in training and in serving.

A template that knows thinking is asked for an answer without (`enable_thinking`): what it then writes for an empty thinking block
belongs to the prompt. Where the prompt leaves a block open all the same, the answer closes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from graph.errors import UserError
from graph.text.prompting import escape_special_tokens
from graph.text.replies import END_OF_THINKING, THINK
from graph.types import Message

WITHOUT_THINKING = {"enable_thinking": False}
"""What templates call it: those of Qwen3, SmolLM3, EXAONE, GLM and others. A template that does not know the name ignores it."""
CLOSING = f"\n{END_OF_THINKING}\n\n"
_PLACE = "0f2f6c9e5b"
"""A word that no template writes."""
REMEDY = "choose another model, or fix its chat_template"


def prompt_text(tokenizer: Any, messages: Sequence[Message]) -> str:
    """A chat up to where the answer begins. No content can become a special token: one that is spelt out is broken by a space.

    UserError when the template does not take such a chat (one without a system role, for example), or leaves a turn of it out.
    """
    return _render(tokenizer, _turns(tokenizer, messages), add_generation_prompt=True)


def prompt_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """The tokens of `prompt_text`."""
    return _ids(tokenizer, prompt_text(tokenizer, messages))


def answer_ids(tokenizer: Any, messages: Sequence[Message], answer: str) -> list[int]:
    """The tokens of `answer` behind `prompt_ids`, with what the template writes around it but for an empty thinking block.

    UserError as `prompt_text`, and when the template writes the head of the assistant's turn only with the answer: it would be learned as
    a part of that.
    """
    prompt = prompt_text(tokenizer, messages)
    asked = _turns(tokenizer, messages)
    before, _, after = _render(tokenizer, [*asked, _turn("assistant", _PLACE)]).partition(_PLACE)
    return _behind(tokenizer, prompt, _opening(prompt, before) + answer + after)


def leaves_thinking_open(tokenizer: Any) -> bool:
    """Whether a prompt ends within a thinking block, whatever is asked for."""
    return _is_open(prompt_text(tokenizer, [Message("user", "?")]))


def reply_opening(tokenizer: Any) -> str:
    """What of a reply stands in its prompt: an open thinking block, where the template always opens one; "" otherwise."""
    return f"{THINK}\n" if tokenizer.chat_template and leaves_thinking_open(tokenizer) else ""


def switches_thinking(tokenizer: Any) -> bool:
    """Whether the template can be asked for answers without thinking."""
    return "enable_thinking" in str(tokenizer.chat_template)


def _opening(prompt: str, before: str) -> str:
    """What stands between a prompt and the words of its answer; `before` is what the template writes in front of those."""
    if _is_open(prompt):
        return CLOSING
    framing = before.removeprefix(prompt) if before.startswith(prompt) else ""
    if END_OF_THINKING in framing:
        return ""
    if framing.strip():
        raise UserError(
            f"the chat template writes {framing!r} before an answer, and not at the end of a prompt",
            "a template that ends a prompt with it",
            "have its chat_template heed add_generation_prompt",
        )
    return framing


def _is_open(prompt: str) -> bool:
    return prompt.rstrip().endswith(THINK)


def _behind(tokenizer: Any, prompt: str, text: str) -> list[int]:
    """The tokens of `text` behind those of `prompt`; where one would span both, `text` is tokenised by itself."""
    asked, whole = _ids(tokenizer, prompt), _ids(tokenizer, prompt + text)
    return whole[len(asked) :] if whole[: len(asked)] == asked else _ids(tokenizer, text)


def _turns(tokenizer: Any, messages: Sequence[Message]) -> list[dict[str, str]]:
    return [_turn(message.role, escape_special_tokens(message.content, tokenizer)) for message in messages]


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _render(tokenizer: Any, turns: list[dict[str, str]], add_generation_prompt: bool = False) -> str:
    name = tokenizer.name_or_path or "the tokenizer"
    try:
        text = str(
            tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=add_generation_prompt, **WITHOUT_THINKING
            )
        )
    except TemplateError as problem:
        roles = " and ".join(dict.fromkeys(turn["role"] for turn in turns))
        found = f"{name}: its chat template refuses turns of {roles} ({problem})"
        raise UserError(found, "a template that takes them", REMEDY) from None
    left_out = next((turn["role"] for turn in turns if _is_lost(turn, text)), None)
    if left_out is not None:
        raise UserError(f"{name}: its chat template leaves out the turn of {left_out}", "all of a chat", REMEDY)
    return text


def _is_lost(turn: Mapping[str, str], text: str) -> bool:
    """Whether a rendered chat lacks a turn; an earlier answer may lose its thinking."""
    return turn["content"].strip() not in text and (turn["role"] != "assistant" or turn["content"] == _PLACE)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])

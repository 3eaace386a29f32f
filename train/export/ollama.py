"""An Ollama Modelfile for a GGUF file: chat template in Ollama's format, stop token, system prompt of training.

Ollama does not read Jinja templates. The text around each turn is extracted from chats that the model's template renders, and written as a Go
template. A chat template whose text varies from turn to turn, or does not fit Ollama's syntax, is omitted, with a comment in the Modelfile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from graph.answer.prompt import answer_messages
from graph.answer.template import prompt_text
from graph.errors import UserError
from graph.types import AnswerForm, Message

MODELFILE = "Modelfile"
MAX_CONTEXT = 8192
"""The maximum number of context tokens for which Ollama reserves memory; a shorter window of the model takes precedence."""
_Role = Literal["system", "user", "assistant"]
_ROLES: tuple[_Role, ...] = ("system", "user", "assistant", "user", "assistant", "user")
_UNWRITABLE = ('"""', "{{", "}}")


@dataclass(frozen=True)
class Turns:
    """The text that a chat template writes around the turns of a chat that begins with a system turn.

    `after_last_user` follows the user turn that the model is to answer, `after_user` an earlier one.
    """

    opening: str
    after_system: str
    after_last_user: str
    after_user: str
    after_answer: str


def modelfile(gguf: str, tokenizer: Any, context_tokens: int, form: AnswerForm) -> tuple[str, bool]:
    """The text of a Modelfile for the file `gguf` in the same folder, whose model answers in `form`; and whether the text has the chat template."""
    turns = turns_of(tokenizer)
    template = "# No TEMPLATE: the model's chat template cannot be written in Ollama's format."
    if turns is not None:
        template = f'TEMPLATE """{go_template(turns)}"""'
    system = answer_messages("?", (), form)[0].content
    lines = [
        f"FROM ./{gguf}",
        template,
        f'SYSTEM """{system}"""',
        f'PARAMETER stop "{tokenizer.eos_token}"',
        "PARAMETER temperature 0",
        f"PARAMETER num_ctx {min(context_tokens, MAX_CONTEXT)}",
    ]
    return "\n".join(lines) + "\n", turns is not None


def turns_of(tokenizer: Any) -> Turns | None:
    """The text that the tokenizer's chat template writes around turns; None if it varies from turn to turn, or does not fit Ollama's syntax."""
    try:
        short, long = _between(tokenizer, 2), _between(tokenizer, len(_ROLES))
    except UserError:
        return None
    turns = Turns(short[0], short[1], short[2], long[2], long[3])
    expected = [turns.opening, turns.after_system, *[turns.after_user, turns.after_answer] * 2, turns.after_last_user]
    if long != expected or any(word in piece for piece in expected for word in _UNWRITABLE):
        return None
    # A start token that the tokenizer puts before every text is added by Ollama, so the template must not write it.
    if tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]:
        turns = replace(turns, opening=turns.opening.removeprefix(str(tokenizer.bos_token)))
    return turns


def go_template(turns: Turns) -> str:
    """The turns as an Ollama template.

    >>> go_template(Turns("<s>", "<u>", "<a>", "<a>", "<u>"))
    '{{ range .Messages }}{{ if eq .Role "system" }}<s>{{ .Content }}<u>{{ else if eq .Role "user" }}{{ .Content }}<a>{{ else }}{{ .Content }}<u>{{ end }}{{ end }}'
    """
    after, loop = turns.after_last_user, "range .Messages"
    if turns.after_last_user != turns.after_user:
        loop = "range $i, $_ := .Messages"
        after = f"{{{{ if eq (len (slice $.Messages $i)) 1 }}}}{turns.after_last_user}{{{{ else }}}}{turns.after_user}{{{{ end }}}}"
    return (
        f"{{{{ {loop} }}}}"
        f'{{{{ if eq .Role "system" }}}}{turns.opening}{{{{ .Content }}}}{turns.after_system}'
        f'{{{{ else if eq .Role "user" }}}}{{{{ .Content }}}}{after}'
        f"{{{{ else }}}}{{{{ .Content }}}}{turns.after_answer}{{{{ end }}}}{{{{ end }}}}"
    )


def _between(tokenizer: Any, number: int) -> list[str]:
    """The text that the template writes before, between and after `number` turns, up to the start of the answer."""
    words = [f"0f2f6c9e5b{place}" for place in range(number)]
    text = prompt_text(tokenizer, [Message(role, word) for role, word in zip(_ROLES, words, strict=False)])
    pieces = []
    for word in words:
        piece, found, text = text.partition(word)
        if not found:
            raise UserError("a chat template that omits a turn", "one that writes each turn", "fix the chat template")
        pieces.append(piece)
    return [*pieces, text]

"""An Ollama Modelfile beside a GGUF: chat template in Ollama's own form, stop token, system prompt of training.

Ollama reads no Jinja. What a model's chat template writes around each turn is read off the chats that it renders, and written again
as a Go template; a template that writes something else from turn to turn is left out, and the Modelfile says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from graph.answer.prompt import answer_messages
from graph.answer.template import prompt_text
from graph.errors import UserError
from graph.types import Message

MODELFILE = "Modelfile"
LONGEST_CONTEXT = 8192
"""Tokens of context that Ollama reserves memory for, at most; a shorter window of the model goes first."""
_ROLES: tuple[Literal["system", "user", "assistant"], ...] = (
    "system",
    "user",
    "assistant",
    "user",
    "assistant",
    "user",
)
_UNWRITABLE = ('"""', "{{", "}}")


@dataclass(frozen=True)
class Turns:
    """What a chat template writes between the words of a chat that begins with a system turn.

    `answering` stands behind a user's turn that the model answers now, `answered` behind one that it has answered.
    """

    opening: str
    asking: str
    answering: str
    answered: str
    going_on: str


def modelfile(gguf: str, tokenizer: Any, context_tokens: int) -> tuple[str, bool]:
    """The text of a Modelfile for the file `gguf` beside it, and whether it holds the chat template."""
    turns = turns_of(tokenizer)
    template = (
        f'TEMPLATE """{go_template(turns)}"""'
        if turns
        else "# No TEMPLATE: the model's own is not a sequence of turns."
    )
    system = answer_messages("?", ())[0].content
    lines = [
        f"FROM ./{gguf}",
        template,
        f'SYSTEM """{system}"""',
        f'PARAMETER stop "{tokenizer.eos_token}"',
        "PARAMETER temperature 0",
        f"PARAMETER num_ctx {min(context_tokens, LONGEST_CONTEXT)}",
    ]
    return "\n".join(lines) + "\n", turns is not None


def turns_of(tokenizer: Any) -> Turns | None:
    """What the tokenizer's chat template writes around turns; None where it does not write the same around each."""
    try:
        short, long = _between(tokenizer, 2), _between(tokenizer, len(_ROLES))
    except UserError:
        return None
    turns = Turns(short[0], short[1], short[2], long[2], long[3])
    again = [turns.opening, turns.asking, *[turns.answered, turns.going_on] * 2, turns.answering]
    if long != again or any(word in piece for piece in again for word in _UNWRITABLE):
        return None
    return turns if not _adds_start(tokenizer) else _without_start(turns, str(tokenizer.bos_token))


def go_template(turns: Turns) -> str:
    """The same as a template of Ollama.

    >>> go_template(Turns("<s>", "<u>", "<a>", "<a>", "<u>"))
    '{{ range .Messages }}{{ if eq .Role "system" }}<s>{{ .Content }}<u>{{ else if eq .Role "user" }}{{ .Content }}<a>{{ else }}{{ .Content }}<u>{{ end }}{{ end }}'
    """
    after, loop = turns.answering, "range .Messages"
    if turns.answering != turns.answered:
        loop = "range $i, $_ := .Messages"
        after = (
            f"{{{{ if eq (len (slice $.Messages $i)) 1 }}}}{turns.answering}{{{{ else }}}}{turns.answered}{{{{ end }}}}"
        )
    return (
        f"{{{{ {loop} }}}}"
        f'{{{{ if eq .Role "system" }}}}{turns.opening}{{{{ .Content }}}}{turns.asking}'
        f'{{{{ else if eq .Role "user" }}}}{{{{ .Content }}}}{after}'
        f"{{{{ else }}}}{{{{ .Content }}}}{turns.going_on}{{{{ end }}}}{{{{ end }}}}"
    )


def _between(tokenizer: Any, number: int) -> list[str]:
    """What the template writes before, between and behind the words of `number` turns, up to where the answer begins."""
    words = [f"0f2f6c9e5b{place}" for place in range(number)]
    text = prompt_text(tokenizer, [Message(role, word) for role, word in zip(_ROLES, words, strict=False)])
    pieces = []
    for word in words:
        piece, found, text = text.partition(word)
        if not found:
            raise UserError("a chat template that leaves out a turn", "one that writes each", "")
        pieces.append(piece)
    return [*pieces, text]


def _adds_start(tokenizer: Any) -> bool:
    """Whether a start token goes before every text: Ollama then adds it by itself."""
    return tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id


def _without_start(turns: Turns, start: str) -> Turns:
    return Turns(turns.opening.removeprefix(start), turns.asking, turns.answering, turns.answered, turns.going_on)

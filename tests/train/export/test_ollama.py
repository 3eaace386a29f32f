"""Modelfiles: Ollama's template writes exactly the prompts of the chat template; where that is impossible, no template is written."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase

from graph.answer.prompt import answer_messages
from graph.answer.template import prompt_text
from graph.types import Excerpt, Message
from tests.train.adapters import with_smollm2
from tests.train.templates import NO_SYSTEM, STYLES, Style, tokenizer_of
from train.export.gguf_export import go_template, modelfile, turns_of
from train.model.load import load_tokenizer

CHAT = (
    *answer_messages("Who built the Lantern?", [Excerpt("p", "Yard", "The yard built {it}.\nIn 1913.")]),
    Message("assistant", "###Reason: so [1]. ###Answer: the yard"),
    Message("user", "When?"),
)
MARK = re.compile(r"{{ (.*?) }}", re.DOTALL)


def render(template: str, messages: Sequence[Message]) -> str:
    """The output of Go's text/template, for the few constructs that our templates use."""
    loop, *marks = MARK.split(template)[1:]
    assert loop in ("range .Messages", "range $i, $_ := .Messages")
    pieces = []
    for place, message in enumerate(messages):
        conditions = {
            **{f'eq .Role "{role}"': message.role == role for role in ("system", "user")},
            "eq (len (slice $.Messages $i)) 1": place == len(messages) - 1,
        }
        branches: list[list[bool]] = []  # For each open `if`: whether this branch is taken, and whether any branch was.
        for text, mark in zip(marks[::2], [*marks[1::2], "end"], strict=True):
            if all(now for now, _ in branches):
                pieces.append(text)
                if mark == ".Content":
                    pieces.append(message.content)
            if mark.startswith("if "):
                holds = conditions[mark.removeprefix("if ")]
                branches.append([holds, holds])
            elif mark.startswith("else"):
                holds = not branches[-1][1] and conditions.get(mark.removeprefix("else if "), True)
                branches[-1] = [holds, branches[-1][1] or holds]
            elif mark == "end" and branches:
                branches.pop()
    return "".join(pieces)


def assert_same_prompts(tokenizer: PreTrainedTokenizerBase) -> None:
    """Check the prompts of a first question and of a follow-up."""
    turns = turns_of(tokenizer)
    assert turns is not None
    for messages in (CHAT[:2], CHAT):
        assert render(go_template(turns), messages) == prompt_text(tokenizer, messages)


@pytest.mark.parametrize("name", STYLES)
def test_ollama_writes_the_training_prompts(name: str) -> None:
    """A thinking block that belongs only to the last turn appears only there."""
    assert_same_prompts(tokenizer_of(STYLES[name]))


@with_smollm2
def test_ollama_writes_the_prompts_of_a_real_and_of_a_tiny_model(base: Path) -> None:
    for source in ("smollm2", str(base)):
        assert_same_prompts(load_tokenizer(source))


def test_a_modelfile_contains_the_template_and_the_parameters(base: Path) -> None:
    text, whole = modelfile("model-f16.gguf", load_tokenizer(str(base)), 256, "reasoned")
    assert whole and text.startswith('FROM ./model-f16.gguf\nTEMPLATE """{{ range .Messages }}')
    assert f'SYSTEM """{CHAT[0].content}"""\n' in text
    assert text.endswith('PARAMETER stop "<|im_end|>"\nPARAMETER temperature 0\nPARAMETER num_ctx 256\n')
    assert "num_ctx 8192" in modelfile("m.gguf", load_tokenizer(str(base)), 131072, "reasoned")[0]
    cited, _ = modelfile("m.gguf", load_tokenizer(str(base)), 256, "cited")
    assert f'SYSTEM """{answer_messages("?", (), "cited")[0].content}"""\n' in cited
    assert "SYSTEM" not in modelfile("m.gguf", load_tokenizer(str(base)), 256, None)[0]


@pytest.mark.parametrize(
    "template",
    [
        NO_SYSTEM + STYLES["qwen2.5"].template,
        "{%- for m in messages -%}{{ loop.index }}: {{ m.content }}{%- endfor -%}",
        "{%- for m in messages -%}{%- if m.role != 'system' -%}{{ m.content }}{%- endif -%}{%- endfor -%}",
        "{%- for m in messages|reverse -%}{{ m.content }}{%- endfor -%}",
        "{%- for m in messages -%}{{ '{{' + m.role + '}}' + m.content }}{%- endfor -%}",
    ],
    ids=["no system", "numbered", "system left out", "reversed", "braces"],
)
def test_a_template_that_is_not_a_sequence_of_turns_is_left_out(template: str) -> None:
    text, whole = modelfile("m.gguf", tokenizer_of(Style(template, "<|im_end|>", "", "")), 256, "reasoned")
    assert not whole and 'TEMPLATE "' not in text and "# No TEMPLATE" in text and 'SYSTEM """' in text


def test_a_start_token_that_ollama_adds_is_not_written_twice() -> None:
    tokenizer = tokenizer_of(STYLES["llama3"])
    tokenizer.bos_token = "<|begin_of_text|>"
    start = ("<|begin_of_text|>", tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"{start[0]} $A", special_tokens=[start])
    turns = turns_of(tokenizer)
    assert turns is not None
    assert start[0] + render(go_template(turns), CHAT) == prompt_text(tokenizer, CHAT)

"""What vLLM must be told of a chat template, so that a model reads and is read as in training; every way to start one goes through it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from graph.prompt.template import WITHOUT_THINKING, leaves_thinking_open, switches_thinking
from graph.shared.errors import UserError
from serve.engines.vllm import VllmSpec

PARSER = "deepseek_r1"
"""vLLM's name for the parser of replies that begin within <think>, opened by the prompt."""


def as_trained(spec: VllmSpec, tokenizer: Any) -> VllmSpec:
    """The spec with prompts as in training: thinking is off by default, where the template can turn it off (graph/prompt/template.py).

    Where it always opens a thinking block, vLLM is told to take what is written in there out of the answer. An option of the user's own comes
    later in the command line, and counts. UserError for a tokenizer without a template: vLLM would refuse every chat.
    """
    if tokenizer.chat_template is None:
        remedy = "serve its instruct variant, or put a chat_template.jinja beside its tokenizer"
        raise UserError(f"vllm:{spec.model}: its tokenizer has no chat template", "a chat (instruct) model", remedy)
    options = []
    if switches_thinking(tokenizer):
        options.append(f"--default-chat-template-kwargs={json.dumps(WITHOUT_THINKING)}")
    if leaves_thinking_open(tokenizer):
        options.append(f"--reasoning-parser={PARSER}")
    return replace(spec, extra=(*options, *spec.extra))

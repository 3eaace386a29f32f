"""Chat templates that resemble those of known models in everything that determines where a prompt ends and an answer begins."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from tests.train.world import TEXTS
from train.tiny import train_tokenizer

_CHATML = "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor -%}"
_QWEN3_TURNS = """
{%- set ns = namespace(last=messages|length - 1, seek=true) -%}
{%- for m in messages[::-1] -%}{%- if ns.seek and m.role == 'user' -%}
{%- set ns.seek = false -%}{%- set ns.last = messages|length - 1 - loop.index0 -%}
{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set content = m.content.split('</think>')[-1].lstrip('\\n') -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if loop.index0 > ns.last and loop.last -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
{{- content + '<|im_end|>\\n' -}}
{%- else -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"""
_HEADER = "'<|start_header_id|>' + {} + '<|end_header_id|>\\n\\n'"


@dataclass(frozen=True)
class Style:
    """A template, its end token, and the text that it writes before and after an answer; the model is trained on this text, too."""

    template: str
    end: str
    before: str
    after: str


STYLES = {
    "qwen2.5": Style(
        "{%- if messages[0].role != 'system' -%}{{ '<|im_start|>system\nYou are Q.<|im_end|>\n' }}{%- endif -%}"
        + _CHATML
        + "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}",
        "<|im_end|>",
        "",
        "<|im_end|>",
    ),
    "llama3": Style(
        "{{- '<|begin_of_text|>' -}}{%- for m in messages -%}{{- "
        + _HEADER.format("m.role")
        + " + m.content|trim + '<|eot_id|>' -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- "
        + _HEADER.format("'assistant'")
        + " -}}{%- endif -%}",
        "<|eot_id|>",
        "",
        "<|eot_id|>",
    ),
    "mistral": Style(
        "{{- '<s>' -}}{%- for m in messages -%}{%- if m.role == 'assistant' -%}{{- ' ' + m.content + '</s>' -}}"
        "{%- else -%}{{- ' [INST] ' + m.content + ' [/INST]' -}}{%- endif -%}{%- endfor -%}",
        "</s>",
        " ",
        "</s>",
    ),
    "qwen3": Style(
        _QWEN3_TURNS
        + "{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}"
        + "{%- endif -%}",
        "<|im_end|>",
        "",
        "<|im_end|>",
    ),
    "without a thinking switch": Style(_QWEN3_TURNS + "{%- endif -%}", "<|im_end|>", "", "<|im_end|>"),
    "always thinking": Style(
        _QWEN3_TURNS + "{{- '<think>\\n' -}}{%- endif -%}", "<|im_end|>", "\n</think>\n\n", "<|im_end|>"
    ),
}
NO_SYSTEM = "{%- if messages[0].role == 'system' -%}{{- raise_exception('System role not supported') -}}{%- endif -%}"
"""The beginning of a template that refuses system messages."""


def tokenizer_of(style: Style) -> PreTrainedTokenizerBase:
    """A small tokenizer with the template and end token of the style, and special tokens for all styles.

    <think> and </think> are ordinary added tokens, as in Qwen3.
    """
    tokenizer = train_tokenizer(TEXTS, 600, 512)
    special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>", "[INST]"]
    tokenizer.add_tokens(special, special_tokens=True)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.eos_token, tokenizer.chat_template = style.end, style.template
    return tokenizer

"""A language model as a verifier: the prompt contains passages and a sentence; the verdict is the odds of "yes" against "no" as the first word of the reply.

SHIPPED is an adapter trained on sentences that people labelled (graph/models/support/README.md). On a CPU, OpenVINO runs it if it is installed,
otherwise transformers. Any other model is given as hf:FOLDER, hf:NAME or openvino:FOLDER. The file CALIBRATION in the model's folder contains the
threshold and the numbers that turn log-odds into a probability; without it, a sentence is marked if "no" is more probable than "yes".

Legend: n claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FiniteFloat

from graph.answer.overlap import Wording, overlaps
from graph.answer.template import prompt_ids
from graph.answer.verifier import Premise, windows
from graph.errors import UserError
from graph.models import openvino_ir
from graph.models.catalogue import SUPPORT, resolve
from graph.models.checkpoint import on_cpu
from graph.models.load import load_for_inference
from graph.text.prompting import quote, read_prompt
from graph.trees import probabilities
from graph.types import Message

SHIPPED = SUPPORT.name
KINDS = ("hf", "openvino")
CALIBRATION = "verifier.json"
MAX_CHARS = 8_000
"""Of passages with more characters in total, only the windows that share the most stems with the claim are read; a longer claim or title is cut."""
WINDOW_CHARS = 1_000
BATCH_TOKENS = 2_048
"""The largest number of tokens in a batch of prompts, padding included, unless a single prompt has more."""
LogOdds = Callable[[Sequence[Sequence[Message]]], NDArray[np.float64]]
"""log P(yes) − log P(no) for the first token after each chat: [n]."""


class Calibration(BaseModel):
    """The probability of being unsupported is σ(offset − scale · log-odds); a claim is marked if this probability is at least `threshold`.

    For a claim that begins with its question (`claim_of`), `question_offset` replaces `offset`, unless it is None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    scale: FiniteFloat = 1.0
    offset: FiniteFloat = 0.0
    question_offset: FiniteFloat | None = None
    threshold: FiniteFloat = 0.5

    def probabilities(self, log_odds_n: NDArray[np.float64], with_question: bool) -> NDArray[np.float64]:
        """The probability that claims with these log-odds, all with their questions or all without, are unsupported: [n]."""
        question_offset = self.offset if self.question_offset is None else self.question_offset
        offset = question_offset if with_question else self.offset
        return probabilities(offset - self.scale * log_odds_n, 1.0)


@dataclass(frozen=True)
class ModelVerifier:
    """A `Verifier` (verifier.py)."""

    log_odds: LogOdds
    calibration: Calibration

    @property
    def threshold(self) -> float:
        return self.calibration.threshold

    def judge(self, claims: Sequence[str], premise: Premise, with_question: bool = False) -> NDArray[np.float64]:
        prompts = [support_prompt(closest_windows(premise.passages, claim), claim) for claim in claims]
        return self.calibration.probabilities(self.log_odds(prompts), with_question)


def is_model(spec: str) -> bool:
    """Whether a verifier's spec names a language model; if there is a folder called `support`, "support" names that folder."""
    return spec.startswith(tuple(f"{kind}:" for kind in KINDS)) or (spec == SHIPPED and not Path(spec).is_dir())


def kind_of(spec: str) -> tuple[str, str]:
    """For a verifier that is a language model: the library that runs it (of KINDS), and the model's folder or name."""
    if spec == SHIPPED:
        return "openvino" if on_cpu() and openvino_ir.is_installed() else "hf", spec
    kind, _, target = spec.partition(":")
    return kind, target


@lru_cache(maxsize=1)
def open_model_verifier(spec: str) -> ModelVerifier:
    """The verifier that SHIPPED, hf:FOLDER, hf:NAME or openvino:FOLDER names; UserError for a model that cannot be loaded or has no
    chat template, or for an invalid CALIBRATION."""
    kind, target = kind_of(spec)
    calibration = read_calibration(Path(resolve(target)).expanduser() / CALIBRATION)
    if kind == "openvino":
        from graph.models.light_tokenizer import read_light_tokenizer

        source, folder = openvino_ir.locate(target)
        tokenizer = read_light_tokenizer(source, spec)
        odds: LogOdds = partial(openvino_log_odds, openvino_ir.open_pipeline(folder, target), tokenizer)
    else:
        model, tokenizer, _ = load_for_inference(target)
        odds = partial(torch_log_odds, model.eval(), tokenizer)
    if tokenizer.chat_template is None:
        raise UserError(f"verifier {spec!r}: no chat template", "a chat (instruct) model", "name another model")
    return ModelVerifier(odds, calibration)


def read_calibration(file: Path) -> Calibration:
    """The calibration in `file`, or the default one if there is no such file; UserError for an invalid file."""
    try:
        return Calibration.model_validate_json(file.read_bytes()) if file.exists() else Calibration()
    except ValueError as problem:
        expected = "the numbers scale, offset, question_offset and threshold"
        raise UserError(f"{file}: {problem}", expected, "restore it or delete it") from None


def support_prompt(passages: Sequence[tuple[str, str]], claim: str) -> tuple[Message, ...]:
    """The chat that asks whether passages, pairs of title and text, support a claim. The adapter was trained on this form: each passage on one line,
    a title only if there is one, and the claim last, so that prompts about the same passages have the same beginning."""
    sentence = f"Sentence: {json.dumps(quote(claim[:MAX_CHARS]), ensure_ascii=False)}"
    parts = (f"{_line('Title', title) if title else ''}{_line('Passage', text)}" for title, text in passages)
    return Message("system", read_prompt("graph/support.txt")), Message("user", "\n".join([*parts, sentence]))


def _line(name: str, text: str) -> str:
    return f"{name}: {json.dumps(quote(text[:MAX_CHARS]), ensure_ascii=False)}\n"


def closest_windows(passages: Sequence[tuple[str, str]], claim: str) -> Sequence[tuple[str, str]]:
    """The passages; if they have more than MAX_CHARS characters, the windows that share the most stems with the claim, in text order."""
    if sum(len(text) for _, text in passages) <= MAX_CHARS:
        return passages
    parts = [(title, part) for title, text in passages for _, part, _ in windows(text, chars=WINDOW_CHARS)]
    shared = [overlaps(claim, [Wording.of(title, part)])[0] for title, part in parts]
    best = sorted(range(len(parts)), key=lambda at: (-shared[at], at))[: MAX_CHARS // WINDOW_CHARS]
    return [parts[at] for at in sorted(best)]


def torch_log_odds(model: Any, tokenizer: Any, prompts: Sequence[Sequence[Message]]) -> NDArray[np.float64]:
    """LogOdds with a transformers model: [n]. Padding is on the left, so that every prompt ends at the last position."""
    import torch

    yes, no = (tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in ("yes", "no"))
    ids = [prompt_ids(tokenizer, prompt) for prompt in prompts]
    log_odds_n = np.zeros(len(ids))
    for batch in _batches([len(each) for each in ids]):
        width = max(len(ids[at]) for at in batch)
        tokens = torch.tensor([[yes] * (width - len(ids[at])) + ids[at] for at in batch], device=model.device)
        mask = torch.tensor([[0] * (width - len(ids[at])) + [1] * len(ids[at]) for at in batch], device=model.device)
        inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
        with torch.inference_mode():
            logits = model(**inputs, logits_to_keep=1).logits[:, -1].float()
        log_odds_n[batch] = (logits[:, yes] - logits[:, no]).cpu().numpy()
    return log_odds_n


_PIPELINE_LOCK, _REQUEST_IDS = Lock(), count()


def openvino_log_odds(pipeline: Any, tokenizer: Any, prompts: Sequence[Sequence[Message]]) -> NDArray[np.float64]:
    """LogOdds with OpenVINO's pipeline: [n].

    One request forces "yes" and one "no", since the pipeline reports only the log-probability of the token that it generates. Requests run one after the
    other, so that the pipeline's cache already contains the beginning that a prompt shares with an earlier one, such as the passages.
    """
    from openvino import Tensor
    from openvino_genai import GenerationConfig, StructuredOutputConfig

    def logp(ids: NDArray[np.int64], word: str) -> float:
        config = GenerationConfig(max_new_tokens=1, do_sample=False, logprobs=1)
        config.structured_output_config = StructuredOutputConfig(regex=word)
        handle = pipeline.add_request(next(_REQUEST_IDS), Tensor(ids), config)
        while pipeline.has_non_finished_requests():
            pipeline.step()
        return float(handle.read_all()[0].generated_log_probs[0])

    with _PIPELINE_LOCK:
        all_ids = [np.array([prompt_ids(tokenizer, prompt)], np.int64) for prompt in prompts]
        return np.array([logp(ids, "yes") - logp(ids, "no") for ids in all_ids])


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The positions of prompts, in batches of similar length: at most BATCH_TOKENS tokens with padding, unless a single prompt has more."""
    batch: list[int] = []
    for at in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[at] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch

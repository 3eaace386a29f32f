"""Loads models from disk or hub for training and evaluation: adapters or full models, 4-bit bases (QLoRA), dropout off.

graph/models/ reads the files. The path of an adapter's base model may be relative to the working directory, as in training.

A trial of the model's log-probabilities on a few tokens comes before the first step of training. A model may attend to later tokens (BERT without
a decoder), ignore arguments that the trainers pass, or draw random numbers in training; it would silently be trained on a different objective, and
is rejected, with the reason. The reference is the formula itself: every token predicted alone from its prefix.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers import logging as transformers_logging

from graph.errors import UserError, first_line
from graph.models.catalogue import resolve
from graph.models.checkpoint import ADAPTER_CONFIG, adapter_base, check_base, is_adapter, tokenizer_source
from graph.models.load import check_vocabulary, load_adapter, load_full_model, read_tokenizer
from graph.shared.hub import only_in_cache, quiet_loading
from train.model.logps import unwrapped
from train.model.packing import ERRORS, TRIAL_GROUPS, TokenizedGroup, gap_beyond_rounding, plain_logps


def check_model(model: Any) -> None:
    """UserError for a model whose plain layout does not give Σ_t log π(y_t | x, y_<t); gradients stay enabled, because quantised layers may need them."""
    with _trial_of(model):
        gap = gap_beyond_rounding(model, plain_logps(model.eval(), TRIAL_GROUPS), token_by_token(model, TRIAL_GROUPS))
    if math.isnan(gap):
        reason = "its log-probabilities are not numbers"
        raise _unsuitable(model, reason, "intact weights", "copy or save the model again")
    if gap:
        reason = f"its log-probabilities change by {gap:.3g} nats with later tokens or other rows of a batch"
        raise _unsuitable(model, reason)


def make_deterministic(model: Any) -> None:
    """Turn off dropout, as `without_dropout` does; UserError if evaluation and training still differ, for example by random numbers."""
    without_dropout(model)
    with _trial_of(model):
        expected = plain_logps(model.eval(), TRIAL_GROUPS)
        gap = max(gap_beyond_rounding(model, expected, plain_logps(model.train(), TRIAL_GROUPS)) for _ in range(2))
    if gap:
        raise _unsuitable(
            model,
            f"its log-probabilities differ by {gap:.3g} nats between evaluation and training, with all dropout off",
        )


@contextmanager
def _trial_of(model: Any) -> Iterator[None]:
    training = model.training
    try:
        yield
    except ERRORS as problem:
        raise _unsuitable(model, f"a trial of it failed: {type(problem).__name__}: {first_line(problem)}") from None
    finally:
        model.train(training)


def token_by_token(model: Any, groups: Sequence[TokenizedGroup]) -> Tensor:
    """Each response's log-probability, with every token predicted by a separate forward pass over its prefix: float32[R]."""
    sums = []
    for group in groups:
        for response in group.responses:
            token_logps = []
            for position, token in enumerate(response):
                ids_1T = torch.tensor([[*group.prompt, *response[:position]]], device=unwrapped(model).device)
                logits_V = model(input_ids=ids_1T, use_cache=False).logits[0, -1].float()
                token_logps.append(logits_V.log_softmax(dim=-1)[token])
            sums.append(torch.stack(token_logps).sum())
    return torch.stack(sums)


def _unsuitable(
    model: Any, reason: str, expected: str = "a causal language model", remedy: str = "choose a model of another type"
) -> UserError:
    kind = unwrapped(model).config.model_type
    return UserError(f"a model of type {kind!r}: {reason}", expected, remedy)


def four_bit_config() -> BitsAndBytesConfig:
    """The configuration of a base model quantised to 4 bits (NF4); UserError if bitsandbytes is not installed."""
    if importlib.util.find_spec("bitsandbytes") is None:
        found = "quantise = nf4 without bitsandbytes"
        raise UserError(found, "the package bitsandbytes", "pip install 'modegraph[qlora]', or set quantise to none")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def prepare_for_adapter_training(model: Any) -> Any:
    """A 4-bit model prepared for training an adapter: frozen, with float32 for weights that are not quantised, and without repacking.

    On CPUs with AVX512-BF16, bitsandbytes repacks a layer's weights at its first pass without gradients, after which the
    layer silently blocks gradients; the layers' flag for these instructions is cleared.
    """
    from bitsandbytes.nn.modules import Linear4bit
    from peft import prepare_model_for_kbit_training

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


JITTER = ("jitter_noise", "input_jitter_noise")
"""Rates of noise at a router's input. PhiMoE's `router_jitter_noise` is not such a rate: it selects experts in evaluation, too."""


def without_dropout(model: Any) -> None:
    """Set every rate of dropout, layer dropout and router jitter to 0, in place: those of modules, and of configurations read at each pass."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        _clear_rates(module)


def _clear_rates(holder: Any) -> None:
    for name, value in list(vars(holder).items()):
        if isinstance(value, float) and ("drop" in name or name in JITTER):
            setattr(holder, name, 0.0)
        elif isinstance(value, PretrainedConfig):
            _clear_rates(value)


Precision = Literal["float32", "bfloat16"]
Quantisation = Literal["none", "nf4"]
Head = Literal["tokens", "score"]
NEW_HEADS = ("score", "classifier")
"""transformers' names for the head of a reward model, which a language model lacks."""


def load_policy(source: str, precision: Precision = "float32") -> tuple[Any, PreTrainedTokenizerBase]:
    """(model, tokenizer) ready to generate and to score: evaluation mode, dropout off, on the GPU if there is one.

    `source` is a model's folder, an adapter's folder or a hub name. UserError if it, or an adapter's base, is missing, if the
    tokenizer does not suit the model, or if the model's log-probabilities are not those of a causal model (`check_model`).
    """
    model = load_model(source, precision).to(device()).eval().requires_grad_(False)
    tokenizer = load_tokenizer(source)
    check_vocabulary(model, tokenizer, f"model {source!r}")
    check_model(model)
    return model, tokenizer


def load_model(
    source: str,
    precision: Precision,
    trainable: bool = False,
    quantisation: Quantisation = "none",
    head: Head = "tokens",
) -> Any:
    """A full model, or an adapter on its base (a PeftModel whose adapter is trained only if `trainable`).

    With `head` score it is a reward model: its output is one number per text instead of the next token's logits.
    """
    quiet_transformers()
    cached = check_source(source)
    if not is_adapter(source):
        return _load_base(source, precision, quantisation, head, cached)
    base = adapter_base(source)
    if not _is_present(base):
        found = f"{Path(source) / ADAPTER_CONFIG}: base model {base!r} does not exist in {Path.cwd()}"
        remedy = "run the command in the folder in which the adapter was trained"
        raise UserError(found, "the base model that the adapter was trained on", remedy)
    cached = check_source(base)
    check_base(source, base)
    model = load_adapter(_load_base(base, precision, quantisation, head, cached), resolve(source), base, trainable)
    # PEFT reads this when it saves, and would search the hub for a name of the catalogue.
    for config in model.peft_config.values():
        config.base_model_name_or_path = resolve(base)
    return model


def load_tokenizer(source: str) -> PreTrainedTokenizerBase:
    """A model's tokenizer, with chat template, end token and pad token; UserError if it lacks one of the first two."""
    cached = check_source(source)
    tokenizer: PreTrainedTokenizerBase = read_tokenizer(tokenizer_source(source), source, local_files_only=cached)
    if tokenizer.chat_template is None:
        remedy = "choose its instruct variant, or put a chat_template.jinja next to its tokenizer"
        raise UserError(f"{source}: its tokenizer has no chat template", "a chat (instruct) model", remedy)
    if tokenizer.eos_token is None:
        remedy = "set eos_token in its tokenizer_config.json, to the token with which the chat template ends a turn"
        raise UserError(f"{source}: its tokenizer has no end token", "a chat (instruct) model", remedy)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"
    return tokenizer


def check_source(source: str) -> bool:
    """Whether the model `source` is available from the hub's cache only, because the hub cannot be reached.

    UserError if it looks like a path and does not exist, or is a folder without a model.
    """
    if not _is_present(source):
        raise UserError(f"model {source!r}: no such folder", "a model's folder, a run or a hub name", "check the path")
    folder = Path(resolve(source))
    if not folder.exists():
        return only_in_cache(resolve(source), f"model {source!r}")
    if not (folder / "config.json").exists() and not (folder / ADAPTER_CONFIG).exists():
        found = f"model {source!r}: neither config.json nor {ADAPTER_CONFIG}"
        raise UserError(found, "a model's folder or a run", "check the path")
    return False


def device() -> str:
    """The device that models run on: "cuda" if there is a GPU, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def quiet_transformers() -> None:
    """Silence transformers' loading bars and hints, but not its errors."""
    transformers_logging.set_verbosity_error()
    quiet_loading()


def _load_base(source: str, precision: Precision, quantisation: Quantisation, head: Head, cached: bool) -> Any:
    """The full model; if quantised, prepared for training an adapter. With `cached`, it is read from the hub's cache without a request to the hub."""
    options: dict[str, Any] = {"dtype": getattr(torch, precision), "local_files_only": cached}
    if quantisation != "none":
        options["quantization_config"] = four_bit_config()
    kind = AutoModelForCausalLM
    if head == "score":
        kind = AutoModelForSequenceClassification
        options |= {"new_modules": NEW_HEADS, "num_labels": 1}
    model = load_full_model(kind, resolve(source), f"model {source!r}", **options)
    return model if quantisation == "none" else prepare_for_adapter_training(model)


def _is_present(source: str) -> bool:
    """Whether a model exists here or may be on the hub, whose names are `name` or `owner/name`."""
    return Path(resolve(source)).exists() or (source.count("/") <= 1 and not source.startswith((".", "/", "~")))

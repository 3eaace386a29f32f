"""Floating-point operations of training, as formulas over a model's shape and its input tokens.

The shape is read from the model on torch's meta device, with the run's adapter and without weights. A product with N weights takes 2N
operations per token forward, 4N backward: the 6N of Kaplan et al. 2020 (arXiv:2001.08361, §2.1). Attention takes 4 w per layer for each pair of
query and key forward and 8 w backward, with w = heads × width of a head: the 12 L H Q T of Chowdhery et al. 2022 (arXiv:2204.02311, appendix B). Norms,
softmaxes, rotations and the optimiser are omitted, as in both papers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftConfig, get_peft_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.pytorch_utils import Conv1D

from graph.errors import UserError
from graph.models.catalogue import resolve
from graph.models.checkpoint import adapter_base, is_adapter
from graph.models.load import one_line
from train.model.attention import group_span
from train.model.load import Head, check_source
from train.model.packing import TokenizedGroup
from train.run.loop import lora_config
from train.run.settings import TrainSettings

LINEAR = (nn.Linear, Conv1D)
"""Linear layers; GPT-2 has Conv1D, with the transposed weight."""
FLOAT32_BYTES = 4
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8
"""Bytes per weight: 4 bits, an 8-bit scale per 64 weights, and a float32 per 256 scales (Dettmers et al. 2023, §3)."""
EXPERTS = ("num_local_experts", "num_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "top_k_experts", "moe_topk")
"""transformers' names for the number of experts in a layer, and for the number that a token is routed to."""


@dataclass(frozen=True)
class Shape:
    """A model's dimensions. `attention_width` is heads × width of a head, summed over the layers; `frozen` and `trainable` count the weights that
    each token is multiplied by, without the head's."""

    attention_width: int
    frozen: int
    trainable: int
    head: int
    head_is_trainable: bool
    weights_bytes: float
    trainable_bytes: float


def shape_of(settings: TrainSettings, head: Head = "tokens", copies: int = 1) -> Shape:
    """The shape of the model in `settings`, with `copies` of the trained weights (TRL may need a frozen copy).

    UserError if the model has no usable configuration, or no attention heads.
    """
    model = model_without_weights(settings, head)
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    if heads is None:
        found = f"model {settings.model!r}: a model of type {config.model_type!r}, without attention heads"
        raise UserError(found, "a transformer, whose operations can be computed", "train it without a plan")
    output = _output(model, head)
    counts = {True: 0, False: 0}
    for weight, numbers in multiplied_weights(model, config):
        if weight is not output:
            counts[weight.requires_grad] += numbers
    linear = {id(module.weight) for module in model.modules() if isinstance(module, LINEAR)} - {id(output)}
    weight_bytes = [(weight, bytes_of(weight, id(weight) in linear, settings)) for weight in model.parameters()]
    trainable = sum(size for weight, size in weight_bytes if weight.requires_grad)
    return Shape(
        attention_width=sum(
            heads * (getattr(layer, "head_dim", None) or layer.hidden_size // heads)
            for layer in config.per_layer_config
        ),
        frozen=counts[False],
        trainable=counts[True],
        head=output.numel(),
        head_is_trainable=output.requires_grad,
        weights_bytes=sum(size for _, size in weight_bytes) + (copies - 1) * trainable,
        trainable_bytes=trainable,
    )


def model_without_weights(settings: TrainSettings, head: Head) -> Any:
    """The model with its adapter on the meta device; as in training, only the weights to train require a gradient."""
    adapter = is_adapter(settings.model)
    source = adapter_base(settings.model) if adapter else settings.model
    cached = check_source(source)
    kind = AutoModelForSequenceClassification if head == "score" else AutoModelForCausalLM
    with torch.device("meta"):
        try:
            config = AutoConfig.from_pretrained(resolve(source), local_files_only=cached)
            if head == "score":
                config.num_labels = 1
            model = kind.from_config(config)
        except (OSError, ValueError) as problem:
            found = f"model {source!r}: no usable configuration ({one_line(problem)})"
            raise UserError(found, "the config.json of a causal language model", "check the name") from None
        if adapter or settings.lora is not None:
            model = get_peft_model(model, _adapter_of(settings) if adapter else lora_config(settings.lora, head))
    return model


def multiplied_weights(model: Any, config: Any) -> Iterator[tuple[nn.Parameter, int]]:
    """Each weight that tokens are multiplied by, and how many of its elements count per token: of experts, only the share that a token is routed to."""
    experts, per_token = _setting(config, EXPERTS), _setting(config, EXPERTS_PER_TOKEN)
    share = (per_token or 1) / experts if experts else 1.0
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if isinstance(module, LINEAR) and name == "weight":
                yield weight, weight.numel()
            elif weight.dim() == 3:
                yield weight, round(share * weight.numel())


def _setting(config: Any, names: Sequence[str]) -> int | None:
    """The value of the first setting in `names` that a configuration has; None if it has none of them."""
    return next((value for name in names if (value := getattr(config, name, None))), None)


def bytes_of(weight: nn.Parameter, linear: bool, settings: TrainSettings) -> float:
    """The bytes of a weight: float32 if trained; else the run's precision. With nf4, NF4_BYTES if `linear` (not the head's weight), else float32."""
    if weight.requires_grad:
        return weight.numel() * FLOAT32_BYTES
    if settings.quantise == "nf4":
        return weight.numel() * (NF4_BYTES if linear else FLOAT32_BYTES)
    itemsize: int = getattr(torch, settings.precision).itemsize
    return weight.numel() * itemsize


def _output(model: Any, head: Head) -> nn.Parameter:
    """The weight of the head over the vocabulary, or that of the scoring head: the last trained matrix with one row.

    The scoring head is trained even if the other weights get an adapter.
    """
    if head == "tokens":
        weight: nn.Parameter = model.get_output_embeddings().weight
        return weight
    weights: list[nn.Parameter] = list(model.parameters())
    return next(each for each in reversed(weights) if each.dim() == 2 and len(each) == 1 and each.requires_grad)


def _adapter_of(settings: TrainSettings) -> PeftConfig:
    config = PeftConfig.from_pretrained(resolve(settings.model))
    config.inference_mode, config.init_lora_weights = False, True
    return config


@dataclass(frozen=True)
class Work:
    """The work of a pass: its tokens, those with logits, and the pairs of query and key in attention."""

    tokens: int
    predicted: int
    pairs: int

    def __add__(self, other: Work) -> Work:
        return Work(self.tokens + other.tokens, self.predicted + other.predicted, self.pairs + other.pairs)


NOTHING = Work(0, 0, 0)


def total(works: Iterable[Work]) -> Work:
    return sum(works, NOTHING)


def packed_work(group: TokenizedGroup) -> Work:
    """The work of a packed group: its prompt once (P² pairs), then each chunk of n response tokens (n (P + n) pairs), as in train/model/attention.py."""
    prompt = len(group.prompt)
    lengths = [len(response) for response in group.responses]
    sizes = [chunk.end - chunk.start for chunk in group_span(0, 0, prompt, lengths).chunks]
    return Work(group.tokens, group.scored_tokens, prompt**2 + sum(size * (prompt + size) for size in sizes))


def text_work(tokens: int, predicted: int) -> Work:
    """The work of one separate sequence: T² pairs."""
    return Work(tokens, predicted, tokens**2)


def plain_work(group: TokenizedGroup) -> Work:
    """The work of one sequence per response, each with its own copy of the prompt."""
    return total(
        text_work(len(group.prompt) + len(response), len(response) - context)
        for response, context in zip(group.responses, group.context_tokens, strict=True)
    )


def forward_flops(shape: Shape, work: Work) -> float:
    """The operations of a forward pass, including the head."""
    return layers_flops(shape, work) + 2.0 * shape.head * work.predicted


def layers_flops(shape: Shape, work: Work) -> float:
    """The operations of a forward pass up to the head."""
    weights = shape.frozen + shape.trainable
    return 2.0 * weights * work.tokens + 4.0 * shape.attention_width * work.pairs


def backward_flops(shape: Shape, work: Work) -> float:
    """The operations for the gradients of every input and of the trained weights.

    Slightly too high for an adapter: the gradients of inputs below its lowest layers are counted but not needed.
    """
    inputs = forward_flops(shape, work) + 4.0 * shape.attention_width * work.pairs
    return inputs + 2.0 * shape.trainable * work.tokens + 2.0 * shape.head * work.predicted * shape.head_is_trainable


def recomputed_flops(shape: Shape, batches: Sequence[Work], checkpointing: bool, max_stored_logits: int) -> float:
    """The forward work that is repeated for the backward pass: all layers with checkpointing, and the logits of each batch that predicts more
    than `max_stored_logits` tokens.

    Slightly too high for layers: torch stops before the last product of each.
    """
    layers = sum(layers_flops(shape, work) for work in batches) if checkpointing else 0.0
    chunked = sum(work.predicted for work in batches if work.predicted > max_stored_logits)
    return layers + 2.0 * shape.head * chunked


def training_flops(shape: Shape, batches: Sequence[Work], checkpointing: bool, max_stored_logits: int) -> float:
    """Forward, backward and repeated work of training on `batches`."""
    work = total(batches)
    recomputed = recomputed_flops(shape, batches, checkpointing, max_stored_logits)
    return forward_flops(shape, work) + backward_flops(shape, work) + recomputed

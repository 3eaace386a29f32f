"""Floating-point operations of training, as formulas over a model's shape and the tokens that it is given.

A product with a matrix of N weights takes 2N operations a token forward, 2N back to its input and 2N for its own gradient: the 6N of
Kaplan et al. 2020 (arXiv:2001.08361, §2.1). Attention takes 4 w operations a layer for each pair of a query and a key forward and 8 w back,
w being heads × their width: the 12 L H Q T of Chowdhery et al. 2022 (arXiv:2204.02311, appendix B), which counts pairs that a causal
mask hides too, as we do. Norms, softmaxes, rotations and the optimiser are left out, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from train.model.attention import place_group
from train.model.packing import TokenizedGroup
from train.plan.shape import Shape


@dataclass(frozen=True)
class Work:
    """What goes through a model: tokens, those whose logits are taken, and the pairs of a query and a key that attention computes."""

    tokens: int
    predicted: int
    pairs: int

    def __add__(self, other: Work) -> Work:
        return Work(self.tokens + other.tokens, self.predicted + other.predicted, self.pairs + other.pairs)


NOTHING = Work(0, 0, 0)


def total(works: Iterable[Work]) -> Work:
    """All of them together."""
    return sum(works, NOTHING)


def packed_work(group: TokenizedGroup) -> Work:
    """A prompt once, with its responses over it as train/model/attention.py computes them: P² pairs, and n (P + n) of a chunk of n tokens."""
    prompt = len(group.prompt)
    lengths = [len(response) for response in group.responses]
    sizes = [chunk.end - chunk.start for chunk in place_group(0, 0, prompt, lengths).chunks]
    return Work(group.tokens, sum(lengths), prompt**2 + sum(size * (prompt + size) for size in sizes))


def text_work(tokens: int, predicted: int) -> Work:
    """One sequence by itself: T² pairs."""
    return Work(tokens, predicted, tokens**2)


def plain_work(group: TokenizedGroup) -> Work:
    """A sequence for each response, each with a copy of the prompt."""
    return total(text_work(len(group.prompt) + len(response), len(response)) for response in group.responses)


def forward_flops(shape: Shape, work: Work) -> float:
    """One pass without gradients: that of the reference, or of dev rows."""
    return layers_flops(shape, work) + 2.0 * shape.head * work.predicted


def layers_flops(shape: Shape, work: Work) -> float:
    """A forward pass up to the head."""
    return 2.0 * (shape.frozen + shape.learning) * work.tokens + 4.0 * shape.layers * shape.attention_width * work.pairs


def backward_flops(shape: Shape, work: Work) -> float:
    """Gradients of every input, and of those weights alone that learn.

    Of an adapter it is a little too much: nothing below its lowest layers needs the gradients of inputs that are counted there.
    """
    inputs = forward_flops(shape, work) + 4.0 * shape.layers * shape.attention_width * work.pairs
    return inputs + 2.0 * shape.learning * work.tokens + 2.0 * shape.head * work.predicted * shape.head_learns


def again_flops(shape: Shape, batches: Sequence[Work], checkpointing: bool, kept_logits: int) -> float:
    """What is computed a second time for the gradients: all layers under checkpointing, and the logits of more than `kept_logits` tokens.

    Of layers it is a little too much: torch stops before the last product of each.
    """
    layers = sum(layers_flops(shape, work) for work in batches) if checkpointing else 0.0
    chunked = sum(work.predicted for work in batches if work.predicted > kept_logits)
    return layers + 2.0 * shape.head * chunked


def training_flops(shape: Shape, batches: Sequence[Work], checkpointing: bool, kept_logits: int) -> float:
    """Forward and backward over batches."""
    work = total(batches)
    again = again_flops(shape, batches, checkpointing, kept_logits)
    return forward_flops(shape, work) + backward_flops(shape, work) + again

"""Adapters under autocast: what goes into a LoRA layer is cast once, by autocast itself.

PEFT keeps an adapter's weights in float32 and casts each layer's input to that; autocast then casts the copy back to bfloat16. Without the
detour losses and gradients are the same to the bit, and a step of a small model takes a tenth less.
"""

from __future__ import annotations

from typing import Any

from peft.helpers import disable_input_dtype_casting


class CastingOnce:
    """Mixed into a Trainer: its steps, backward passes included (checkpointing computes activations there), run without PEFT's own casts.

    Only where autocast is on: outside of its steps a model is generated from without it.
    """

    model: Any
    args: Any

    def training_step(self, *arguments: Any, **named: Any) -> Any:
        """As the trainer's."""
        with disable_input_dtype_casting(self.model, self.args.bf16):
            return super().training_step(*arguments, **named)  # type: ignore[misc]

    def prediction_step(self, *arguments: Any, **named: Any) -> Any:
        """As the trainer's."""
        with disable_input_dtype_casting(self.model, self.args.bf16):
            return super().prediction_step(*arguments, **named)  # type: ignore[misc]

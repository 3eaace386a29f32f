"""Stand-ins for finished runs: LoRA adapters whose random weights are large enough to change the replies of their base."""

from pathlib import Path
from typing import Any

import pytest
import torch

from graph.models.catalogue import SMOLLM2, is_fetched
from train.model.load import load_model, load_tokenizer
from train.run.save import Outcome, run_record, save_run
from train.run.settings import LoraSettings, SftSettings

with_smollm2 = pytest.mark.skipif(
    not is_fetched(SMOLLM2), reason="smollm2 is not fetched: modegraph models get smollm2"
)


SMALL_SIZES = {
    "vocab_size": 640,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
"""The sizes of small models of other families, whose exports are tested."""


def random_adapter(base: str, data: Path, output: Path, size: float = 0.02, rank: int = 4, **options: Any) -> Path:
    """The folder of a finished run whose LoRA weights B are sampled from N(0, `size`²); `options` are those of PEFT's LoraConfig."""
    from peft import LoraConfig, get_peft_model

    lora = LoraSettings(rank=rank, alpha=2 * rank)
    settings = SftSettings(model=base, data=str(data), output=str(output), lora=lora)
    options = {"target_modules": "all-linear"} | options
    config = LoraConfig(r=rank, lora_alpha=2 * rank, task_type="CAUSAL_LM", **options)
    torch.manual_seed(0)
    model = get_peft_model(load_model(base, "float32"), config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=size)
    output.mkdir()
    for each in model.peft_config.values():
        each.base_model_name_or_path = base
    save_run(
        output, model, load_tokenizer(base), run_record("sft", base, str(data), settings, Outcome([], {}, 0.0)), []
    )
    return output

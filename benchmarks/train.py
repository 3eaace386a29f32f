"""Training with shared prefixes: seconds, peak memory and losses of full steps, packed against TRL and the plain layout.

Run: python -P benchmarks/train.py [--json] [--device cuda] [--size 0.5b] [--attention sdpa]. Prompts consist of 1,024
random ids and responses of 64; weights are random; reference log-probabilities are precomputed for every variant. Each variant
runs in a separate process: "trl" is DPOTrainer unchanged, "trl-completion" the same with logits only at the completions,
as train/run/loop.py sets it and as TRL does on CUDA by default; "plain-8" has one sequence per response; the packed variants contain each prompt
once. The variants of a comparison take their steps in turn, so that a slow phase of the machine slows all. A step is forward, backward, clipping and
fused AdamW (the trainers' default), in float32 on a CPU, under bfloat16 autocast on CUDA. The gain of a shared prefix is limited by
what is not shared: the head runs at every response position in each variant ("trl" on a CPU: at all positions). The small model is therefore built so that the
head's share of its weights lies between those of Qwen2.5-0.5B (27 %) and Llama-3.1-8B (7 %).
"""

import argparse
import json
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import DPOConfig, DPOTrainer

from benchmarks.report import Check, at_least, new_parser, print_report
from benchmarks.turns import Measurement, Stopwatch, largest_gap, measure_comparisons, peak_mib_on
from train.model.attention import SHARED_PREFIX, use_shared_prefix_attention
from train.model.packing import TokenizedGroup, pack_rows, packed_logps, packing_problem, plain_logps
from train.preference.groups import hard_label
from train.preference.losses import dpo_loss, mode_seeking_loss
from train.run.loop import completion_logits_only, quiet_libraries

ATTENTIONS = (SHARED_PREFIX, "sdpa", "flex_attention")
PROMPT_TOKENS, RESPONSE_TOKENS = 1024, 64
BETA, BETA_REWARD, LEARNING_RATE, WARM_STEPS = 0.1, 0.5, 1e-5, 2
COMPARISONS = (("trl", "trl-completion", "packed-2"), ("plain-8", "packed-8"))
PROMPTS = {"34m": {2: 2, 8: 1}, "0.5b": {2: 8, 8: 4}}  # prompts in a batch, by model size and K
PAD, END = "<pad>", "<end>"


def new_model(size: str, attention: str = "sdpa") -> LlamaForCausalLM | Qwen2ForCausalLM:
    """A model with random weights, the same for every variant: a Llama of 34 M parameters, a quarter of them in the head, or Qwen2.5-0.5B's configuration."""
    set_seed(0)
    if size == "34m":
        shape = {"vocab_size": 16_000, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8}
        heads = {"num_attention_heads": 8, "num_key_value_heads": 8}
        config = LlamaConfig(**shape, **heads, max_position_embeddings=2048, tie_word_embeddings=True)
        return LlamaForCausalLM._from_config(config, attn_implementation=attention)
    shape = {"vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    heads = {"num_attention_heads": 14, "num_key_value_heads": 2}
    config = Qwen2Config(**shape, **heads, max_position_embeddings=32_768, tie_word_embeddings=True)
    return Qwen2ForCausalLM._from_config(config, attn_implementation=attention)


def random_groups(prompts: int, responses: int, vocabulary: int) -> list[TokenizedGroup]:
    """Groups of random token ids, all of them at least 3, except that every response ends with the end token, 2."""
    rng = torch.Generator().manual_seed(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, vocabulary, (count,), generator=rng).tolist())

    return [
        TokenizedGroup(ids(PROMPT_TOKENS), tuple((*ids(RESPONSE_TOKENS - 1), 2) for _ in range(responses)))
        for _ in range(prompts)
    ]


def trl_steps(size: str, device: str, steps: int) -> tuple[list[float], list[float]]:
    """Seconds and losses of DPOTrainer's steps on pairs. Its rows are text: one word per id."""
    model = new_model(size)
    names = [PAD, "<unused>", END, *(f"t{number}" for number in range(3, model.config.vocab_size))]
    words = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token=PAD, eos_token=END)

    def text(ids: tuple[int, ...]) -> str:
        return "".join(f" {names[number]}" for number in ids)

    groups = random_groups(PROMPTS[size][2], 2, model.config.vocab_size)
    rows = [
        {"prompt": text(g.prompt), "chosen": text(g.responses[0]), "rejected": text(g.responses[1])} for g in groups
    ]
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        arguments = DPOConfig(
            output_dir=folder,
            beta=BETA,
            precompute_ref_log_probs=True,
            disable_dropout=True,
            max_length=None,
            per_device_train_batch_size=len(rows),
            max_steps=steps,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            gradient_checkpointing=False,
            bf16=device == "cuda",
            use_cpu=device == "cpu",
            dataloader_pin_memory=device == "cuda",
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = DPOTrainer(
            model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, callbacks=[watch]
        )
        for row, group in zip(trainer.train_dataset, groups, strict=True):
            ids = (row["prompt_ids"], row["chosen_ids"], row["rejected_ids"])
            expected = ([*group.prompt], *([*response] for response in group.responses))
            assert ids == expected, "TRL's token ids of a pair differ from ours; expected the same ids"
        trainer.train()
    return watch.seconds, [row["loss"] for row in trainer.state.log_history if "loss" in row]


def our_steps(
    size: str, device: str, steps: int, responses: int, packed: bool, attention: str
) -> tuple[list[float], list[float]]:
    """Seconds and losses of our own training loop: DPO on pairs, MS on more responses."""
    model = new_model(size, "flex_attention" if packed and attention == "flex_attention" else "sdpa").to(device).train()
    if packed and attention == SHARED_PREFIX:
        use_shared_prefix_attention(model)
    groups = random_groups(PROMPTS[size][responses], responses, model.config.vocab_size)
    rewards_QK = torch.rand(len(groups), responses, generator=torch.Generator().manual_seed(1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    if packed and (reason := packing_problem(model)):
        raise SystemExit(
            f"--attention {attention}: the model cannot be trained on packed rows: {reason}; choose another --attention"
        )
    row_tokens = groups[0].tokens

    def logps_QK() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext():
            logps = packed_logps(model, pack_rows(groups, row_tokens)) if packed else plain_logps(model, groups)
        return logps.view(len(groups), responses)

    with torch.no_grad():
        reference_QK = logps_QK()
    watch, losses = Stopwatch(), []
    for _ in range(steps):
        watch.on_step_begin()
        optimizer.zero_grad()
        ratios_QK = logps_QK() - reference_QK
        if responses == 2:
            loss = dpo_loss(ratios_QK, torch.tensor(hard_label(0.0), device=device), BETA, 1.0).mean()
        else:
            loss = mode_seeking_loss(ratios_QK, rewards_QK, BETA, BETA_REWARD).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        watch.on_step_end()
    return watch.seconds, losses


def measure(variant: str, size: str, device: str, steps: int, attention: str) -> Measurement:
    """Train one variant in this process: median seconds of a step after WARM_STEPS (in which threads and memory settle), every loss, peak MiB."""
    quiet_libraries()
    if variant.startswith("trl"):
        with completion_logits_only() if variant == "trl-completion" else nullcontext():
            seconds, losses = trl_steps(size, device, steps)
    else:
        layout, responses = variant.split("-")
        seconds, losses = our_steps(size, device, steps, int(responses), layout == "packed", attention)
    return {"seconds": median(seconds[WARM_STEPS:]), "losses": losses, "peak_mib": peak_mib_on(device)}


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--size", choices=list(PROMPTS), default="34m")
    parser.add_argument(
        "--attention", choices=ATTENTIONS, default=SHARED_PREFIX, help="attention implementation of the packed variants"
    )
    parser.add_argument("--steps", type=at_least(WARM_STEPS + 1), default=5)
    parser.add_argument(
        "--measure", choices=[variant for variants in COMPARISONS for variant in variants], help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.measure:
        options = (arguments.size, arguments.device, arguments.steps, arguments.attention)
        print(json.dumps(measure(arguments.measure, *options)))
        return 0
    variant_options = {"size": arguments.size, "device": arguments.device, "attention": arguments.attention}
    variants = measure_comparisons(__file__, COMPARISONS, variant_options, arguments.steps)
    prompts = PROMPTS[arguments.size]
    on_cuda = arguments.device == "cuda"
    figures: dict[str, float | str] = {
        "gpu": torch.cuda.get_device_name() if on_cuda else "none",
        "model": arguments.size,
        "precision": "bfloat16 autocast" if on_cuda else "float32",
        "pairs_a_batch": prompts[2],
        "prompts_a_batch_of_8": prompts[8],
    }
    for variant, measurement in variants.items():
        unit = "prompts" if variant.endswith("8") else "pairs"
        figures[f"{variant}_{unit}_per_second"] = prompts[8 if unit == "prompts" else 2] / measurement["seconds"]
        figures[f"{variant}_peak_mib"] = measurement["peak_mib"]
        figures[f"{variant}_last_loss"] = measurement["losses"][-1]
    trl, packed, plain_8, packed_8 = (variants[variant] for variant in ("trl", "packed-2", "plain-8", "packed-8"))
    figures["packed-2_against_trl-completion"] = variants["trl-completion"]["seconds"] / packed["seconds"]
    allowed = 2e-2 if on_cuda else 1e-4
    checks = [
        Check("pairs: packed, faster than TRL's DPOTrainer (×)", trl["seconds"] / packed["seconds"], 2.5, True),
        Check("8 responses: packed, faster than plain (×)", plain_8["seconds"] / packed_8["seconds"], 4.5, True),
        Check("pairs: largest gap between losses", largest_gap(trl, packed), allowed, False),
        Check("8 responses: largest gap between losses", largest_gap(plain_8, packed_8), allowed, False),
        Check("pairs: peak memory against DPOTrainer's", packed["peak_mib"] / trl["peak_mib"], 1.0, False),
    ]
    return print_report("train", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

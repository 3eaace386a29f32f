"""Training a real small model as the commands do: pairs per second and peak memory, against TRL's DPOTrainer on the same rows.

Run: python -P benchmarks/train_lora.py [--json] [--model smollm2] [--steps 4]. The model has a LoRA of rank 16, in bfloat16; prompts of
about 450 and responses of 60 to 80 tokens are made from the example documents. "packed-2" and "plain-2" are `train dpo` in either layout, "trl" is DPOTrainer
on the same pairs, with logits only at the completions; all have log π_ref precomputed. "packed-8" and "plain-8" are `train ms` on 8
responses per prompt. Variants that are compared run in separate processes and take their steps in turn; the first step is not counted. Rates are per
processor second, which other work on the machine does not affect; wall-clock rates are also reported.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from benchmarks.report import Check, at_least, new_parser, print_report
from benchmarks.turns import Measurement, Stopwatch, largest_gap, measure_comparisons, peak_mib_on
from data_synth.rows import PreferenceRow, ResponseRow, Sampling, preference_to_json, response_to_json
from graph.answer.prompt import answer_messages, format_answer
from graph.answer.template import prompt_text
from graph.shared.jsonl import write_jsonl
from graph.types import Excerpt
from train.model.load import load_tokenizer, without_dropout
from train.model.packing import HALF_PRECISION_TRIAL_NATS
from train.preference.preference import read_preference_data, response_group_trainer
from train.run.data import pair_dataset, read_preferences
from train.run.loop import completion_logits_only, load_start, lora_config, quiet_libraries, trainer_arguments
from train.run.settings import DpoSettings, LoraSettings, MsSettings

COMPARISONS = (("trl", "plain-2", "packed-2"), ("plain-8", "packed-8"))
PROMPTS = {2: 2, 8: 1}  # prompts in a step, by K
PROMPT_WORDS, RESPONSE_WORDS = 240, 38
BETA = 0.1
DOCUMENTS = Path(__file__).resolve().parent.parent / "examples" / "documents"


def words() -> list[str]:
    """The words of the example documents, in order."""
    return [word for file in sorted(DOCUMENTS.glob("*.md")) for word in file.read_text(encoding="utf-8").split()]


def write_rows(folder: Path, responses: int, count: int) -> None:
    """Write `count` rows with `responses` responses each; as pairs if `responses` is 2."""
    text_words, rows = words(), []
    for number in range(count):
        start = number * PROMPT_WORDS
        excerpts = [Excerpt(f"p{part}", "", " ".join(text_words[start + 80 * part :][:80])) for part in range(3)]
        prompt = answer_messages("What is said about the islands, and where?", excerpts)
        texts = [
            format_answer(
                " ".join(text_words[start + 7 * index :][: RESPONSE_WORDS + index % 5]) + " [1]",
                text_words[start + index],
            )
            for index in range(responses)
        ]
        common = {"id": f"r{number}", "prompt": prompt, "question_id": f"q{number}", "question": "?", "answers": ("x",)}
        common |= {"kind": "single", "split": "train", "context_size": 3, "context_ids": ("p0", "p1", "p2")}
        if responses == 2:
            pair = {"chosen": texts[0], "rejected": texts[1], "gold_in_context": 1.0, "reasoner": "rules"}
            rows.append(preference_to_json(PreferenceRow(**common, **pair)))
        else:
            rewards = {"correct": tuple(index / responses for index in range(responses))}
            sampling = {"sampling": Sampling(responses, 1.0, 80, 0), "policy": "made"}
            rows.append(response_to_json(ResponseRow(**common, **sampling, responses=tuple(texts), rewards=rewards)))
    write_jsonl(folder / "train.jsonl", rows)


def settings_of(variant: str, model: str, folder: Path, steps: int) -> MsSettings | DpoSettings:
    """Write the rows of a variant to `folder`, and return its settings."""
    responses = int(variant[-1]) if variant != "trl" else 2
    write_rows(folder, responses, PROMPTS[responses])
    kind = DpoSettings if responses == 2 else MsSettings
    return kind(
        model=model,
        data=str(folder),
        output=str(folder / "run"),
        lora=LoraSettings(rank=16, alpha=32),
        precision="bfloat16",
        layout="plain" if variant.startswith("plain") else "packed",
        batch_size=PROMPTS[responses],
        max_steps=steps,
        logging_steps=1,
        beta=BETA,
        rewards={"correct": 1.0},
    )


def our_trainer(settings: MsSettings | DpoSettings, folder: Path) -> object:
    """The trainer of `train dpo` for pairs, else of `train ms`."""
    tokenizer = load_tokenizer(settings.model)
    data = read_preference_data(settings, tokenizer)
    return response_group_trainer(settings, "dpo" if data.pairs else "ms", data, tokenizer, folder)


def trl_trainer(settings: MsSettings | DpoSettings, folder: Path) -> DPOTrainer:
    """DPOTrainer on the same model, arguments and token ids, with log π_ref precomputed."""
    tokenizer = load_tokenizer(settings.model)
    model = load_start(settings, tokenizer)
    without_dropout(model)
    rows = read_preferences(Path(settings.data) / "train.jsonl")
    texts = [
        {"prompt": prompt_text(tokenizer, row.prompt), "chosen": row.chosen, "rejected": row.rejected} for row in rows
    ]
    arguments = DPOConfig(
        **trainer_arguments(settings, folder),
        beta=settings.beta,
        precompute_ref_log_probs=True,
        disable_dropout=True,
        max_length=None,
    )
    trainer = DPOTrainer(
        model,
        args=arguments,
        train_dataset=Dataset.from_list(texts),
        processing_class=tokenizer,
        peft_config=lora_config(settings.lora),
    )
    for theirs, ours in zip(trainer.train_dataset, pair_dataset(rows, tokenizer), strict=True):
        different = [name for name in ("prompt_ids", "chosen_ids", "rejected_ids") if theirs[name] != ours[name]]
        assert not different, (
            f"{', '.join(different)} of a pair differ between TRL and `train dpo`; expected the same token ids"
        )
    return trainer


def measure(variant: str, model: str, steps: int) -> Measurement:
    """Train one variant in this process: median seconds of a step after the first, every loss, and peak MiB."""
    quiet_libraries()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder, completion_logits_only():
        settings = settings_of(variant, model, Path(folder), steps)
        make = trl_trainer if variant == "trl" else our_trainer
        trainer, watch = make(settings, Path(folder)), Stopwatch()
        trainer.add_callback(watch)
        trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    timed = {"seconds": median(watch.seconds[1:]), "processor_seconds": median(watch.processor_seconds[1:])}
    return {**timed, "losses": losses, "peak_mib": peak_mib_on(device)}


def figures_of(variant: str, measurement: Measurement) -> dict[str, float]:
    """The figures of a variant; with two responses per prompt, a prompt is a pair."""
    prompts = PROMPTS[8 if variant.endswith("8") else 2]
    return {
        f"{variant}: prompts per processor second": prompts / measurement["processor_seconds"],
        f"{variant}: prompts per wall-clock second": prompts / measurement["seconds"],
        f"{variant}: peak MiB": measurement["peak_mib"],
        f"{variant}: last loss": measurement["losses"][-1],
    }


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=at_least(2), default=4)
    parser.add_argument(
        "--measure", choices=[variant for variants in COMPARISONS for variant in variants], help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.model, arguments.steps)))
        return 0
    variants = measure_comparisons(__file__, COMPARISONS, {"model": arguments.model}, arguments.steps)
    figures: dict[str, float | str] = {"model": arguments.model, "threads": torch.get_num_threads()}
    for variant, measurement in variants.items():
        figures |= figures_of(variant, measurement)

    def faster(slow: str, quick: str) -> float:
        return variants[slow]["processor_seconds"] / variants[quick]["processor_seconds"]

    # The largest gap between losses if each sum of log-probabilities deviates by HALF_PRECISION_TRIAL_NATS.
    allowed = 2 * BETA * HALF_PRECISION_TRIAL_NATS
    checks = [
        Check("pairs: packed, faster than TRL's DPOTrainer (×)", faster("trl", "packed-2"), 1.3, True),
        Check("pairs: plain, speed relative to TRL's DPOTrainer (×)", faster("trl", "plain-2"), 0.9, True),
        Check("8 responses: packed, faster than plain (×)", faster("plain-8", "packed-8"), 2.5, True),
        Check("pairs: largest gap between losses", largest_gap(variants["trl"], variants["packed-2"]), allowed, False),
        Check(
            "8 responses: largest gap between losses",
            largest_gap(variants["plain-8"], variants["packed-8"]),
            allowed,
            False,
        ),
        Check(
            "pairs: packed, peak memory relative to TRL's DPOTrainer",
            variants["packed-2"]["peak_mib"] / variants["trl"]["peak_mib"],
            1.0,
            False,
        ),
    ]
    return print_report("train_lora", figures, checks, arguments.json)


if __name__ == "__main__":
    sys.exit(main())

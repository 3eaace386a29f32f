"""Exports a finished run for others: the adapter merged into its base in bf16, or the adapter alone, with a model card that contains no local paths.

For a merged model, the loss from merging and rounding is measured: the KL divergence between the trained and the merged model.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from graph.errors import UserError
from graph.models.catalogue import MODELS
from graph.models.checkpoint import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_base, check_base, is_adapter
from graph.models.load import one_line
from graph.shared.console import say
from train.export.divergence import MergeLoss, merge_loss, probe_rows, token_logps
from train.model.load import Precision, load_model, load_tokenizer
from train.run.record import RunRecord, model_card, read_run, write_run
from train.run.save import check_output, fresh_folder

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
USE_MERGED = """## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = (kind.from_pretrained("this repository") for kind in (AutoModelForCausalLM, AutoTokenizer))
```"""
USE_ADAPTER = """## Use

```python
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("this repository")  # fetches the base model
```"""


def export_merged(run: Path, output: Path) -> MergeLoss:
    """Write the adapter merged into its base, in bf16, with tokenizer, card and run.json to `output`; return the divergence.

    The merged model is compared with the model as trained (in its precision, on its 4-bit base if it has one). UserError if the run has no
    adapter, its base is missing or has changed, or `output` exists.
    """
    record = adapter_run(run)
    check_output(output)
    measured_on, rows = probe_rows(run, record)
    settings = record.settings
    before = token_logps(load_model(str(run), settings["precision"], quantisation=settings["quantise"]), rows)
    say(f"merging {run} into {adapter_base(str(run))}")
    with fresh_folder(output) as folder:
        merged_model(run, settings["precision"]).to(torch.bfloat16).save_pretrained(folder)
        load_tokenizer(str(run)).save_pretrained(folder)
        after = token_logps(load_model(str(folder), "bfloat16"), rows)
        loss = merge_loss(before, after, rows, measured_on)
        sections = [USE_MERGED, _loss_section(loss)]
        write_public(folder, public_record(run, record), hub_base(run, record), sections, False)
    return loss


def export_adapter(run: Path, output: Path, base: str = "") -> str:
    """Write the adapter alone with tokenizer, card and run.json to `output`; return the name of its base: `base` if given, else its hub name.

    UserError as in `export_merged`, and if `base` is empty and the record contains no hub name for the base.
    """
    record = adapter_run(run)
    check_output(output)
    check_base(str(run), adapter_base(str(run)))
    name = base or hub_base(run, record)
    if not name:
        local = adapter_base(str(run))
        original = MODELS[local].hub if local in MODELS else "OWNER/NAME"
        found = f"{run}: no hub name is recorded for its base model {local!r}"
        raise UserError(found, "a base that others can fetch", f"name it with --hub-base {original}")
    with fresh_folder(output) as folder:
        shutil.copyfile(run / ADAPTER_WEIGHTS, folder / ADAPTER_WEIGHTS)
        config = json.loads((run / ADAPTER_CONFIG).read_text(encoding="utf-8")) | {"base_model_name_or_path": name}
        (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        load_tokenizer(str(run)).save_pretrained(folder)
        write_public(folder, replace(public_record(run, record), base_model=name), name, [USE_ADAPTER], True)
    return name


def check_hub_names(*names: str) -> None:
    """UserError for a non-empty name that is not of the form OWNER/NAME, or is a local path."""
    for name in filter(None, names):
        if not HUB_NAME.fullmatch(name) or Path(name).exists():
            expected = "OWNER/NAME, and no local file or folder of that name"
            raise UserError(f"{name!r} is not a name on the hub", expected, "check the spelling")


def push_to_hub(folder: Path, repo: str) -> None:
    """Upload an exported folder to a repository, created as a private one if it does not exist; UserError if that fails, with the folder unchanged."""
    from httpx2 import HTTPError
    from huggingface_hub import create_repo, upload_folder

    try:
        create_repo(repo, private=True, exist_ok=True)
        upload_folder(repo_id=repo, folder_path=folder)
    except (HTTPError, OSError, ValueError) as problem:
        found = f"--push {repo}: {one_line(problem)}"
        remedy = f"{folder} is complete: upload it later"
        raise UserError(found, "a reachable hub and a token with write access", remedy) from None


def language_run(run: Path) -> RunRecord:
    """The record of a finished run of a language model; UserError for any other folder."""
    record = read_run(run)
    if record.stage == "reward":
        raise UserError(f"{run}: a reward model", "a run of sft, ms or dpo", "use it with `train score`")
    return record


def adapter_run(run: Path) -> RunRecord:
    """The record of a finished run that trained an adapter of a language model; UserError for any other folder."""
    record = language_run(run)
    if not is_adapter(str(run)):
        raise UserError(f"{run}: a full model, without an adapter", "a run with lora", "share the folder as it is")
    return record


def merged_model(run: Path, precision: Precision) -> Any:
    """The full model in float32: W in the `precision` of training, plus (α / r) B A (Hu et al. 2022, Eq. 3)."""
    try:
        return load_model(str(run), precision).float().merge_and_unload(safe_merge=True)
    except ValueError as problem:
        raise UserError(f"{run}: {problem}", "finite weights", "train again") from None


def base_name(run: Path, record: RunRecord) -> str:
    """The name or folder of an adapter's base model; for a full model, of the model from which training started."""
    return adapter_base(str(run)) if is_adapter(str(run)) else record.base_model


def hub_base(run: Path, record: RunRecord) -> str:
    """The base model's name on the hub; "" for a local folder or a name of the catalogue (the record contains the fingerprint of its weights)."""
    base = base_name(run, record)
    return base if record.base_weights == base else ""


def public_record(run: Path, record: RunRecord) -> RunRecord:
    """The record with folders reduced to their names; names on the hub are left as they are."""
    hub = hub_base(run, record)

    def public(value: Any) -> Any:
        on_hub = value in (hub, record.reference_name)
        return Path(value).name if isinstance(value, str) and not on_hub else value

    settings = {key: public(value) for key, value in record.settings.items()}
    base = hub or Path(base_name(run, record)).name
    return replace(record, base_model=base, data=Path(record.data).name, settings=settings)


def write_public(folder: Path, record: RunRecord, hub: str, sections: Sequence[str], adapter: bool) -> None:
    """Write the card and the record of an export: of an adapter alone, or of a full model."""
    (folder / "README.md").write_text(model_card(record, adapter, hub, sections), encoding="utf-8")
    write_run(folder, record)


def _loss_section(loss: MergeLoss) -> str:
    return (
        "## Merge\n\nThe adapter was added to the base's weights and the sum rounded to bf16. "
        f"Over {loss.tokens:,} completion tokens of {loss.measured_on}: KL(adapter on base ‖ merged) "
        f"{loss.kl_nats_per_token:.3g} nats per token, largest difference in a token's log-probability {loss.largest_gap_nats:.3g} nats."
    )

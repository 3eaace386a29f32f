"""A finished run as a folder for Ollama and llama.cpp: one GGUF file, an adapter merged into it, and a Modelfile.

What 16 or 8 bits changed is measured on the file itself, read back by transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graph.checkpoints.adapter import adapter_base, is_adapter
from graph.pretrained.convert import read_gguf
from graph.shared.console import say
from graph.shared.errors import UserError
from train.export.divergence import MergeLoss, merge_loss, probe_rows, same_top_token, token_logps
from train.export.export import language_run, merged, public_record, write_public
from train.export.gguf_file import GgufType, check_architecture, write_gguf
from train.export.ollama import MODELFILE, modelfile
from train.model.logps import TokenizedRow
from train.model.models import load_model, load_tokenizer
from train.run.save import check_output, fresh_folder

USE_GGUF = f"""## Use

```console
$ ollama create NAME --file {MODELFILE}
```

or open the file with llama.cpp or LM Studio, with the system prompt of `{MODELFILE}`."""


@dataclass(frozen=True)
class GgufExport:
    """The file, what it lost over `tokens` completion tokens (see MergeLoss), and whether the Modelfile has a template.

    `same_top_token` is the share of those tokens at which the most likely one is still the same.
    """

    file: str
    megabytes: float
    kl_nats_per_token: float
    largest_gap_nats: float
    same_top_token: float
    tokens: int
    measured_on: str
    template: bool


def export_gguf(run: Path, output: Path, kind: GgufType) -> GgufExport:
    """The model of a run, its adapter merged, as GGUF with Modelfile, card and run.json in `output`.

    UserError for a run that is no language model, an architecture or tokenizer that GGUF cannot hold here, or a place that is taken.
    """
    record = language_run(run)
    check_output(output)
    precision = record.settings.get("precision", "float32")
    tokenizer = load_tokenizer(str(run))
    measured_on, rows = probe_rows(run, record)
    trained = load_model(str(run), precision, quantisation=record.settings.get("quantise", "none"))
    check_architecture(trained.config.architectures[0], trained.config)
    before = token_logps(trained, rows)
    name = f"model-{kind}.gguf"
    with fresh_folder(output) as folder:
        whole = trained
        if is_adapter(str(run)):
            del trained, whole
            say(f"merging {run} into {adapter_base(str(run))}")
            whole = merged(run, precision)
        write_gguf(whole, tokenizer, folder / name, kind, run.resolve().name)
        text, has_template = modelfile(name, tokenizer, whole.config.max_position_embeddings)
        del whole
        after = _read_back(folder / name, tokenizer, rows)
        loss = merge_loss(before, after, rows, measured_on)
        made = GgufExport(
            name,
            round((folder / name).stat().st_size / 1e6, 1),
            loss.kl_nats_per_token,
            loss.largest_gap_nats,
            same_top_token(before, after),
            loss.tokens,
            measured_on,
            has_template,
        )
        (folder / MODELFILE).write_text(text, encoding="utf-8")
        write_public(folder, public_record(run, record), "", [USE_GGUF, _loss_section(kind, loss, made)])
    if not has_template:
        say(
            f"{MODELFILE}: without a TEMPLATE, since the model's own is not a plain sequence of turns; write one by hand"
        )
    return made


def _read_back(file: Path, tokenizer: Any, rows: list[TokenizedRow]) -> list[torch.Tensor]:
    """log π of the file's model at each completion token; UserError when the file's tokens or template are others."""
    model, found = read_gguf(file, torch.float32)
    texts = [tokenizer.decode(row.ids) for row in rows]
    ids = [[each(text, add_special_tokens=False)["input_ids"] for text in texts] for each in (tokenizer, found)]
    if ids[0] != ids[1] or found.chat_template != tokenizer.chat_template:
        what = "tokens" if ids[0] != ids[1] else "chat template"
        raise UserError(f"{file.name}: reads back with other {what}", "those of the run", "export it with --merge")
    return token_logps(model, rows)


def _loss_section(kind: str, loss: MergeLoss, made: GgufExport) -> str:
    return (
        f"## Precision\n\nWeights are stored as {kind.upper()}. Over {loss.tokens:,} completion tokens of {loss.measured_on}: "
        f"KL(as trained ‖ this file) {loss.kl_nats_per_token:.3g} nats a token, largest gap of a token's log-probability "
        f"{loss.largest_gap_nats:.3g} nats, the most likely token the same at {made.same_top_token:.1%}."
    )

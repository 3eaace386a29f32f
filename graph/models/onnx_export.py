"""Exports a sentence encoder to ONNX Runtime (graph/models/onnx_encoder.py), and checks that the export gives the same vectors."""

import logging
import warnings
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from graph.models.onnx_encoder import ABOUT, FORMAT, INPUT, MODEL, OUTPUT, TOKENIZER, OnnxEncoder, folder_of
from graph.shared.console import say
from graph.shared.jsonl import write_json

MAX_DIFFERENCE = 1e-5
PROBES = (
    "Who?",
    "Which town on the coast had a ferry before the bridge of 1911 was built, and who paid for it?",
    "Ärger mit 東京 — naïve “quotes” 🙂 and a number, 3.14",
    "a long passage about nothing in particular, with words and more words, " * 80,
)
"""A short question, a typical one, other scripts, and a text that is truncated."""


class SingleText(torch.nn.Module):
    """A SentenceTransformer, including pooling, as a function of the token ids of one text."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.features = dict(model.preprocess([PROBES[0]]))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        inputs = {INPUT: input_ids, "attention_mask": torch.ones_like(input_ids)}
        if "token_type_ids" in self.features:
            inputs["token_type_ids"] = torch.zeros_like(input_ids)
        vector: torch.Tensor = self.model({**self.features, **inputs})["sentence_embedding"]
        return vector


def export_encoder(model: SentenceTransformer, tokenizer_file: Path, fingerprint: str, prompt: str) -> None:
    """Write the export of `model`; if the export is unusable, record that, so that it is not attempted again.

    Does nothing if the cache is not writable.
    """
    target = folder_of(fingerprint)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(mkdtemp(dir=target.parent))
    except OSError:
        return
    say("preparing the encoder for questions (once, about ten seconds)")
    try:
        usable = export_and_compare(model, tokenizer_file, scratch, prompt)
        size = (scratch / MODEL).stat().st_size if usable else 0
        write_json(scratch / ABOUT, {"format": FORMAT, "usable": usable, "model_bytes": size})
        if not usable:
            (scratch / MODEL).unlink(missing_ok=True)
            problem = "the encoder could not be exported, or the export gives different vectors"
            say(f"{problem}; questions are encoded with torch")
        rmtree(target, ignore_errors=True)
        scratch.rename(target)
    except OSError:  # The disk is full, or another process has moved its export to `target`.
        return
    finally:
        rmtree(scratch, ignore_errors=True)


def export_and_compare(model: SentenceTransformer, tokenizer_file: Path, folder: Path, prompt: str) -> bool:
    """Write the export into `folder`; True if that succeeds and `same_vectors` holds. OSErrors are raised, other errors give False."""
    try:
        write_export(model, tokenizer_file, folder)
        return same_vectors(model, folder, prompt)
    except OSError:
        raise
    # The errors of torch's exporter, the tokenizer and ONNX Runtime have no common base class; the export is optional.
    except Exception:  # noqa: BLE001
        return False


def write_export(model: SentenceTransformer, tokenizer_file: Path, folder: Path) -> None:
    """Write the model, exported by torch, and its tokenizer into `folder`."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(model.max_seq_length)
    tokenizer.save(str(folder / TOKENIZER))
    module = SingleText(model).eval()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    width = torch.export.Dim("width", min=2, max=model.max_seq_length)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (module.features[INPUT],),
            folder / MODEL,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes={INPUT: {1: width}},
            external_data=False,
            verbose=False,
        )


def same_vectors(model: SentenceTransformer, folder: Path, prompt: str) -> bool:
    """Whether the export's vectors equal those of `encode` with that prompt within MAX_DIFFERENCE; they differ if the pooling excludes the prompt."""
    exported: Any = OnnxEncoder(folder).encode([prompt + probe for probe in PROBES])
    expected = model.encode(list(PROBES), prompt=prompt, show_progress_bar=False)
    return exported.shape == expected.shape and bool(np.abs(exported - expected).max() < MAX_DIFFERENCE)

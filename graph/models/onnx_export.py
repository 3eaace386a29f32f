"""Writes a sentence encoder for ONNX Runtime (graph/models/onnx_encoder.py), and checks that its vectors are the same."""

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

MOST_DIFFERENCE = 1e-5
PROBES = (
    "Who?",
    "Which town on the coast had a ferry before the bridge of 1911 was built, and who paid for it?",
    "Ärger mit 東京 — naïve “quotes” 🙂 and a number, 3.14",
    "a long passage about nothing in particular, with words and more words, " * 80,
)
"""A short question, a usual one, other scripts, and one that is cut."""


class OfOneText(torch.nn.Module):
    """A whole SentenceTransformer, pooling and all, as a function of the ids of one text."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.features = dict(model.preprocess([PROBES[0]]))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        filled = {INPUT: input_ids, "attention_mask": torch.ones_like(input_ids)}
        if "token_type_ids" in self.features:
            filled["token_type_ids"] = torch.zeros_like(input_ids)
        vector: torch.Tensor = self.model({**self.features, **filled})["sentence_embedding"]
        return vector


def export_encoder(model: SentenceTransformer, tokenizer_file: Path, fingerprint: str, prompt: str) -> None:
    """Write the export of `model`; where it cannot be used, a note that says so, so that nobody tries again.

    Nothing where the cache cannot be written.
    """
    target = folder_of(fingerprint)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(mkdtemp(dir=target.parent))
    except OSError:
        return
    say("preparing the encoder for questions (once, ten seconds)")
    try:
        usable = can_be_used(model, tokenizer_file, scratch, prompt)
        size = (scratch / MODEL).stat().st_size if usable else 0
        write_json(scratch / ABOUT, {"format": FORMAT, "usable": usable, "model_bytes": size})
        if not usable:
            (scratch / MODEL).unlink(missing_ok=True)
            say("it cannot be exported with equal vectors: torch encodes its questions")
        rmtree(target, ignore_errors=True)
        scratch.rename(target)
    except OSError:  # The disk is full, or another process has put its own export there.
        return
    finally:
        rmtree(scratch, ignore_errors=True)


def can_be_used(model: SentenceTransformer, tokenizer_file: Path, folder: Path, prompt: str) -> bool:
    """Write the export into `folder`; whether that went well, and it gives the vectors that the model's own `encode` does."""
    try:
        write_export(model, tokenizer_file, folder)
        return same_vectors(model, folder, prompt)
    except OSError:
        raise
    # What torch's exporter, the tokenizer and ONNX Runtime raise has no other base; without the export all goes on as before.
    except Exception:  # noqa: BLE001
        return False


def write_export(model: SentenceTransformer, tokenizer_file: Path, folder: Path) -> None:
    """Have torch write the model into `folder`, its tokenizer beside it."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(model.max_seq_length)
    tokenizer.save(str(folder / TOKENIZER))
    one = OfOneText(model).eval()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    width = torch.export.Dim("width", min=2, max=model.max_seq_length)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            one,
            (one.features[INPUT],),
            folder / MODEL,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes={INPUT: {1: width}},
            external_data=False,
            verbose=False,
        )


def same_vectors(model: SentenceTransformer, folder: Path, prompt: str) -> bool:
    """Whether the export gives the vectors that the model's own `encode` does with that prompt, which its pooling may leave out."""
    exported: Any = OnnxEncoder(folder).encode([prompt + probe for probe in PROBES])
    own = model.encode(list(PROBES), prompt=prompt, show_progress_bar=False)
    return exported.shape == own.shape and bool(np.abs(exported - own).max() < MOST_DIFFERENCE)

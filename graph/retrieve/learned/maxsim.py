"""The cross-encoder of a cross selector as a model: both texts in one go through the encoder, then every word of the question looks
for its best match among the words of the proposition.

The words have seen the other text by then, so the match is not the late interaction of ColBERT (Khattab and Zaharia 2020, Eq. 3),
whose form it has. A classification head on the first token would start from nothing; this one starts as a fair ranking.
Imported only where a cross selector is trained or opened.

Legend: B pairs, W words of a pair, D dims.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Module, Transformer
from torch import Tensor, nn

from graph.errors import UserError

HEAD_FOLDER, WEIGHTS = "head", "model.safetensors"
START_SCALE, START_BIAS = 10.0, -5.0
"""The first logits: between -5, for words that are strangers, and 5, for words that are the same."""
FAR = -1e4


class MaxSim(Module):  # type: ignore[misc]
    """scale · Σ_i a_i max_j cos(h_i, h_j) + bias over words i of the question, j of the proposition; a = softmax(h w), at first equal."""

    config_keys: ClassVar[list[str]] = ["dims", "special_ids"]

    def __init__(self, dims: int, special_ids: list[int]) -> None:
        super().__init__()
        self.dims, self.special_ids = dims, special_ids
        self.weight = nn.Linear(dims, 1, bias=False)
        nn.init.zeros_(self.weight.weight)
        self.scale = nn.Parameter(torch.tensor(START_SCALE))
        self.bias = nn.Parameter(torch.tensor(START_BIAS))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `scores` [B, 1], logits."""
        special = torch.tensor(self.special_ids, device=features["input_ids"].device)
        word_BW = features["attention_mask"].bool() & ~torch.isin(features["input_ids"], special)
        second_BW = features["token_type_ids"].bool()
        hidden_BWD = features["token_embeddings"]
        weight_BW = self.weight(hidden_BWD).squeeze(-1)
        best_B = match(hidden_BWD, weight_BW, word_BW & ~second_BW, word_BW & second_BW)
        return {**features, "scores": (self.scale * best_B + self.bias).unsqueeze(1)}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Its numbers in safetensors."""
        self.save_config(output_path)
        self.save_torch_weights(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **_: Any) -> MaxSim:
        """As the trainer opens its own checkpoints."""
        folder = Path(model_name_or_path) / subfolder
        head = cls(**cls.load_config(str(folder)))
        head.load_state_dict(load_file(folder / WEIGHTS))
        return head


def match(hidden_BWD: Tensor, weight_BW: Tensor, question_BW: Tensor, proposition_BW: Tensor) -> Tensor:
    """Σ_i a_i max_j cos(h_i, h_j): [B]; −1 where the proposition has no words, 0 where the question has none."""
    unit_BWD = nn.functional.normalize(hidden_BWD, dim=-1)
    cosine_BWW = (unit_BWD @ unit_BWD.transpose(1, 2)).masked_fill(~proposition_BW.unsqueeze(1), -1)
    share_BW = weight_BW.masked_fill(~question_BW, FAR).softmax(dim=1) * question_BW
    return (cosine_BWW.max(dim=2).values * share_BW).sum(dim=1)


def start_model(folder: Path, max_length_tokens: int, device: str) -> CrossEncoder:
    """The sentence encoder in `folder` with a new head. UserError for an encoder that does not tell two texts apart."""
    encoder = Transformer(str(folder), max_seq_length=max_length_tokens, model_kwargs={"use_safetensors": True})
    if "token_type_ids" not in encoder.tokenizer.model_input_names:
        raise UserError(
            f"{folder}: an encoder without token types", "one of BERT's kind, such as minilm", "name another start"
        )
    head = MaxSim(encoder.get_embedding_dimension(), list(encoder.tokenizer.all_special_ids))
    return as_cross_encoder(encoder, head, device)


def save_model(model: CrossEncoder, folder: Path) -> None:
    """Encoder and head, all numbers in safetensors."""
    model[0].save(str(folder))
    (folder / HEAD_FOLDER).mkdir()
    model[1].save(str(folder / HEAD_FOLDER))


def load_model(folder: Path, device: str) -> CrossEncoder:
    """What `save_model` wrote; the classes are these, whatever the folder names. Raises what the libraries raise for a broken one."""
    encoder = Transformer.load(str(folder), model_kwargs={"use_safetensors": True}, local_files_only=True)
    return as_cross_encoder(encoder, MaxSim.load(str(folder), HEAD_FOLDER), device)


def as_cross_encoder(encoder: Transformer, head: MaxSim, device: str) -> CrossEncoder:
    """Both as one model whose `predict` gives logits."""
    encoder.model.config.num_labels = 1
    return CrossEncoder(modules=[encoder, head], activation_fn=nn.Identity(), device=device)

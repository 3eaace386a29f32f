"""A sentence encoder of BERT's kind small enough to train in a second, with a vocabulary of the small world."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("what", "is", "it", "a", "bb", "train", "dev", "test", "-", ".", "?", "yes", "not")


def tiny_encoder(folder: Path, token_types: bool = True) -> Path:
    """Two layers of width 16 and their tokenizer, from a fixed seed; where a word stands counts for little."""
    words = [*SPECIAL, *WORDS, *(f"{sharp}{digit}" for sharp in ("", "##") for digit in range(10))]
    vocabulary = {word: number for number, word in enumerate(words)}
    inner = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    inner.post_processor = BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    names = ["input_ids", *(["token_type_ids"] if token_types else []), "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=names,
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=64, **sizes))
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.mul_(0.05)
        model.embeddings.token_type_embeddings.weight.mul_(0.05)
    model.save_pretrained(folder)
    return folder

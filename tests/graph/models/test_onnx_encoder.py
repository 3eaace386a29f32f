"""The encoder in ONNX Runtime: it computes the same vectors as torch, is exported once, and is not used where its vectors would differ. The
tests use the real MiniLM.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph.models.encoder import MAX_SINGLE_TEXTS, MINILM, SentenceEncoder, encoder_folder, prepare_for_questions
from graph.models.onnx_encoder import ABOUT, MODEL, TOKENIZER, OnnxEncoder, folder_of, open_exported, read_about

QUESTIONS = [
    "Who built the lighthouse of Port Ellery?",
    "W",
    "東京の電車は何時に出ますか 🙂",
    "half a page of words. " * 200,
]


@pytest.fixture(scope="module", autouse=True)
def no_bfloat16() -> Iterator[None]:
    """A CPU on which torch computes in float32, as ONNX Runtime does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graph.models.encoder.computes_in_bfloat16", lambda: False)
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that contains MiniLM's export."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        prepare_for_questions(MINILM)
    return folder


@pytest.fixture
def encoder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> SentenceEncoder:
    """MiniLM, freshly opened."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return SentenceEncoder(encoder_folder(MINILM))


@pytest.fixture(scope="module")
def torch_model(no_bfloat16: None) -> Any:
    """Torch's MiniLM, for tests that do not check whether it is loaded."""
    return SentenceEncoder(encoder_folder(MINILM))._model


def encode_with_torch(encoder: SentenceEncoder, texts: list[str]) -> np.ndarray:
    """Torch's vectors of the texts: torch encodes every batch of more than MAX_SINGLE_TEXTS texts."""
    return encoder.encode([*texts, *["another"] * MAX_SINGLE_TEXTS])[: len(texts)]


def test_a_few_texts_get_the_vectors_that_torch_computes(encoder: SentenceEncoder) -> None:
    assert isinstance(encoder._exported, OnnxEncoder)
    np.testing.assert_allclose(encoder.encode(QUESTIONS), encode_with_torch(encoder, QUESTIONS), atol=1e-6)


def test_the_export_is_made_once(encoder: SentenceEncoder) -> None:
    modified_ns = (folder_of(encoder.fingerprint) / MODEL).stat().st_mtime_ns
    encoder.prepare_for_questions()
    assert "_model" not in encoder.__dict__, "torch's model was loaded although it is not needed"
    assert (folder_of(encoder.fingerprint) / MODEL).stat().st_mtime_ns == modified_ns


def test_encoding_a_question_does_not_import_torch(encoder: SentenceEncoder) -> None:
    program = "import sys; from graph.models.encoder import open_encoder; print(open_encoder('minilm').encode_queries(['Who?']).shape, 'torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split("\n")[0] == "(1, 384) False"


@pytest.mark.parametrize(
    "change", ["truncated", "garbled", "not usable", "no json", "another format", "no description"]
)
def test_a_damaged_or_unusable_export_is_ignored(
    encoder: SentenceEncoder, torch_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    whole = folder_of(encoder.fingerprint)
    about = json.loads((whole / ABOUT).read_text())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = folder_of(encoder.fingerprint)
    folder.mkdir(parents=True)
    model = (whole / MODEL).read_bytes()
    (folder / MODEL).write_bytes({"truncated": model[:-1], "garbled": b"x" * len(model)}.get(change, model))
    changed = {"not usable": about | {"usable": False}, "another format": about | {"format": "another"}}.get(
        change, about
    )
    if change != "no description":
        (folder / ABOUT).write_text("{" if change == "no json" else json.dumps(changed))
    assert open_exported(encoder.fingerprint) is None
    assert (read_about(encoder.fingerprint) is None) == (change not in ("not usable", "garbled"))
    encoder.__dict__["_model"] = torch_model
    assert encoder.encode(["Who?"]).shape == (1, 384)


def test_an_encoder_whose_vectors_would_differ_runs_in_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This encoder excludes the tokens of its prompt from the mean, which the export does not support."""
    own = tmp_path / "encoder"
    own.mkdir()
    for file in encoder_folder(MINILM).rglob("*"):
        if file.is_file():
            target = own / file.relative_to(encoder_folder(MINILM))
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    settings = own / "config_sentence_transformers.json"
    for file, values in (
        (settings, {"prompts": {"query": "query: "}}),
        (own / "1_Pooling" / "config.json", {"include_prompt": False}),
    ):
        file.write_text(json.dumps(json.loads(file.read_text()) | values))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    encoder = SentenceEncoder(own)
    encoder.prepare_for_questions()
    assert "questions are encoded with torch" in capsys.readouterr().err
    about = read_about(encoder.fingerprint)
    assert about is not None and not about["usable"]
    assert encoder._exported is None and not (folder_of(encoder.fingerprint) / MODEL).exists()
    np.testing.assert_allclose(encoder.encode(["Who?"]), encode_with_torch(encoder, ["Who?"]), atol=1e-6)


def test_without_the_export_libraries_nothing_is_exported_and_torch_loads_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("graph.models.onnx_encoder.REQUIRED_PACKAGES", ("onnx", "no_such_library"))
    encoder = SentenceEncoder(encoder_folder(MINILM))
    encoder.prepare_for_questions()
    assert "_model" not in encoder.__dict__ and not any(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    encoder = SentenceEncoder(encoder_folder(MINILM))
    encoder.prepare_for_questions()
    assert encoder.encode(["Who?"]).shape == (1, 384)


def export(encoder: SentenceEncoder, torch_model: Any, monkeypatch: pytest.MonkeyPatch, model: bytes) -> None:
    """Export the encoder, with `model` instead of the file that torch would write."""
    from graph.models import onnx_export

    monkeypatch.setattr(
        onnx_export, "write_export", lambda torch_model, file, folder: (folder / MODEL).write_bytes(model)
    )
    encoder.__dict__["_model"] = torch_model
    onnx_export.export_encoder(torch_model, encoder_folder(MINILM) / TOKENIZER, encoder.fingerprint, "")


@pytest.mark.parametrize("model", [b"no model at all", b""])
def test_an_export_that_onnx_runtime_refuses_is_not_used(
    torch_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: bytes
) -> None:
    """ONNX Runtime's errors derive directly from Exception."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    encoder = SentenceEncoder(encoder_folder(MINILM))
    export(encoder, torch_model, monkeypatch, model)
    about = read_about(encoder.fingerprint)
    assert about is not None and not about["usable"] and "questions are encoded with torch" in capsys.readouterr().err
    assert encoder.encode(["Who?"]).shape == (1, 384)


def test_an_occupied_export_folder_is_not_an_error(
    torch_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens when another process has put its own export there first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    encoder = SentenceEncoder(encoder_folder(MINILM))
    place = folder_of(encoder.fingerprint)
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    export(encoder, torch_model, monkeypatch, b"")
    assert list(place.parent.iterdir()) == [place], "no other file should be left"


def test_torch_encodes_the_question_if_the_export_fails() -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

    class FailingExport:
        def encode(self, texts: list[str]) -> np.ndarray:
            raise RuntimeException("[ONNXRuntimeError] : 6 : non-zero status code returned")

    encoder = SentenceEncoder(encoder_folder(MINILM))
    encoder.__dict__["_exported"] = FailingExport()
    np.testing.assert_allclose(encoder.encode(["Who?"]), encode_with_torch(encoder, ["Who?"]), atol=1e-6)
    assert encoder._exported is None


def test_where_torch_computes_in_bfloat16_only_questions_are_encoded_in_float32(
    encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = encoder.encode_queries(QUESTIONS)
    monkeypatch.setattr("graph.models.encoder.computes_in_bfloat16", lambda: True)
    rounding = SentenceEncoder(encoder_folder(MINILM))
    np.testing.assert_array_equal(rounding.encode_queries(QUESTIONS), exact)
    rounded = rounding.encode(QUESTIONS)
    assert 1e-5 < np.abs(rounded - exact).max() and (rounded * exact).sum(axis=1).min() > 0.999

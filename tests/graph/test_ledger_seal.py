"""The call ledger in the life of an index: sealed by every run, its damage found, and its sound calls carried over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph.build import build_index
from graph.errors import UserError
from graph.lifecycle import delete_documents, repair_index, resume_build, verify_index
from graph.seal import LEDGER, SET_ASIDE
from graph.settings import IndexSettings
from graph.types import Document
from modegraph import open_model
from tests.fakes import ChatServer, HashEncoder, chat_server, extraction_reply

MANY = [
    Document(f"d{n:03}", f"Ship {n}", f"Ship {n} was built in {1800 + n} by the yard of Quill and sailed to Tarn.")
    for n in range(60)
]


def encoder(spec: str) -> HashEncoder:
    return HashEncoder()


def build(folder: Path, server: ChatServer, documents: list[Document] = MANY) -> None:
    settings = IndexSettings(extractor="llm", extractor_model=f"openai:m@{server.url}", infer_domain=False)
    build_index(folder, documents, settings, encoder, open_model)


def found_in(folder: Path) -> list[tuple[str, str]]:
    return [(damage.file, damage.repair) for damage in verify_index(folder)]


def test_every_run_leaves_the_ledger_sealed(tmp_path: Path) -> None:
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(tmp_path / "i", server, MANY[:5])
        assert (tmp_path / "i" / LEDGER).exists() and verify_index(tmp_path / "i") == []
        build(tmp_path / "i", server, MANY[:9])
        assert verify_index(tmp_path / "i") == []
        delete_documents(tmp_path / "i", ["d001"], encoder, open_model)
        assert verify_index(tmp_path / "i") == []
        with pytest.raises(UserError):
            delete_documents(tmp_path / "i", ["unknown"], encoder, open_model)
        assert verify_index(tmp_path / "i") == []


def flip(share: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        place = min(int(len(data) * share), len(data) - 1)
        return data[:place] + bytes([data[place] ^ 0x11]) + data[place + 1 :]

    return change


@pytest.mark.parametrize(
    "damage", [flip(0), flip(0.3), flip(0.6), flip(1), lambda data: data[:-1], lambda data: data[: len(data) // 2]]
)
def test_damage_is_found_and_repair_keeps_the_sound_calls(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    folder = tmp_path / "i"
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(folder, server)
        delete_documents(folder, [document.source for document in MANY[1:]], encoder, open_model)
        whole = (folder / LEDGER).read_bytes()
        (folder / LEDGER).write_bytes(damage(whole))
        assert found_in(folder) == [(LEDGER, f"modegraph repair {folder}")]
        with pytest.raises(UserError, match=f"{LEDGER}: its bytes are not.*modegraph repair"):
            build(folder, server)
        assert [found.file for found in repair_index(folder, encoder, open_model)] == [LEDGER]
        assert (folder / (LEDGER + SET_ASIDE)).read_bytes() == damage(whole)
        server.asked.clear()
        build(folder, server)
        assert len(server.asked) < len(MANY) or damage(whole)[:16] != whole[:16] or len(damage(whole)) < len(whole)
        assert verify_index(folder) == []
        server.asked.clear()
        delete_documents(folder, ["d007"], encoder, open_model)
        build(folder, server)
        assert server.asked == []


def test_one_changed_row_costs_one_call(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(folder, server)
        delete_documents(folder, [document.source for document in MANY[1:]], encoder, open_model)
        data = (folder / LEDGER).read_bytes()
        assert data.count(b"sailed to Tarn") >= len(MANY)
        place = data.rindex(b"sailed to Tarn")
        (folder / LEDGER).write_bytes(data[:place] + b"S" + data[place + 1 :])
        repair_index(folder, encoder, open_model)
        server.asked.clear()
        build(folder, server)
        assert len(server.asked) <= 1


def test_a_run_cut_short_leaves_no_seal_and_resume_sets_it(tmp_path: Path) -> None:
    folder, up = tmp_path / "i", 20

    def say(body: dict[str, Any], number: int) -> Any:
        return extraction_reply(body) if number <= up else (401, "{}")

    with chat_server(say) as server:
        with pytest.raises(UserError, match="status 401"):
            build(folder, server)
        assert (LEDGER, f"modegraph resume {folder}") in found_in(folder)
        up = 1000
        resume_build(folder, encoder, open_model)
    assert verify_index(folder) == []


def test_a_changed_seal_is_told_from_a_changed_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "i"
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        build(folder, server, MANY[:3])
        seal = folder / f"{LEDGER}.seal"
        seal.write_bytes(flip(0.2)(seal.read_bytes()))
        assert found_in(folder) == [(f"{LEDGER}.seal", f"modegraph repair {folder}")]
        repair_index(folder, encoder, open_model)
        assert verify_index(folder) == [] and not (folder / (LEDGER + SET_ASIDE)).exists()

"""Building and editing an index: its contents do not depend on the order of documents, on repetition, on replaced documents or on refused input."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graph.build.build
from graph.build.build import Edit, build_index, edit_index
from graph.build.lifecycle import repair_index, resume_build, verify_index
from graph.build.stores import open_for_writing, read_settings, settings_for
from graph.documents.read import read_documents
from graph.errors import DamagedFile, UserError
from graph.index.index import open_index
from graph.shared.ids import content_id
from graph.store.arrays import load_arrays
from graph.store.data import IndexData
from graph.store.index_settings import IndexSettings
from graph.store.manifest import FORMAT, MANIFEST, read_manifest
from graph.store.seal import renew_seal
from graph.store.sqlite import SQLITE_FILE
from graph.types import Document, Encoder
from tests.corpora import ISLES
from tests.fakes import HashEncoder
from tests.graph.build.conftest import in_either_store
from tests.graph.same import assert_same_index
from tests.places import EXAMPLES
from tests.processes import until

in_both_stores = pytest.mark.usefixtures("place")
SETTINGS = IndexSettings(max_passage_tokens=30, max_chunk_tokens=60, max_summary_tokens=20)


def build(folder: Path, documents: list[Document], encoder: Encoder | None = None) -> IndexData:
    build_index(folder, documents, SETTINGS, lambda spec: encoder or HashEncoder())
    return load_arrays(folder, IndexData)


documents = st.lists(
    st.builds(
        Document,
        st.sampled_from("abcdef"),
        st.sampled_from(["", "Lantern", "Port Ellery"]),
        st.lists(
            st.sampled_from(["The Lantern sails.", "Port Ellery is old.", "It rains in Tarn.", "No. 5 was lost."]),
            min_size=1,
        ).map(" ".join),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda document: document.source,
)


@pytest.mark.long
@in_either_store(sqlite=15, postgresql=4)
def test_an_index_does_not_depend_on_order_repetition_and_replaced_documents(
    examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=examples)
    @given(given_documents=documents, extra=documents, order=st.randoms(use_true_random=False))
    def holds(given_documents: list[Document], extra: list[Document], order: object) -> None:
        folder = tmp_path_factory.mktemp("indexes")
        whole = build(folder / "whole", given_documents)
        shuffled = list(given_documents)
        order.shuffle(shuffled)  # type: ignore[attr-defined]
        for document in shuffled:
            one_by_one = build(folder / "single", [document])
        assert_same_index(whole, one_by_one)
        assert_same_index(whole, build(folder / "whole", given_documents))
        build(folder / "detour", extra)
        left_over = {document.source for document in extra} - {document.source for document in given_documents}
        if not left_over:
            assert_same_index(whole, build(folder / "detour", given_documents))

    holds()


@in_both_stores
def test_a_shared_proposition_has_a_count_for_each_passage_and_all_its_spans(tmp_path: Path) -> None:
    shared = "Tarn is a village. "
    data = build(tmp_path / "i", [Document("a", "", shared + shared), Document("b", "", "It is so. " + shared)])
    row = [data.proposition_texts[i] for i in range(len(data.proposition_texts))].index("Tarn is a village.")
    assert data.passage_proposition_PN[:, [row]].toarray().ravel().tolist() == [2, 1]
    proposition = open_index(tmp_path / "i").proposition(row)
    assert [(span.source, span.start, span.end) for span in proposition.spans] == [
        ("a", 0, 18),
        ("a", 19, 37),
        ("b", 10, 28),
    ]
    after = build(tmp_path / "i", [Document("a", "", "Nothing here.")])
    assert sum(after.passage_proposition_PN.data) == 3 and after.passage_proposition_PN.shape[1] == 3


@in_both_stores
def test_no_text_is_encoded_twice_even_after_a_crash(tmp_path: Path) -> None:
    class CrashingEncoder(HashEncoder):
        remaining_calls = 2

        def encode(self, texts):  # type: ignore[no-untyped-def]
            if self.remaining_calls == 0:
                raise KeyboardInterrupt
            self.remaining_calls -= 1
            return super().encode(texts)

    crashing, healthy = CrashingEncoder(), HashEncoder()
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "i", ISLES, crashing)
    data = build(tmp_path / "i", ISLES, healthy)
    assert crashing.encoded and healthy.encoded and not set(crashing.encoded) & set(healthy.encoded)
    fresh = HashEncoder()
    assert_same_index(data, build(tmp_path / "fresh", ISLES, fresh))
    assert sorted(crashing.encoded + healthy.encoded) == sorted(fresh.encoded)
    again = HashEncoder()
    build(tmp_path / "i", ISLES, again)
    assert again.encoded == []


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (KeyboardInterrupt(), True),
        (UserError("no answer", "a model that answers", "start it"), True),
        (ZeroDivisionError(), False),
        (DamagedFile("x.ann: its contents have changed", "an intact ANN index", "run: modegraph repair i"), False),
    ],
)
def test_only_a_run_that_resume_can_continue_says_so(
    tmp_path: Path, problem: BaseException, says: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    class FailingEncoder(HashEncoder):
        def encode(self, texts):  # type: ignore[no-untyped-def]
            raise problem

    with pytest.raises(type(problem)):
        build(tmp_path / "i", ISLES, FailingEncoder())
    assert ("interrupted, but the work done so far is saved" in capfd.readouterr().err) == says
    repair_index(tmp_path / "i", lambda spec: HashEncoder())
    assert len(open_index(tmp_path / "i").sources()) == len(ISLES)


def test_passage_offsets_refer_to_the_original_files(tmp_path: Path, minilm: Encoder) -> None:
    folder = EXAMPLES / "documents"
    some = [
        d for d in read_documents(folder, print) if d.source in ("pomfret-code.md", "corrow-tram-timetable-2022.md")
    ]
    build_index(tmp_path / "i", some, IndexSettings(max_passage_tokens=40), lambda spec: minilm)
    index = open_index(tmp_path / "i", lambda spec: minilm)
    for document in some:
        text = (folder / document.source).read_text(encoding="utf-8")
        passages = index.passages_of(document.source)
        assert len(passages) > 1
        assert all(text[p.start : p.end] == p.text and minilm.count_tokens(p.text) <= 40 for p in passages)
    assert "<|endoftext|>" in " ".join(p.text for p in index.passages_of("pomfret-code.md"))


@in_both_stores
def test_text_after_a_nul_character_is_indexed(tmp_path: Path) -> None:
    text = "Ada sailed.\0 The Lantern burned in 1911."
    build_index(tmp_path, [Document("a", "T\0", text)], IndexSettings(), lambda spec: HashEncoder())
    data = open_index(tmp_path, lambda spec: HashEncoder()).data
    assert list(data.passage_texts) == [text.replace("\0", "\ufffd")] and list(data.document_titles) == ["T\ufffd"]
    assert any("1911" in each for each in data.proposition_texts)


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "x y."}\n{"id": "b"}\n')
    return tmp_path / "c.jsonl"


def test_bad_input_creates_no_folder(tmp_path: Path, bad_file: Path) -> None:
    with pytest.raises(UserError, match="line 2"):
        build_index(tmp_path / "new", read_documents(bad_file, print), SETTINGS, lambda spec: HashEncoder())
    assert not (tmp_path / "new").exists()


def test_bad_input_leaves_an_empty_folder_as_it_was(tmp_path: Path, bad_file: Path) -> None:
    (tmp_path / "mine").mkdir()
    before = (tmp_path / "mine").stat().st_ino
    with pytest.raises(UserError, match="line 2"):
        build_index(tmp_path / "mine", read_documents(bad_file, print), SETTINGS, lambda spec: HashEncoder())
    assert (tmp_path / "mine").stat().st_ino == before and not any((tmp_path / "mine").iterdir())


@in_both_stores
def test_bad_input_leaves_an_index_unchanged(tmp_path: Path, bad_file: Path) -> None:
    before = build(tmp_path / "old", ISLES)
    with pytest.raises(UserError, match="line 2"):
        build_index(tmp_path / "old", read_documents(bad_file, print), SETTINGS, lambda spec: HashEncoder())
    assert_same_index(before, build(tmp_path / "old", ISLES))


@in_both_stores
def test_another_encoder_other_settings_and_folders_that_are_not_indexes_are_refused(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    with pytest.raises(UserError, match="made with encoder"):
        build(tmp_path / "i", ISLES, HashEncoder("another"))
    with pytest.raises(UserError, match="made with encoder"):
        open_index(tmp_path / "i", lambda spec: HashEncoder("another")).encode_queries(["x"])
    with pytest.raises(UserError, match=r"min_similarity = 0\.7, but this index was made with min_similarity = 0\.5"):
        build_index(
            tmp_path / "i",
            ISLES,
            settings_for(tmp_path / "i", None, ["min_similarity=0.7"], {}),
            lambda spec: HashEncoder(),
        )
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("dear")
    with pytest.raises(UserError, match="exists and is not an index"):
        build(tmp_path / "home", ISLES)
    with pytest.raises(UserError, match=r"letter\.txt/i: cannot be written \(Not a directory\)"):
        build(tmp_path / "home/letter.txt/i", ISLES)


def test_a_copy_of_the_encoder_may_be_named(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    named = settings_for(tmp_path / "i", None, ["encoder=owner/copy"], {})
    with pytest.raises(UserError, match=r"made with encoder hash-encoder.*--set encoder="):
        build_index(tmp_path / "i", ISLES, named, lambda spec: HashEncoder("another"))
    assert settings_for(tmp_path / "i", None, [], {}) == SETTINGS
    build_index(tmp_path / "i", ISLES, named, lambda spec: HashEncoder())
    assert open_index(tmp_path / "i", lambda spec: HashEncoder()).settings.encoder == "owner/copy"


def test_a_folder_of_an_encoder_is_stored_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("e5-base", "minilm"):
        (tmp_path / name).mkdir()
    for spec, stored in (("e5-base", f"{tmp_path}/e5-base"), ("minilm", "minilm"), ("owner/name", "owner/name")):
        assert settings_for(tmp_path / "i", None, [f"encoder={spec}"], {}).encoder == stored


@in_both_stores
def test_a_run_without_options_uses_the_settings_of_the_index(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    assert settings_for(tmp_path / "i", None, [], {}) == SETTINGS


@pytest.mark.long
@in_both_stores
def test_a_second_writer_reports_that_it_waits_and_then_writes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path / "i", ISLES)
    second = Thread(target=build, args=(tmp_path / "i", [Document("new", "New", "A new ferry came.")]))
    with open_for_writing(tmp_path / "i"):
        second.start()
        second.join(0.5)
        assert second.is_alive() and "new" not in open_index(tmp_path / "i").sources()
    second.join(60)
    assert "new" in open_index(tmp_path / "i").sources()
    assert re.search(rf"being written by process {os.getpid()}.*; waiting until it is done", capfd.readouterr().err)


def test_a_run_that_fails_does_not_delete_the_index_that_another_has_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = graph.build.build._prepare_folder

    def prepare_while_another_run_builds(folder: Path) -> bool:
        was_empty = prepare(folder)
        with monkeypatch.context() as patch:
            patch.setattr("graph.build.build._prepare_folder", prepare)
            build(folder, ISLES)
        return was_empty

    monkeypatch.setattr("graph.build.build._prepare_folder", prepare_while_another_run_builds)
    other = SETTINGS.model_copy(update={"max_passage_tokens": 77})
    with pytest.raises(UserError, match="max_passage_tokens = 77, but this index was made with"):
        build_index(tmp_path / "i", ISLES, other, lambda spec: HashEncoder())
    assert len(open_index(tmp_path / "i").sources()) == 5


@in_both_stores
def test_a_writer_that_waited_changes_only_the_settings_that_it_was_given(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    given = settings_for(tmp_path / "i", None, ["merge_factor=3"], {})
    for chosen in (settings_for(tmp_path / "i", None, ["ann_rows=77"], {}), given):
        build_index(tmp_path / "i", [], chosen, lambda spec: HashEncoder())
    expected = SETTINGS.model_copy(update={"ann_rows": 77, "merge_factor": 3})
    assert read_settings(tmp_path / "i") == expected
    assert read_manifest(tmp_path / "i").settings == expected.model_dump()
    later = settings_for(tmp_path / "i", None, ["ann_rows=99"], {})
    build_index(tmp_path / "i", [], later, lambda spec: HashEncoder())
    resume_build(tmp_path / "i", lambda spec: HashEncoder(), settings=given)
    assert read_settings(tmp_path / "i") == expected.model_copy(update={"ann_rows": 99})


def test_a_first_run_that_fails_leaves_the_folder_to_a_writer_that_waits(tmp_path: Path, bad_file: Path) -> None:
    second = Thread(target=build, args=(tmp_path / "new", ISLES))

    def bad_documents() -> Iterator[Document]:
        second.start()
        until(lambda: len(list((tmp_path / "new").glob("*.ticket"))) == 2)
        yield from read_documents(bad_file, print)

    with pytest.raises(UserError, match="line 2"):
        build_index(tmp_path / "new", bad_documents(), SETTINGS, lambda spec: HashEncoder())
    second.join(60)
    assert len(open_index(tmp_path / "new").sources()) == len(ISLES) and verify_index(tmp_path / "new") == []


@in_both_stores
def test_an_edit_that_deletes_nothing_makes_no_generation(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    before = read_manifest(tmp_path / "i").generation
    edit_index(tmp_path / "i", lambda: [Edit(delete="nowhere")], lambda spec: HashEncoder())
    assert read_manifest(tmp_path / "i").generation == before


@in_both_stores
def test_edits_in_one_call_make_one_generation_but_are_counted_separately(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    before = read_manifest(tmp_path / "i").generation
    edits = [
        Edit(add=[Document("new", "New", "A new ferry came."), ISLES[0]]),
        Edit(delete="tarn"),
        Edit(delete="nowhere"),
        Edit(add=[Document("new", "New", "It left again.")]),
    ]
    results = edit_index(tmp_path / "i", lambda: edits, lambda spec: HashEncoder())
    assert [(each.deleted, each.report.written, each.report.unchanged) for each in results] == [
        (False, 1, 1),
        (True, 0, 0),
        (False, 0, 0),
        (False, 1, 0),
    ]
    index = open_index(tmp_path / "i")
    assert index.sources() == ("ada", "bread", "lantern", "marlow", "new")
    assert index.passages_of("new")[0].text == "It left again."
    assert read_manifest(tmp_path / "i").generation == before + 1 and results[0].report.documents == 5


def test_a_truncated_file_is_named_in_the_error(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    for pattern in ("arrays-000001-*/passage_texts.data.npy", "vectors/passage_vectors_PD-*.segment"):
        (file,) = (tmp_path / "i").glob(pattern)
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        with pytest.raises(UserError, match=rf"{file.name}: {len(whole) - 1:,} bytes\. Expected {len(whole):,} bytes"):
            open_index(tmp_path / "i")
        file.write_bytes(whole)


@in_both_stores
def test_a_reader_keeps_its_generation_while_the_next_is_written(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    index = open_index(tmp_path / "i", lambda spec: HashEncoder())
    build(tmp_path / "i", [Document("new", "New", "A new ferry came.")])
    assert index.sources() == ("ada", "bread", "lantern", "marlow", "tarn")
    assert index.passages_of("tarn")[0].text == ISLES[3].text
    assert open_index(tmp_path / "i").passages_of("new")[0].text == "A new ferry came."


def test_the_manifest_names_every_array_file_and_the_settings(tmp_path: Path) -> None:
    build(tmp_path / "i", ISLES)
    manifest = read_manifest(tmp_path / "i")
    assert set(manifest.files) == {file.name for file in (tmp_path / "i" / manifest.arrays).iterdir()}
    assert manifest.settings == SETTINGS.model_dump()


def edit_manifest(folder: Path, old: str, new: str) -> None:
    """Write the manifest again with a part of its text replaced."""
    file = folder / MANIFEST
    body = file.read_text(encoding="utf-8").rpartition("\n")[0]
    assert old in body
    body = body.replace(old, new)
    file.write_text(f"{body}\n{content_id(body)}", encoding="utf-8")


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_an_index_of_another_format_must_be_made_again(tmp_path: Path, version: int) -> None:
    """The error does not depend on which file is read first: the manifest for readers, the store for writers."""
    build(tmp_path / "i", ISLES)
    message = f"format {version}. Expected format {FORMAT}. Index the documents again, into a new folder"
    edit_manifest(tmp_path / "i", f'"format": {FORMAT}', f'"format": {version}')
    with renew_seal(tmp_path / "i"), closing(sqlite3.connect(tmp_path / "i" / SQLITE_FILE)) as store:
        store.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(UserError, match=message):
        build(tmp_path / "i", ISLES)
    for attempt in (open_index, verify_index, lambda folder: repair_index(folder, lambda spec: HashEncoder())):
        with pytest.raises(UserError, match=message):
            attempt(tmp_path / "i")

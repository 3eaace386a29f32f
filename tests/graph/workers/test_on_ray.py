"""The engine `ray` with two real Ray workers on this machine: results, lost workers, and indexes identical to those of one process."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import graph.build.read_passages
import graph.store.embedding_cache
from benchmarks.engines import contents_of
from graph.build.build import build_index
from graph.build.lifecycle import index_status, resume_build
from graph.errors import UserError
from graph.models.encoder import encoder_folder, open_encoder
from graph.store.index_settings import IndexSettings
from graph.types import CompletionRequest, Floats, Message, Workers
from graph.workers.engines import THIS_PROCESS, Pool, RayWorkers, Slot, encoder_slots, fetch_result
from modegraph.cli import open_model
from tests.corpora import ISLES, guild_documents
from tests.fakes import HashEncoder, chat_server, extraction_reply
from tests.graph.build.crash_child import DOCUMENTS
from tests.graph.build.test_crash import stored_replies
from tests.tiny_models import write_tiny_llama

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.machines


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayWorkers]:
    """Two workers, started in a folder that contains a user's own graph.py; a third processor is left for other drivers."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "graph.py").write_text("raise SystemExit('a file of the user')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [folder for folder in sys.path if folder])
        patch.chdir(folder)
        patch.setenv("RAY_USE_MULTIPROCESSING_CPU_COUNT", "1")
        patch.setattr("multiprocessing.cpu_count", lambda: 3)
        workers = RayWorkers()
    workers._pools["code"].slots = workers._pools["code"].slots[:2]
    yield workers
    workers.close()


def double_slowly(number: int) -> tuple[int, int]:
    time.sleep(0.2 / number)
    return 2 * number, os.getpid()


def fail_at_3(number: int) -> int:
    if number == 3:
        raise UserError(f"number {number}", "another", "")
    return number


def kill_itself(folder: Path, times: int, number: int) -> int:
    """Kill the calling process when `number` is 2, at most `times` times in all."""
    deaths = len(list(folder.iterdir()))
    if number == 2 and deaths < times:
        (folder / str(deaths)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def wait_for_two(folder: Path, number: int) -> int:
    """Wait until each of two processes has a batch."""
    (folder / str(os.getpid())).touch()
    for _ in range(3000):
        if len(list(folder.iterdir())) > 1:
            return number
        time.sleep(0.02)
    raise AssertionError("one process still has all batches after 60 s; expected two processes")


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_batches_wait_for_a_starting_worker_and_do_not_queue_behind_each_other(
    workers: RayWorkers, tmp_path: Path
) -> None:
    """This test is the first in the file, so that the second worker starts during it."""
    assert list(workers.map(partial(wait_for_two, tmp_path), range(4))) == list(range(4))


def test_results_come_in_the_order_of_the_batches_whichever_worker_finishes_first(workers: RayWorkers) -> None:
    taken: list[int] = []
    found = workers.map(double_slowly, (taken.append(number) or number for number in range(1, 31)))
    first, _ = next(found)
    assert first == 2 and len(taken) <= workers._pools["code"].capacity < 30, (
        "at most `capacity` batches should be taken before the first result"
    )
    rest = list(found)
    assert [number for number, _ in rest] == list(range(4, 61, 2))
    processes = {process for _, process in rest}
    assert len(processes) == 2 and os.getpid() not in processes


def test_an_error_in_a_worker_reaches_the_driver(workers: RayWorkers) -> None:
    found = workers.map(fail_at_3, range(5))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match=r"^number 3\. Expected another$"):
        next(found)
    with pytest.raises(TypeError):
        next(workers.map(double_slowly, ["x"]))  # type: ignore[list-item]


def test_a_batch_whose_worker_was_killed_is_repeated(workers: RayWorkers, tmp_path: Path) -> None:
    assert list(workers.map(partial(kill_itself, tmp_path, 1), range(5))) == list(range(5))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_batch_that_kills_its_worker_each_time_ends_the_run(
    workers: RayWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph.workers.engines.MAX_LOSSES", 0)
    pool = Pool(workers._cluster, [Slot({"num_cpus": 0})])
    with pytest.raises(UserError, match="at most 0 lost workers per batch"):
        fetch_result(workers._cluster, pool.send(pool.put_function(partial(kill_itself, tmp_path, 9)), 2))
    assert len(list(tmp_path.iterdir())) == 1


def test_ctrl_c_interrupts_while_workers_are_busy(workers: RayWorkers) -> None:
    # Tests that run in the background ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(workers.map(sleep, [1.5, 0.0]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(workers.map(sleep, [0.0])) == [0.0]


def wait_for_three(folder: Path, number: int) -> tuple[int, int]:
    """Wait until three batches run at the same time, in any processes."""
    (folder / str(number)).touch()
    for _ in range(3000):
        if len(list(folder.iterdir())) > 2:
            return os.getpid(), threading.get_ident()
        time.sleep(0.02)
    raise AssertionError("fewer than three batches have started after 60 s; expected three at the same time")


def test_threads_of_one_process_share_an_encoder(workers: RayWorkers, tmp_path: Path) -> None:
    """Three processors get one slot with three threads."""
    [slot] = encoder_slots(workers._cluster)
    assert slot.threads == 3 and slot.options["num_cpus"] == 0
    found = list(workers.map(partial(wait_for_three, tmp_path), range(3), needs="encoder"))
    assert len({process for process, _ in found}) == 1 and len({thread for _, thread in found}) == 3
    encoder = open_encoder("minilm")
    texts = [[f"ferry {number} of {batch}" for number in range(20)] for batch in range(12)]
    shared = list(workers.map(encoder.encode, texts, needs="encoder"))
    assert all(np.array_equal(one, encoder.encode(batch)) for one, batch in zip(shared, texts, strict=True))


def listening_addresses(variable: bytes) -> set[str]:
    """The addresses, in the kernel's notation, at which processes with this variable in their environment listen."""
    sockets: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable in (process / "environ").read_bytes():
                sockets |= {str(file.readlink()) for file in (process / "fd").iterdir()}
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_cluster_listens_on_this_machine_only_and_sends_no_statistics(workers: RayWorkers) -> None:
    from ray._common.usage import usage_lib

    own = listening_addresses(b"RAY_AUTH_TOKEN=" + os.environ["RAY_AUTH_TOKEN"].encode())
    assert own and {address[-8:] for address in own} == {"0100007F"}, "all addresses should be 127.0.0.1"
    assert os.environ["RAY_AUTH_MODE"] == "token" and len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert ray._private.worker.get_dashboard_url() in (None, "")
    assert not usage_lib.usage_stats_enabled()


def test_workers_with_other_code_are_refused(workers: RayWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph.workers.engines.code_hash", lambda: "0" * 32)
    with pytest.raises(UserError, match=r"worker on .*: a different version of modegraph \(.*; here 0{12}\)"):
        Pool(workers._cluster, [Slot({"num_cpus": 0})]).wait_for_one()


def test_a_process_that_uses_ray_itself_keeps_its_connection(workers: RayWorkers) -> None:
    with pytest.raises(UserError, match="already connected"):
        RayWorkers(ray.get_runtime_context().gcs_address)
    assert list(workers.map(sleep, [0.0])) == [0.0]


def test_an_encoder_that_differs_on_the_worker_is_refused(workers: RayWorkers, tmp_path: Path) -> None:
    folder, ours = tmp_path / "encoder", encoder_folder("minilm")
    shutil.copytree(ours, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "onnx"))
    encoder = open_encoder(str(folder))
    assert list(workers.map(encoder.count_tokens, ["a ferry"])) == [2]
    (folder / "more.json").write_text("{}")
    there, here = encoder.fingerprint, open_encoder(str(folder))
    assert here.fingerprint != there
    (folder / "more.json").unlink()
    with pytest.raises(
        UserError, match=rf"its fingerprint on {socket.gethostname()} is {there[:12]}, not {here.fingerprint[:12]}"
    ):
        list(workers.map(here.count_tokens, ["a ferry"]))


class CachingEncoder(HashEncoder):
    """Writes a file on the worker's machine whenever it encodes texts, as a model that fills its cache does."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def encode(self, texts: Sequence[str]) -> Floats:
        if texts:
            self.file.write_text("\n".join(texts))
        return super().encode(texts)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_on_a_worker_is_reported_in_one_line_and_the_run_can_be_resumed(
    workers: RayWorkers, tmp_path: Path
) -> None:
    settings, folder = IndexSettings(min_similarity=0.1), tmp_path / "i"
    message = rf"^worker on {socket.gethostname()}: no free space \(No space left on device\)\. Expected a disk with free space\. Free some space there, "
    with pytest.raises(UserError, match=message):
        build_index(folder, ISLES, settings, lambda spec: CachingEncoder(Path("/dev/full")), workers=workers)
    assert index_status(folder).unfinished
    resume_build(folder, lambda spec: CachingEncoder(tmp_path / "texts"), workers=workers)
    assert (tmp_path / "texts").exists() and index_status(folder).unfinished == ""
    build_index(tmp_path / "whole", ISLES, settings, lambda spec: HashEncoder())
    assert_same(folder, tmp_path / "whole")


def use_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph.build.read_passages, "GROUP_PASSAGES", 3)
    monkeypatch.setattr(graph.build.read_passages, "BATCH_CHARACTERS", 300)
    monkeypatch.setattr(graph.store.embedding_cache, "BATCH_TEXTS", 16)


def build(folder: Path, workers: Workers, settings: IndexSettings) -> Path:
    documents = [*ISLES, *guild_documents(), *DOCUMENTS]
    build_index(folder, documents, settings, lambda spec: HashEncoder(), partial(open_model, workers=workers), workers)
    return folder


def assert_same(one: Path, other: Path) -> None:
    rows, files = contents_of(one, lambda spec: HashEncoder())
    other_rows, other_files = contents_of(other, lambda spec: HashEncoder())
    assert rows == other_rows
    assert files == other_files and len(files) > 10


def test_an_index_built_by_workers_is_identical_byte_for_byte_to_a_local_one(
    workers: RayWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_batches(monkeypatch)
    settings = IndexSettings(max_passage_tokens=20, max_chunk_tokens=60)
    assert_same(build(tmp_path / "local", THIS_PROCESS, settings), build(tmp_path / "ray", workers, settings))


def test_a_model_in_the_workers_gives_the_same_completions_as_in_this_process(
    workers: RayWorkers, tmp_path: Path
) -> None:
    model = write_tiny_llama(tmp_path / "tiny")
    here, there = (
        open_model(f"hf:{model}", tmp_path / f"{n}.sqlite", on) for n, on in ((1, THIS_PROCESS), (2, workers))
    )
    requests = [CompletionRequest((Message("user", f"Ship {n}?"),), max_tokens=6) for n in range(40)]
    assert there.complete(requests) == here.complete(requests)
    assert (there.name, there.window()) == (here.name, here.window())
    assert there.count_tokens("a ferry") == here.count_tokens("a ferry")


CHILD = """
import sys
from functools import partial
from pathlib import Path
from graph.build.build import build_index
from graph.store.index_settings import IndexSettings
from graph.workers.engines import open_workers
from modegraph.cli import open_model
from tests.fakes import HashEncoder
from tests.graph.build.crash_child import DOCUMENTS, kill_at
folder, url, address = sys.argv[1:]
settings = IndexSettings(extractor="llm", extractor_model=f"openai:m@{url}")
kill_at("stored call", 5)
with open_workers("ray", address) as workers:
    build_index(Path(folder), DOCUMENTS, settings, lambda spec: HashEncoder(), open_model, workers)
"""


def test_a_killed_driver_continues_where_it_stopped(workers: RayWorkers, tmp_path: Path) -> None:
    with chat_server(lambda body, number: extraction_reply(body)) as server:
        settings = IndexSettings(extractor="llm", extractor_model=f"openai:m@{server.url}")
        whole = tmp_path / "whole"
        build_index(whole, DOCUMENTS, settings, lambda spec: HashEncoder(), open_model)
        calls = len(server.requests)
        server.requests.clear()
        folder, address = tmp_path / "killed", ray.get_runtime_context().gcs_address
        command = [sys.executable, "-P", "-c", CHILD, str(folder), server.url, address]
        run = subprocess.run(command, check=False)
        assert run.returncode == -signal.SIGKILL
        stored = stored_replies(folder)
        server.requests.clear()
        resume_build(folder, lambda spec: HashEncoder(), open_model, workers=workers)
        assert not stored & {extraction_reply(body) for body in server.requests}, "a completed call was made again"
        assert 0 < len(server.requests) <= calls - 5
    assert_same(whole, folder)
    assert index_status(folder).unfinished == ""

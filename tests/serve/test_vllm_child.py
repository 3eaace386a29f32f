"""The supervisor of a vLLM server, tested without vLLM: its command line, the guard, restarts. A small HTTP server replaces the child."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

import httpx2
import pytest

from graph.errors import UserError
from graph.models import checkpoint
from serve.engines import child as children
from serve.engines.child import PROCESS_GROUP_GUARD, SupervisedServer
from serve.engines.child_backend import VllmBackend
from serve.engines.open_backend import VllmOptions, open_backend
from serve.engines.vllm import VllmSpec, lora_rank, max_lora_rank, read_spec
from tests.processes import runs, until
from tests.serve.http.running import serving

FAKE_SERVER = """#!{python}
import http.server, os, subprocess, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
subprocess.Popen(["sleep", "1000"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["VLLM_API_KEY"].encode())
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "FIRST_WAIT_S", 0.1)
    monkeypatch.setattr(children, "POLL_S", 0.05)


def adapter(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def group_of(child: SupervisedServer) -> int:
    """The process group of the running server; 0 when none is running."""
    return child._process.pid if child._process is not None else 0


def members(group: int) -> list[int]:
    """The running processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group and runs(int(entry.name)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("ranks", "expected"), [((4,), 8), ((8, 12), 16), ((64,), 64), ((1,), 1), ((200, 3), 256)])
def test_the_rank_is_the_smallest_that_fits_every_adapter(
    tmp_path: Path, ranks: tuple[int, ...], expected: int
) -> None:
    adapters = {f"a{number}": adapter(tmp_path / f"a{number}", r=rank) for number, rank in enumerate(ranks)}
    assert max_lora_rank(adapters) == expected


def test_the_ranks_of_single_layers_are_respected_and_invalid_ranks_are_refused(tmp_path: Path) -> None:
    assert lora_rank(adapter(tmp_path / "layers", r=4, rank_pattern={"q_proj": 24})) == 24
    with pytest.raises(UserError, match="at most 512"):
        max_lora_rank({"large": adapter(tmp_path / "large", r=513)})
    for config in ({}, {"r": None}, {"r": "many"}):
        with pytest.raises(UserError, match="with a rank"):
            lora_rank(adapter(tmp_path / f"bad{len(str(config))}", **config))


@pytest.mark.parametrize(
    ("bfloat16", "gpu", "options"), [(True, False, ""), (False, False, "--dtype float32"), (False, True, "")]
)
def test_a_cpu_without_bfloat16_serves_in_float32_unless_an_option_sets_another_type(
    monkeypatch: pytest.MonkeyPatch, bfloat16: bool, gpu: bool, options: str
) -> None:
    monkeypatch.setattr("serve.engines.vllm.computes_in_bfloat16", lambda: bfloat16)
    monkeypatch.setattr("serve.engines.vllm.on_cpu", lambda: not gpu)
    command = " ".join(read_spec("o/m", {}, sys.executable, ["--dtype", "bfloat16"]).command(1))
    assert command.endswith(f"{options} --dtype bfloat16".strip()) and command.count("--dtype") == 1 + bool(options)


def test_the_command_line_contains_the_model_its_adapters_and_the_options(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    adapters = {"sft": adapter(tmp_path / "sft", r=4)}
    spec = read_spec(str(tmp_path / "model"), adapters, sys.executable, ["--enforce-eager"])
    words = " ".join(spec.command(99))
    assert f"-m vllm.entrypoints.openai.api_server --model {tmp_path / 'model'} --served-model-name model" in words
    assert f"--enable-lora --max-lora-rank 8 --lora-modules sft={tmp_path / 'sft'}" in words and words.endswith(
        "--enforce-eager"
    )
    assert "--generation-config vllm" in words, (
        "the sampling defaults of a model should be ignored: they would change greedy answers"
    )
    assert "--host 127.0.0.1 --port 99" in words and "--enable-lora" not in read_spec(
        "o/m", {}, sys.executable, ()
    ).command(1)
    with pytest.raises(UserError, match="no such folder"):
        read_spec("/nowhere/model", {}, sys.executable, ())
    with pytest.raises(UserError, match="no such program"):
        read_spec("o/m", {}, "/nowhere/python", ())
    with pytest.raises(UserError, match="513"):
        read_spec("o/m", {"large": adapter(tmp_path / "large", r=513)}, sys.executable, ())
    with pytest.raises(UserError, match="another name"):
        read_spec(str(tmp_path / "model"), {"model": adapters["sft"]}, sys.executable, ())


def test_an_adapter_as_the_model_is_served_first_together_with_its_base(tiny_llama: Path, tiny_adapter: Path) -> None:
    backend = open_backend(f"vllm:{tiny_adapter}", [f"other={tiny_adapter}"], VllmOptions(sys.executable))
    assert backend.models == ("adapter", "model", "other") and isinstance(backend, VllmBackend)
    words = " ".join(backend.child.spec.command(99))
    assert f"--model {tiny_llama} --served-model-name model " in words
    assert f"--lora-modules adapter={tiny_adapter} other={tiny_adapter}" in words
    backend.child.log.unlink()
    with pytest.raises(UserError, match=r"--adapter adapter=….*another name"):
        open_backend(f"vllm:{tiny_adapter}", [str(tiny_adapter)], VllmOptions(sys.executable))


def test_until_the_child_is_ready_every_chat_request_is_refused_as_starting(
    tiny_llama: Path, shared_isles: Path, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000\n")
    python.chmod(0o755)
    first = [{"role": "user", "content": "Who built the Lantern?"}]
    later = [*first, {"role": "assistant", "content": "The Marlow Yard."}, {"role": "user", "content": "When?"}]
    with serving(shared_isles, f"vllm:{tiny_llama}", vllm=VllmOptions(str(python))) as running:
        for turns, stream in product((first, later), (False, True)):
            body = {"model": "model", "messages": turns, "stream": stream}
            response = running.post("/v1/chat/completions", json=body)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "model_starting")
    running.services.backend.child.log.unlink()  # type: ignore[attr-defined]


def test_the_variable_names_the_python_unless_an_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEGRAPH_VLLM_PYTHON", "/nowhere/python")
    for option, python in (("", "/nowhere/python"), ("/elsewhere/python", "/elsewhere/python")):
        with pytest.raises(UserError, match=f"^{python}: no such program"):
            open_backend("vllm:o/m", [], VllmOptions(option))


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_all_processes_end_when_the_process_that_started_the_guard_ends(how: str, tmp_path: Path) -> None:
    """The process that started the guard either exits normally or is killed."""
    holder = tmp_path / "holder.py"
    holder.write_text(
        "import subprocess, sys, time\n"
        f"guard = subprocess.Popen([sys.executable, {str(PROCESS_GROUP_GUARD)!r}, 'sh', '-c', 'sleep 1000 & sleep 1000'],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "print(guard.pid, flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, str(holder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    group = int(process.stdout.readline())
    until(lambda: len(members(group)) >= 3)
    if how == "killed":
        process.kill()
    else:
        process.stdin.close()
    process.wait(10)
    until(lambda: members(group) == [])


@pytest.fixture
def fake_server(tmp_path: Path) -> Path:
    python = tmp_path / "python"
    python.write_text(FAKE_SERVER.format(python=sys.executable))
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("how", ["hangs", "killed"])
def test_no_process_of_the_child_remains_if_the_guard_cannot_end_it(
    how: str, fake_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the guard hangs, or only the guard is killed, for example because memory runs out."""
    monkeypatch.setattr(children, "STOP_S", 0.5)
    if how == "hangs":
        hanging = fake_server.with_name("process_group_guard.py")
        hanging.write_text("import subprocess, sys, time\nsubprocess.Popen(sys.argv[1:])\ntime.sleep(1000)\n")
        monkeypatch.setattr(children, "PROCESS_GROUP_GUARD", hanging)

    async def live() -> None:
        child = SupervisedServer(read_spec("owner/model", {}, str(fake_server), ()))
        await child.start()
        await asyncio.wait_for(child.ready.wait(), 20)
        group = group_of(child)
        assert len(members(group)) == 3
        if how == "killed":
            os.kill(group, signal.SIGKILL)
            while group_of(child) == group:
                await asyncio.sleep(0.05)
        await child.stop()
        assert child.log.exists() == (how == "killed")
        try:
            until(lambda: members(group) == [], 5)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    asyncio.run(live())


def test_a_child_that_cannot_be_started_is_started_again_later(
    fake_server: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """First, the log of the child cannot be written; then, the configuration of an adapter is missing for a while."""

    async def live() -> None:
        lora = adapter(fake_server.parent / "lora", r=4)
        child = SupervisedServer(read_spec("owner/model", {"lora": lora}, str(fake_server), ()))
        log, child.log = child.log, fake_server.parent / "later" / "vllm.log"
        (lora / "adapter_config.json").rename(lora / "away")
        await child.start()
        while caplog.text.count("could not be started") < 1:
            await asyncio.sleep(0.05)
        child.log.parent.mkdir()
        while "no readable adapter_config.json" not in caplog.text:
            await asyncio.sleep(0.05)
        (lora / "away").rename(lora / "adapter_config.json")
        await asyncio.wait_for(child.ready.wait(), 30)
        await child.stop()
        log.unlink()

    asyncio.run(asyncio.wait_for(live(), 60))
    assert "FileNotFoundError" in caplog.text


def test_a_killed_child_is_restarted_and_stopping_it_ends_all_its_processes(fake_server: Path) -> None:
    async def live() -> None:
        child = SupervisedServer(read_spec("owner/model", {}, str(fake_server), ()))
        await child.start()
        await asyncio.wait_for(child.ready.wait(), 20)
        async with httpx2.AsyncClient() as client:
            assert (await client.get(child.url)).text == child.key
        first = group_of(child)
        inside = members(first)
        assert len(inside) == 3
        os.kill(max(inside), signal.SIGKILL)
        os.kill(sorted(inside)[1], signal.SIGKILL)
        while child.ready.is_set():
            await asyncio.sleep(0.05)
        await asyncio.wait_for(child.ready.wait(), 20)
        second = group_of(child)
        assert second != first and len(members(second)) == 3
        until(lambda: members(first) == [], 5)
        await child.stop()
        until(lambda: members(second) == [], 5)
        assert child.key not in child.log.read_text()

    asyncio.run(live())


def test_on_a_cpu_vllm_runs_in_one_process_unless_the_environment_overrides_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a CPU, the two processes of vLLM would busy-wait for each other; on a GPU they do not."""
    name, spec = "VLLM_ENABLE_V1_MULTIPROCESSING", VllmSpec("hub/model", "model", {}, sys.executable)
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(checkpoint, "GPU_DEVICES", ())
    assert spec.environment("key")[name] == "0"
    monkeypatch.setenv(name, "1")
    assert spec.environment("key")[name] == "1"
    monkeypatch.delenv(name)
    monkeypatch.setattr(checkpoint, "GPU_DEVICES", ("/dev/null",))
    assert name not in spec.environment("key")

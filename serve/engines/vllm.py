"""vLLM as a child process: its command line, and a supervisor that starts it, waits for it, restarts it and takes it down.

The child runs on a leash (serve/engines/leash.py) in a process group of its own, so that nothing of it outlives this process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2

from graph.encode.processor import computes_in_bfloat16
from graph.encode.weights import ADAPTER_CONFIG
from graph.pretrained.cache import resolve
from graph.shared.errors import UserError

LOG = logging.getLogger("modegraph.serve")
POLL_S = 0.5
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
STOP_S = 30.0
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM takes for --max-lora-rank."""
STRUCTURED = {"backend": "xgrammar", "disable_any_whitespace": True}
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What tells of a GPU without importing torch: NVIDIA's driver, AMD's, and that of Windows' Linux."""
WHOLE_PROMPTS = "--no-enable-chunked-prefill"
"""On a CPU, vLLM 0.32 ends at the first prompt with a seed that it reads in parts ("CPU Generator does not use offset")."""
FLOAT32 = ("--dtype", "float32")
"""vLLM would round a model of float32 to bfloat16. Without instructions for it, that reads a prompt five times slower (docs/log.md)."""
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""On a CPU, vLLM computes in the process that schedules: two of them wait for each other by spinning, a fifth of all processor time."""
LEASH = Path(__file__).with_name("leash.py")


@dataclass(frozen=True)
class VllmSpec:
    """What to run: the model (a folder or a hub name), the name it is served under, adapters by name, the Python that has vLLM."""

    model: str
    name: str
    adapters: Mapping[str, Path]
    python: str
    extra: tuple[str, ...] = ()


def read_spec(target: str, adapters: Mapping[str, Path], python: str, extra: Sequence[str]) -> VllmSpec:
    """A checked spec; UserError for a folder, an adapter or a Python that is not there."""
    folder = Path(resolve(target)).expanduser()
    if not folder.is_dir() and (target.startswith((".", "/", "~")) or target.count("/") > 1):
        raise UserError(f"vllm:{target}: no such folder", "a model's folder or a hub name", "check the path")
    if not os.access(python, os.X_OK):
        raise UserError(
            f"--vllm-python {python}: no such program", "the Python of vLLM's environment", "check the path"
        )
    for adapter in adapters.values():
        lora_rank(adapter)
    name = folder.resolve().name if folder.is_dir() else target
    if name in adapters:
        raise UserError(f"--adapter {name}=…", "another name: the model itself is called so", "rename the adapter")
    return VllmSpec(str(folder.resolve()) if folder.is_dir() else target, name, dict(adapters), python, tuple(extra))


def lora_rank(adapter: Path) -> int:
    """The rank of a LoRA adapter, the largest if it has several, from its adapter_config.json; UserError when there is none."""
    try:
        config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        return max(int(config["r"]), *(int(rank) for rank in (config.get("rank_pattern") or {}).values()), 1)
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{adapter}: no readable {ADAPTER_CONFIG} with a rank", "a LoRA adapter's folder", "check --adapter"
        ) from None


def max_lora_rank(adapters: Mapping[str, Path]) -> int:
    """The smallest --max-lora-rank that takes all adapters; UserError when one is larger than vLLM can."""
    needed = max(map(lora_rank, adapters.values()))
    for rank in RANKS:
        if rank >= needed:
            return rank
    raise UserError(
        f"an adapter of rank {needed}", f"at most {RANKS[-1]}", "merge it into the model (modegraph export)"
    )


def command_of(spec: VllmSpec, port: int) -> list[str]:
    """The command line of the server; the module form, which both the GPU and the CPU build have."""
    command = [spec.python, "-m", "vllm.entrypoints.openai.api_server", "--model", spec.model]
    command += ["--served-model-name", spec.name, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--structured-outputs-config", json.dumps(STRUCTURED), "--generation-config", "vllm"]
    if spec.adapters:
        modules = [f"{name}={folder.resolve()}" for name, folder in spec.adapters.items()]
        command += ["--enable-lora", "--max-lora-rank", str(max_lora_rank(spec.adapters)), "--lora-modules", *modules]
    return [*command, *(_for_this_cpu() if on_cpu() else ()), *spec.extra]


def _for_this_cpu() -> Iterator[str]:
    yield WHOLE_PROMPTS
    if not computes_in_bfloat16():
        yield from FLOAT32


def on_cpu() -> bool:
    """Whether this machine has no GPU that vLLM would run on."""
    return not any(Path(device).exists() for device in GPU_DEVICES)


def environment_of(spec: VllmSpec, key: str) -> dict[str, str]:
    """The environment of the server: its key, room for its cache on a CPU, and no hub where the model is on disk.

    Its threads run on any core: bound to the first ones, as they are otherwise, two servers would share these.
    """
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        **(ONE_PROCESS if on_cpu() else {}),
        **os.environ,
        "VLLM_API_KEY": key,
    }
    return environment | ({"HF_HUB_OFFLINE": "1"} if Path(spec.model).is_dir() else {})


def new_key() -> str:
    """A key that no other process knows."""
    return secrets.token_urlsafe(32)


class VllmChild:
    """Keeps one server running from `start` to `stop`. `url` and `key` stay the same over restarts."""

    def __init__(self, spec: VllmSpec) -> None:
        self.spec = spec
        self.key = new_key()
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/v1"
        handle, log = tempfile.mkstemp(prefix="modegraph-vllm-", suffix=".log")
        os.close(handle)
        self.log = Path(log)
        self.ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def group(self) -> int:
        """The process group of the server that runs now; 0 when none does."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Begin; returns at once, `ready` is set when the server answers."""
        LOG.info("starting vLLM for %s; its log: %s", self.spec.name, self.log)
        self._keeper = asyncio.create_task(self._keep_running())

    async def stop(self) -> None:
        """End the server and everything that it started."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        await self._end_process()

    async def _keep_running(self) -> None:
        """Start the server whenever none runs, whatever ended it or kept it from starting."""
        wait_s = FIRST_WAIT_S
        while True:
            try:
                answered = await self._run_once()
                problem = "vLLM ended"
            except (OSError, UserError) as found:
                answered, problem = False, f"vLLM could not be started: {type(found).__name__}: {found}"
            self.ready.clear()
            await self._end_process()
            wait_s = FIRST_WAIT_S if answered else wait_s
            LOG.warning("%s; starting it again in %.0f s; its log: %s", problem, wait_s, self.log)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _run_once(self) -> bool:
        """Start the server and wait for its end; whether it has answered before."""
        process = await self._launch()
        if not await self._wait_until_ready(process):
            return False
        LOG.info("vLLM answers at %s", self.url)
        self.ready.set()
        await process.wait()
        return True

    async def _launch(self) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                str(LEASH),
                *command_of(self.spec, self._port),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment_of(self.spec, self.key),
                start_new_session=True,
            )
        return self._process

    async def _wait_until_ready(self, process: asyncio.subprocess.Process) -> bool:
        """True as soon as the server answers, False when it ended before."""
        async with httpx2.AsyncClient(timeout=2.0, trust_env=False) as client:
            while process.returncode is None:
                try:
                    if (await client.get(self.url.replace("/v1", "/health"))).status_code == 200:
                        return True
                except httpx2.HTTPError:
                    pass
                await asyncio.sleep(POLL_S)
        return False

    async def _end_process(self) -> None:
        """Let go of the leash, which ends the group; end what is left of the group where the leash cannot."""
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            LOG.warning("vLLM did not end within %.0f s and is killed", STOP_S)
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        self._process = None


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

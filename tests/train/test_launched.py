"""Training in two processes on one machine, replicated (DDP, with accelerate's launcher) or sharded (FSDP 2, ZeRO 2), equals training in one process.

accelerate runs FSDP and DeepSpeed on GPUs only. Here its state is patched to report two GPU processes, whose device is the CPU: FSDP and
DeepSpeed then wrap, gather, save and load with their own code, over gloo.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from data_synth.rows import preference_to_json, response_to_json
from graph.shared.jsonl import write_jsonl
from tests.places import ROOT
from tests.train.world import log_of, preference, response_row
from train.model.load import load_model, load_policy
from train.preference.preference import train_once
from train.run.record import read_run
from train.run.settings import LoraSettings, MsSettings, SftSettings, TrainSettings
from train.sft import train_sft

pytestmark = pytest.mark.machines
STEPS, SAVE_STEPS, KILL_STEP = 6, 2, 3
FSDP = {
    "ACCELERATE_TORCH_DEVICE": "cpu",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}
"""The variables that `accelerate launch` sets for configs/accelerate/fsdp.yaml, and those that make the CPU the device."""
ZERO = {
    "DS_ACCELERATOR": "cpu",
    "ACCELERATE_TORCH_DEVICE": "cpu",
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "auto",
    "ACCELERATE_GRADIENT_CLIPPING": "auto",
    "ACCELERATE_DEEPSPEED_ZERO3_INIT": "false",
}
"""The variables that `accelerate launch` sets for configs/accelerate/deepspeed-zero2.yaml, and those that make the CPU the device."""
RUN = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
if os.environ.get("ACCELERATE_TORCH_DEVICE"):
    import train.run.loop
    from accelerate.state import DistributedType, PartialState
    torch.distributed.init_process_group("gloo")
    PartialState._prepare_backend = lambda self, *rest, **named: ("gloo", DistributedType.MULTI_GPU)
    if os.environ.get("ACCELERATE_USE_DEEPSPEED"):
        train.run.loop.device = lambda: "a GPU, simulated"
from train.model import logps
from train.preference.preference import train_once
from train.run.loop import ProgressCallback
from train.run.settings import MsSettings
from torch.distributed.tensor import DTensor
settings = MsSettings.model_validate_json(Path(sys.argv[1]).read_text())
logps.HEAD_CHUNK_TOKENS = int(sys.argv[3])
original = ProgressCallback.on_log

def on_log(self, args, state, control, logs=None, model=None, **named):
    sharded = sum(isinstance(weight, DTensor) for weight in model.parameters())
    print(f"sharded weights: {sharded}", file=sys.stderr, flush=True)
    if state.global_step == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    original(self, args, state, control, logs=logs, model=model, **named)

ProgressCallback.on_log = on_log
train_once(settings)
"""


def settings_of(base: Path, data: Path, output: Path, /, **changes: Any) -> MsSettings:
    values = {"model": str(base), "data": str(data), "output": str(output), "rewards": {"correct": 1.0}}
    steps = {"learning_rate": 2e-3, "max_steps": STEPS, "logging_steps": 1, "seed": 3, "batch_size": 2}
    return MsSettings(**{**values, **steps, **changes})  # type: ignore[arg-type]


def launch(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | variables
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)


def launch_with_shipped_config(
    name: str, settings: TrainSettings, stage: str = "ms"
) -> subprocess.CompletedProcess[str]:
    """`train STAGE` under `accelerate launch` with the configuration configs/accelerate/NAME.yaml."""
    file = Path(settings.output).with_suffix(".yaml")
    file.write_text(yaml.safe_dump(settings.model_dump()))
    launcher = ["-m", "accelerate.commands.launch", "--config_file", f"configs/accelerate/{name}.yaml"]
    command = ["--main_process_port", "0", "-m", "modegraph", "train", stage, "--config", str(file)]
    return launch([sys.executable, *launcher, *command])


def train_in_two_processes(settings: MsSettings, killed_at: int = 0, chunk_tokens: int = 512, **variables: str) -> str:
    """Train in two processes, which kill themselves at step `killed_at` (0: never), and return their standard error."""
    file = Path(settings.output).with_suffix(".json")
    file.write_text(settings.model_dump_json())
    script = file.with_suffix(".py")
    script.write_text(RUN)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    process = launch([*torchrun, str(script), str(file), str(killed_at), str(chunk_tokens)], **variables)
    assert (process.returncode == 0) == (killed_at == 0), process.stderr[-3000:]
    return process.stderr


def assert_ended_alike(one: Path, other: Path, tolerance: float = 2e-5) -> None:
    """Check that two runs have the same weights and losses up to rounding, equal configurations and files of the same names."""
    assert {file.name for file in one.iterdir()} == {file.name for file in other.iterdir()}
    left, right = (dict(load_model(str(run), "float32").named_parameters()) for run in (one, other))
    assert left.keys() == right.keys()
    for name, weight in left.items():
        assert torch.allclose(weight, right[name], atol=tolerance), name
    losses = [[row["loss"] for row in log_of(run)] for run in (one, other)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4) and len(losses[0]) == STEPS
    configs = [json.loads((run / "config.json").read_text()) for run in (one, other) if (run / "config.json").exists()]
    assert all(config == configs[0] for config in configs)
    dev_losses = [read_run(run).metrics["eval_loss"] for run in (one, other)]
    assert dev_losses[0] == pytest.approx(dev_losses[1], abs=1e-4)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scored responses to 4 training prompts and 2 dev prompts, so that two processes can share each batch equally."""
    folder = tmp_path_factory.mktemp("rows")
    write_jsonl(folder / "train.jsonl", (response_to_json(response_row(number)) for number in range(4)))
    write_jsonl(folder / "dev.jsonl", (response_to_json(response_row(number, responses=5)) for number in range(2)))
    return folder


@pytest.fixture(scope="module")
def untied_base(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base with an untied output head, as larger models have."""
    folder = tmp_path_factory.mktemp("models") / "untied"
    model, tokenizer = load_policy(str(base))
    model.config.tie_word_embeddings = False
    copy = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        copy.lm_head.weight.add_(
            0.01 * torch.randn(copy.lm_head.weight.shape, generator=torch.Generator().manual_seed(0))
        )
    copy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_ddp_makes_the_same_updates_as_one_process(base: Path, rows: Path, tmp_path: Path) -> None:
    """With ddp.yaml and K responses per prompt, `accelerate launch` makes the same updates as one process, on a machine without a GPU."""
    one = settings_of(base, rows, tmp_path / "one")
    train_once(one)
    process = launch_with_shipped_config(
        "ddp", one.model_copy(update={"output": str(tmp_path / "two"), "batch_size": 1})
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stderr.count(f"step 1 of {STEPS}") == 1
    assert_ended_alike(tmp_path / "one", tmp_path / "two")


def test_sft_in_two_processes_makes_the_same_updates_and_has_the_same_dev_loss(base: Path, tmp_path: Path) -> None:
    """The batches of the two processes have different numbers of answer tokens, and their last batch of dev rows is filled with repeated ones."""
    for name, numbers in (("train", range(12)), ("dev", range(5))):
        write_jsonl(tmp_path / f"{name}.jsonl", (preference_to_json(preference(number)) for number in numbers))
    values = {"model": str(base), "data": str(tmp_path), "learning_rate": 2e-3, "max_steps": STEPS, "logging_steps": 1}
    one = SftSettings(**values, output=str(tmp_path / "one"), batch_size=4)  # type: ignore[arg-type]
    train_sft(one)
    two = one.model_copy(update={"output": str(tmp_path / "two"), "batch_size": 2})
    process = launch_with_shipped_config("ddp", two, "sft")
    assert process.returncode == 0, process.stderr[-3000:]
    assert_ended_alike(tmp_path / "one", tmp_path / "two")


def test_fsdp_under_a_launcher_that_would_not_shard_is_refused(base: Path, rows: Path, tmp_path: Path) -> None:
    process = launch_with_shipped_config("fsdp", settings_of(base, rows, tmp_path / "two"))
    assert (
        process.returncode != 0
        and "modegraph: FSDP was requested, but accelerate's distributed type is MULTI_CPU" in process.stderr
    )
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(("case", "chunk_tokens"), [("tied", 512), ("tied", 16), ("untied", 16), ("adapter", 16)])
def test_sharded_weights_get_the_same_updates_as_in_one_process(
    case: str, chunk_tokens: int, base: Path, untied_base: Path, rows: Path, tmp_path: Path
) -> None:
    """Logits are computed in one piece, or in chunks that are recomputed in the backward pass. The saved weights are whole: the folder loads like any other."""
    changes: dict[str, Any] = {"lora": LoraSettings(rank=4, alpha=8)} if case == "adapter" else {}
    one = settings_of(untied_base if case == "untied" else base, rows, tmp_path / "one", **changes)
    train_once(one)
    two = one.model_copy(update={"output": str(tmp_path / "two"), "batch_size": 1})
    printed = train_in_two_processes(two, chunk_tokens=chunk_tokens, **FSDP)
    sharded = set(map(int, re.findall(r"sharded weights: (\d+)", printed)))
    assert sharded and 0 not in sharded, "some weights should be sharded: otherwise accelerate ran DDP"
    assert "plain layout" not in printed
    assert_ended_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("case", ["whole", "adapter"])
def test_zero_2_makes_the_same_updates_as_one_process(case: str, base: Path, rows: Path, tmp_path: Path) -> None:
    """DeepSpeed shards gradients and optimiser states; it is not a dependency, so this test is usually skipped."""
    pytest.importorskip("deepspeed")
    lora = LoraSettings(rank=4, alpha=8) if case == "adapter" else None
    one = settings_of(base, rows, tmp_path / "one", lora=lora)
    train_once(one)
    train_in_two_processes(one.model_copy(update={"output": str(tmp_path / "two"), "batch_size": 1}), **ZERO)
    assert_ended_alike(tmp_path / "one", tmp_path / "two")


LAUNCHES = [("whole", FSDP), ("adapter", FSDP), ("whole", ZERO)]


@pytest.mark.parametrize(("case", "variables"), LAUNCHES, ids=["FSDP, whole", "FSDP, adapter", "ZeRO, whole"])
def test_a_sharded_run_resumes_from_a_checkpoint(
    case: str, variables: dict[str, str], base: Path, rows: Path, tmp_path: Path
) -> None:
    if variables is ZERO:
        pytest.importorskip("deepspeed")
    lora = LoraSettings(rank=4, alpha=8) if case == "adapter" else None
    whole = settings_of(base, rows, tmp_path / "whole", lora=lora, save_steps=SAVE_STEPS, batch_size=1)
    train_in_two_processes(whole, **variables)
    killed = whole.model_copy(update={"output": str(tmp_path / "killed")})
    train_in_two_processes(killed, killed_at=KILL_STEP, **variables)
    assert (tmp_path / "killed.partial" / "checkpoints" / f"checkpoint-{SAVE_STEPS}").is_dir()
    assert not (tmp_path / "killed").exists()
    train_in_two_processes(killed, **variables)
    assert_ended_alike(tmp_path / "whole", tmp_path / "killed", tolerance=1e-6)

"""vLLM as the model of a command: adapters of one base are selected by name, samples come from the selected one, and a server ends with its parent process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from eval.alignment.sample import Policy, Prompt, SamplingSettings, draw_by_transformers, draw_by_vllm, logps_of_samples
from graph.errors import UserError
from graph.types import CompletionRequest, Message
from serve.engines.vllm import open_vllm
from tests.processes import command_lines, until
from tests.vllm import with_vllm
from train.model.load import load_policy
from train.run.settings import TinySettings
from train.tiny import train_tiny

pytestmark = with_vllm
SETTINGS = SamplingSettings(48, 8, 3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm-model")
    (folder / "texts.jsonl").write_text(
        '{"id": "a", "text": "Ida lives in Corrow, by the old mill. She keeps bees. '
        + "The mill is old. " * 80
        + '"}\n'
    )
    output = str(folder / "tiny")
    train_tiny(
        TinySettings(texts=str(folder / "texts.jsonl"), output=output, vocabulary=600, layers=1, heads=2, steps=2)
    )
    return folder / "tiny"


@pytest.fixture(scope="module")
def adapters(base: Path) -> list[Path]:
    """Two adapters that change the output of the model considerably."""
    folders = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        config = LoraConfig(r=8, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.data.normal_(std=1.5)
        folders.append(base.parent / f"run-{seed}")
        model.save_pretrained(folders[-1])
        AutoTokenizer.from_pretrained(base).save_pretrained(folders[-1])
    return folders


def test_samples_come_from_the_requested_adapter(adapters: list[Path]) -> None:
    """vLLM's samples are more likely under their own policy than under the other, by about as much as samples generated with transformers."""
    policies = [Policy(str(folder), *load_policy(str(folder))) for folder in adapters]
    prompts = [Prompt(f"q{number}", tuple(range(20 + number, 30 + number))) for number in range(4)]
    for policy, other in (policies, policies[::-1]):
        vllm_samples = list(draw_by_vllm(policy, prompts, SETTINGS))
        assert [one.group.prompt for one in vllm_samples] == [prompt.ids for prompt in prompts]
        assert all(len(one.group.responses) == 48 for one in vllm_samples)
        divergence = {
            engine: float(
                torch.cat(
                    [logps_of_samples(policy.model, s) - logps_of_samples(other.model, s) for s in samples]
                ).mean()
            )
            for engine, samples in (("vllm", vllm_samples), ("hf", draw_by_transformers(policy, prompts, SETTINGS)))
        }
        assert divergence["hf"] > 0.2, (
            "the samples should come from the adapter: samples from the base have a divergence of about 0"
        )
        assert 0.5 < divergence["vllm"] / divergence["hf"] < 1.5, (
            "the engines should agree, up to the error of 192 samples each and of bfloat16 in vLLM"
        )
    assert vllm_samples == list(draw_by_vllm(policy, prompts, SETTINGS)), "the same seed should give the same samples"


def test_seeded_requests_with_long_prompts_are_all_answered(base: Path) -> None:
    """Together, the prompts have more tokens than vLLM processes in one step: on a CPU, it would crash at the first seeded prompt split between two steps."""
    model = open_vllm(str(base))
    assert open_vllm(str(base)) is model, (
        "the running server should be used again: a second one would need as much memory"
    )
    requests = [
        CompletionRequest((Message("user", f"{number}. " + "The mill is old. " * 90),), 4, 1.0, seed=number)
        for number in range(48)
    ]
    assert sum(model.prompt_tokens(request.messages) for request in requests) > 16_384
    completions = model.complete(requests)
    assert all(one.completion_tokens > 0 for one in completions) and completions[0] == model.complete(requests[:1])[0]


def test_a_server_ends_with_the_process_that_started_it(adapters: list[Path]) -> None:
    script = (
        "import os\n"
        "from graph.types import CompletionRequest, Message\n"
        "from serve.engines import open_model\n"
        f"model = open_model('vllm:{adapters[0]}')\n"
        "completions = model.complete([CompletionRequest((Message('user', 'Who lives there?'),), 8, 1.0, seed=7)] * 2)\n"
        "print(completions[0] == completions[1], completions[0].completion_tokens, model.window(), model.url, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], check=False, capture_output=True, text=True)
    same, tokens, window, url = done.stdout.split()
    assert same == "True" and 1 <= int(tokens) <= 8 and int(window) == 1024, done.stderr
    port = url.rpartition(":")[2].partition("/")[0]
    until(lambda: not any(port in line.split() for line in command_lines()), 60)


def test_if_vllm_does_not_start_the_error_names_the_variable_to_set(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEGRAPH_VLLM_PYTHON", sys.executable)
    with pytest.raises(
        UserError, match=r"vLLM exited before it answered \(.*No module named.*Set MODEGRAPH_VLLM_PYTHON"
    ):
        open_vllm(str(base))

"""Samples that vLLM generates, for many prompts concurrently; a separate server is started for each policy.

An adapter is merged first: on two cores vLLM then generates about 600 tokens a second with a model of 135 M parameters, against 200 with a separate
adapter and 30 with transformers' `generate`."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx2
from peft import PeftModel

from eval.alignment.sample import Policy, Prompt, Samples, SamplingSettings, samples_of, seed_of
from graph.errors import UserError
from serve.engines.child import CommandServer
from serve.engines.vllm import spec_of

CONCURRENT_REQUESTS = 8
TIMEOUT_S = 900.0


def draw_by_vllm(policy: Policy, prompts: Sequence[Prompt], sampling: SamplingSettings) -> Iterator[Samples]:
    """Generate samples with vLLM (the `Draw` of `--sampler vllm`); UserError if vLLM does not start or refuses a request.

    The model in memory is unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="modegraph-policy-") as folder:
        model = policy.model
        if isinstance(model, PeftModel):
            model = copy.deepcopy(model).merge_and_unload()
        model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)
        with (
            closing(CommandServer(spec_of(folder, {}))) as server,
            httpx2.Client(
                timeout=TIMEOUT_S, trust_env=False, headers={"Authorization": f"Bearer {server.key}"}
            ) as client,
            ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool,
        ):
            server.wait()
            yield from pool.map(lambda prompt: _draw(client, server, policy, prompt, sampling), prompts)


def _draw(
    client: httpx2.Client, server: CommandServer, policy: Policy, prompt: Prompt, sampling: SamplingSettings
) -> Samples:
    body = {
        "model": server.name,
        "prompt": list(prompt.ids),
        "n": sampling.count,
        "max_tokens": sampling.max_tokens,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": seed_of(sampling, prompt.id),
        "return_token_ids": True,
    }
    response = client.post(f"{server.url}/completions", json=body)
    if response.status_code != 200:
        found = f"vLLM: status {response.status_code} ({' '.join(response.text.split())[:300]})"
        raise UserError(found, "status 200 with samples", f"see the reason in {server.log}")
    choices = sorted(response.json()["choices"], key=lambda choice: choice["index"])
    return samples_of(policy.tokenizer, prompt.ids, [choice["token_ids"] for choice in choices])

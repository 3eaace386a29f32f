"""`openvino:` as a language model: OpenVINO GenAI in this process, weights in 8 bits, for processors. Several prompts are read and written at once.

SPEC: openvino:NAME of the catalogue, openvino:FOLDER of an adapter of one of its models, or openvino:FOLDER with a model as OpenVINO has it
(openvino_model.xml) and its tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from graph.errors import UserError
from graph.models.catalogue import MODELS, resolve
from graph.models.checkpoint import adapter_base, answer_form, is_adapter, model_name
from graph.models.openvino_ir import OPENVINO_MODEL, adapted_folder, is_installed, openvino_folder
from graph.shared.console import say
from graph.types import Completion, CompletionRequest
from serve.engines.local import PLAIN, LocalModel, PreparedPrompt, Sampling, Watcher

BATCH_TOKENS = 512
"""Tokens of prompts that are read in one step: more take more memory and no less time."""
UNLIMITED_K = 1 << 20


class OpenVinoModel(LocalModel):
    """A LanguageModel over OpenVINO's pipeline and the model's own tokenizer. Prompts that begin alike are read once."""

    kind, takes_schema = "openvino", True

    def __init__(
        self, name: str, pipeline: Any, tokenizer: Any, config: Mapping[str, Any], stop_ids: frozenset[int]
    ) -> None:
        super().__init__(name, tokenizer, int(config["max_position_embeddings"]), stop_ids)
        self._pipeline = pipeline
        self.vocabulary = int(config["vocab_size"])
        self._numbers = 0

    def run(
        self, batch: Sequence[PreparedPrompt], watcher: Watcher | None = None, sampling: Sampling = PLAIN
    ) -> list[Completion]:
        from openvino import Tensor

        if sampling.logit_bias:
            raise UserError("logit_bias with openvino:", "a request without", "leave it out, or use hf: or gguf:")
        handles = []
        for prompt in batch:
            ids = Tensor(np.array([prompt.ids], np.int64))
            try:
                handles.append(self._pipeline.add_request(self._numbers, ids, self._config(prompt, sampling)))
            except RuntimeError as problem:
                for handle in handles:
                    handle.stop()
                reason = " ".join(str(problem).split())[-300:]
                raise UserError(f"{self.kind}:{self.name}: {reason}", "a request that it takes", "change it") from None
            self._numbers += 1
        written: list[list[int]] = [[] for _ in batch]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, ids_so_far in zip(handles, written, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        ids_so_far.extend(output.generated_ids)
            if watcher is not None and watcher(written[0]):
                handles[0].stop()
        return [self.completion_of(prompt, ids) for prompt, ids in zip(batch, written, strict=True)]

    def _config(self, prompt: PreparedPrompt, sampling: Sampling) -> Any:
        from openvino_genai import GenerationConfig, StructuredOutputConfig

        request = prompt.request
        config = GenerationConfig(max_new_tokens=prompt.room, stop_token_ids=set(self._stop_ids), do_sample=False)
        config.repetition_penalty = sampling.repetition_penalty
        config.presence_penalty, config.frequency_penalty = sampling.presence_penalty, sampling.frequency_penalty
        if request.temperature > 0:
            config.do_sample, config.temperature = True, request.temperature
            config.top_k, config.top_p = sampling.top_k or UNLIMITED_K, sampling.top_p
            config.min_p = sampling.min_p
            config.rng_seed = _seed(request)
        if request.schema is not None:
            config.structured_output_config = StructuredOutputConfig(json_schema=json.dumps(dict(request.schema)))
        return config


def open_openvino(target: str) -> OpenVinoModel:
    """A model of the catalogue or a folder; UserError when it is not there, or OpenVINO is not."""
    if not is_installed():
        remedy = "pip install 'modegraph[cpu]', or use hf: instead"
        raise UserError(f"openvino:{target}: the package openvino-genai is not installed", "it", remedy)
    from openvino_genai import ContinuousBatchingPipeline, SchedulerConfig, Tokenizer

    from graph.models.load import read_light_tokenizer

    called = f"openvino:{target}"
    own = Path(resolve(target)).expanduser() if target not in MODELS else Path(target)
    if target in MODELS and not own.is_dir():
        whole, folder = Path(resolve(target)), openvino_folder(MODELS[target], say)
    elif is_adapter(str(own)):
        whole, folder = Path(resolve(adapter_base(str(own)))), adapted_folder(own, say)
    else:
        whole = folder = own
    if not (folder / OPENVINO_MODEL).is_file():
        expected = f"a folder with {OPENVINO_MODEL}, or one of {', '.join(MODELS)}"
        raise UserError(
            f"{called}: no {OPENVINO_MODEL}", expected, "check the path, or use hf: for a model of transformers"
        )
    scheduler = SchedulerConfig()
    scheduler.enable_prefix_caching, scheduler.dynamic_split_fuse = True, True
    scheduler.max_num_batched_tokens, scheduler.cache_size = BATCH_TOKENS, 0
    with ThreadPoolExecutor(1) as beside:
        # Each takes two seconds, OpenVINO's outside of Python.
        reading = beside.submit(read_light_tokenizer, whole, called)
        try:
            pipeline = ContinuousBatchingPipeline(str(folder), Tokenizer(str(folder)), scheduler, "CPU")
        except RuntimeError as problem:
            reason = " ".join(str(problem).split())[-300:]
            raise UserError(
                f"{called} cannot be opened ({reason})", "a whole model", f"delete {folder} and try again"
            ) from None
        tokenizer = reading.result()
    config = _config_of(whole, called)
    stops = frozenset(pipeline.get_config().stop_token_ids) | {tokenizer.eos_token_id} | _stop_ids(whole)
    name = f"{whole.resolve().name}.{model_name(str(folder / OPENVINO_MODEL.replace('.xml', '.bin')))}"
    model = OpenVinoModel(name, pipeline, tokenizer, config, stops)
    model.form = answer_form(own)
    return model


def _config_of(folder: Path, called: str) -> dict[str, Any]:
    """What config.json says; UserError without the width of the window or the size of the vocabulary."""
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    values = values.get("text_config", values)
    for key in ("max_position_embeddings", "vocab_size"):
        if not isinstance(values.get(key), int):
            raise UserError(f"{called}: {file} names no {key}", "the model's config.json", "copy it beside the model")
    return dict(values)


def _stop_ids(folder: Path) -> set[int]:
    """The tokens that end a text, by the model's generation config."""
    file = folder / "generation_config.json"
    listed = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id", []) if file.is_file() else []
    return set(listed if isinstance(listed, list) else [listed])


def _seed(request: CompletionRequest) -> int:
    """The request's seed as OpenVINO takes it; without one, another draw each time."""
    seed = request.seed if request.seed is not None else int(np.random.default_rng().integers(1 << 62))
    return seed % (1 << 63)

"""`openvino:` as a language model: OpenVINO GenAI in this process, for CPUs; models of the catalogue have 8-bit weights. Prompts run in batches.

SPEC: openvino:NAME of the catalogue, openvino:FOLDER of an adapter of a catalogue model, or openvino:FOLDER with a model in OpenVINO's format
(openvino_model.xml) and its tokenizer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from graph.errors import UserError
from graph.models.checkpoint import answer_form, model_name
from graph.models.openvino_ir import OPENVINO_MODEL, locate, open_pipeline
from graph.types import Completion
from serve.engines.local import DEFAULT_SAMPLING, LocalModel, PreparedPrompt, Sampling, Watcher

UNLIMITED_K = 1 << 20


class OpenVinoModel(LocalModel):
    """A LanguageModel that wraps OpenVINO's pipeline and the model's own tokenizer. A prefix that is already in the cache is reused, and
    identical prompts in one batch are prefilled once.
    """

    kind, takes_schema = "openvino", True

    def __init__(
        self, name: str, pipeline: Any, tokenizer: Any, config: Mapping[str, Any], stop_ids: frozenset[int]
    ) -> None:
        super().__init__(name, tokenizer, int(config["max_position_embeddings"]), stop_ids)
        self._pipeline = pipeline
        self.vocabulary = int(config["vocab_size"])
        self._next_id = 0

    def run(
        self, batch: Sequence[PreparedPrompt], watcher: Watcher | None = None, sampling: Sampling = DEFAULT_SAMPLING
    ) -> list[Completion]:
        from openvino import Tensor

        if sampling.logit_bias:
            raise UserError("logit_bias with openvino:", "a request without it", "leave it out, or use hf: or gguf:")
        self._prefill(batch)
        handles = []
        for prompt in batch:
            ids = Tensor(np.array([prompt.ids], np.int64))
            try:
                handles.append(self._pipeline.add_request(self._next_id, ids, self._config(prompt, sampling)))
            except RuntimeError as problem:
                for handle in handles:
                    handle.stop()
                found = f"{self.kind}:{self.name}: {' '.join(str(problem).split())[-300:]}"
                remedy = "change the parameter or schema that the reason names"
                raise UserError(found, "a request that the engine accepts", remedy) from None
            self._next_id += 1
        generated: list[list[int]] = [[] for _ in batch]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, ids_so_far in zip(handles, generated, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        ids_so_far.extend(output.generated_ids)
            if watcher is not None and watcher(generated[0]):
                handles[0].stop()
        return [self.completion_of(prompt, ids) for prompt, ids in zip(batch, generated, strict=True)]

    def _prefill(self, batch: Sequence[PreparedPrompt]) -> None:
        """Prefill once every prompt that occurs in more than one request; simultaneous requests would each prefill it."""
        from openvino import Tensor
        from openvino_genai import GenerationConfig

        config = GenerationConfig(max_new_tokens=1, do_sample=False)
        handles = []  # kept, because a request without a handle is cancelled
        for ids, count in Counter(tuple(prompt.ids) for prompt in batch).items():
            if count > 1:
                handles.append(self._pipeline.add_request(self._next_id, Tensor(np.array([ids], np.int64)), config))
                self._next_id += 1
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()

    def _config(self, prompt: PreparedPrompt, sampling: Sampling) -> Any:
        from openvino_genai import GenerationConfig, StructuredOutputConfig

        request = prompt.request
        config = GenerationConfig(
            max_new_tokens=prompt.max_new_tokens, stop_token_ids=set(self._stop_ids), do_sample=False
        )
        config.repetition_penalty = sampling.repetition_penalty
        config.presence_penalty, config.frequency_penalty = sampling.presence_penalty, sampling.frequency_penalty
        if request.temperature > 0:
            config.do_sample, config.temperature = True, request.temperature
            config.top_k, config.top_p = sampling.top_k if sampling.top_k > 0 else UNLIMITED_K, sampling.top_p
            config.min_p = sampling.min_p
            seed = request.seed if request.seed is not None else int(np.random.default_rng().integers(1 << 62))
            config.rng_seed = seed % (1 << 63)  # The range that OpenVINO accepts.
        if request.schema is not None:
            config.structured_output_config = StructuredOutputConfig(json_schema=json.dumps(dict(request.schema)))
        return config


def open_openvino(target: str) -> OpenVinoModel:
    """Open a model of the catalogue or a folder; UserError when the model or OpenVINO is missing."""
    from graph.models.light_tokenizer import read_light_tokenizer

    spec = f"openvino:{target}"
    source, folder = locate(target)
    with ThreadPoolExecutor(1) as executor:
        # Tokenizer and pipeline take two seconds each to load; OpenVINO releases Python's global interpreter lock meanwhile.
        tokenizer_future = executor.submit(read_light_tokenizer, source, spec)
        pipeline = open_pipeline(folder, target)
        tokenizer = tokenizer_future.result()
    config = _config_of(source, spec)
    end_ids = set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
    stop_ids = frozenset(pipeline.get_config().stop_token_ids) | end_ids | _stop_ids(source)
    name = f"{source.resolve().name}.{model_name(str(folder / OPENVINO_MODEL.replace('.xml', '.bin')))}"
    model = OpenVinoModel(name, pipeline, tokenizer, config, stop_ids)
    model.form = answer_form(Path(target).expanduser())
    return model


def _config_of(folder: Path, spec: str) -> dict[str, Any]:
    """The values of config.json; UserError if the size of the window or of the vocabulary is missing."""
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    values = values.get("text_config", values)
    for key in ("max_position_embeddings", "vocab_size"):
        if not isinstance(values.get(key), int):
            raise UserError(f"{spec}: {file} has no {key}", "the model's config.json", "copy it next to the model")
    return dict(values)


def _stop_ids(folder: Path) -> set[int]:
    """The stop token ids of the model's generation config."""
    file = folder / "generation_config.json"
    configured = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.is_file() else None
    return {configured} if isinstance(configured, int) else set(configured or ())

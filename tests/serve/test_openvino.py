"""OpenVINO as an engine, with smollm2 in 8 bits: agreement with transformers, simultaneous requests, streams, schemas."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from graph.answer import template
from graph.errors import UserError
from graph.models import openvino_ir
from graph.models.catalogue import MODELS, SMOLLM2, PretrainedModel, folder_of, is_fetched
from graph.models.light_tokenizer import LightTokenizer, read_light_tokenizer
from graph.models.openvino_ir import BATCH_TOKENS
from graph.types import CompletionRequest, Message
from serve.engines import open_model
from serve.engines.local import Sampling
from serve.engines.openvino import OpenVinoModel, open_openvino
from tests.places import ROOT
from tests.serve.test_llama import QUESTIONS, REPLY, SCHEMA, request_of, with_smollm2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not openvino_ir.is_installed(), reason="openvino-genai is not installed: pip install 'modegraph[cpu]'"
    ),
    with_smollm2,
]


@pytest.fixture(scope="module")
def model() -> OpenVinoModel:
    return open_openvino("smollm2")


def test_the_engine_agrees_with_transformers_for_single_and_simultaneous_requests(model: OpenVinoModel) -> None:
    requests = [request_of(question) for question in QUESTIONS]
    alone = [model.complete([each])[0] for each in requests]
    assert model.complete(requests) == alone
    by_transformers = open_model("hf:smollm2").complete(requests)
    assert alone[0].text.startswith(REPLY) and by_transformers[0].text.startswith(REPLY)
    assert sum(one.text == other.text for one, other in zip(alone, by_transformers, strict=True)) >= 4
    assert [one.prompt_tokens for one in alone] == [one.prompt_tokens for one in by_transformers]


def test_a_prompt_shared_by_several_requests_is_prefilled_once(
    model: OpenVinoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step prefills at most BATCH_TOKENS tokens, so the number of steps shows how often the prompt that eight requests share is prefilled."""
    long = (Message("user", f"{'The ferry was built in 1911. ' * (2 * BATCH_TOKENS // 8)}When?"),)
    requests = [CompletionRequest(long, 4, 1.0, seed=seed) for seed in range(8)]
    pipeline, steps = model._pipeline, []

    class StepCounter:
        def __getattr__(self, name: str) -> Any:
            steps.extend([name] * (name == "step"))
            return getattr(pipeline, name)

    monkeypatch.setattr(model, "_pipeline", StepCounter())
    completions = model.complete(requests)
    assert len(steps) < 12, (
        "the shared prompt should be prefilled once; prefilling it for each of the eight requests would take more than sixteen steps"
    )
    assert len({each.text for each in completions}) > 1


@pytest.mark.parametrize("pretrained", filter(is_fetched, MODELS.values()), ids=lambda model: model.name)
def test_the_light_tokenizer_agrees_with_the_tokenizer_of_transformers(pretrained: PretrainedModel) -> None:
    """The two tokenizers give the same ids for text in several scripts, special tokens and whole chats, and decode them to the same text."""
    folder = folder_of(pretrained)
    light, reference = read_light_tokenizer(folder, pretrained.name), AutoTokenizer.from_pretrained(folder)
    assert isinstance(light, LightTokenizer)
    texts = ["It's  a\n\ntest, b’s", "<|im_end|> <think>", "東京 😀 naïve", "x = [1, 2]\tfor", ""]
    for text in texts:
        ids = reference(text)["input_ids"]
        assert light(text)["input_ids"] == ids
        for skip in (True, False):
            assert light.decode(ids, skip_special_tokens=skip) == reference.decode(ids, skip_special_tokens=skip)
        chat = (Message("system", "Be short."), Message("user", f"{text}?"), Message("assistant", "No."))
        for turns in (chat[:2], chat[1:2], (*chat, chat[1])):
            assert template.prompt_ids(light, turns) == template.prompt_ids(reference, turns)
    chats = [(chat[:2], "in 1911"), (chat[1:2], "")]
    assert template.chat_ids(light, chats) == template.chat_ids(reference, chats)
    assert light.eos_token_id == reference.eos_token_id


def test_the_engine_answers_without_torch_transformers_or_openai() -> None:
    """Runs in a separate process. Importing torch would take five seconds and 0.4 GB, transformers one second, openai half a second."""
    code = (
        "import sys; from serve.engines import open_model;"
        "from graph.types import CompletionRequest, Message;"
        "request = CompletionRequest((Message('user', 'Where?'),), 4);"
        "print(open_model('openvino:smollm2').complete([request])[0].completion_tokens, 'torch' in sys.modules,"
        "'transformers' in sys.modules, 'openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.split() == ["4", "False", "False", "False"]


def test_replies_follow_the_schema_and_repeat_with_the_seed(model: OpenVinoModel) -> None:
    requests = [request_of("Name a town, as JSON.", 40, 1.0, seed=seed, schema=SCHEMA) for seed in (1, 1, 2, 3)]
    texts = [each.text for each in model.complete(requests)]
    assert all(set(json.loads(text)) == {"town"} for text in texts)
    assert texts[0] == texts[1] and len(set(texts)) > 1


def test_a_negative_top_k_sets_no_limit(model: OpenVinoModel) -> None:
    request = request_of("Name a town.", 8, 1.5, seed=2)
    model.complete(
        [request]
    )  # the first run of a prompt may differ in rounding from later ones, which find it in the cache
    assert model.stream(request, lambda ids: False, Sampling(top_k=-1)) == model.complete([request])[0]


def test_a_watcher_is_called_after_each_token_and_can_stop_the_generation(model: OpenVinoModel) -> None:
    lengths: list[int] = []

    def watch(ids: list[int]) -> bool:
        lengths.append(len(ids))
        return len(ids) >= 5

    cut = model.stream(request_of("Count to one hundred in words.", 200), watch)
    assert lengths[:5] == [1, 2, 3, 4, 5] and cut.completion_tokens < 10
    assert model.complete([request_of(SMOLLM2.question)])[0].text.startswith(REPLY), (
        "the stopped request should no longer run"
    )


def test_a_logit_bias_is_refused(model: OpenVinoModel) -> None:
    with pytest.raises(UserError, match="logit_bias with openvino:"):
        model.stream(request_of("hi"), lambda ids: False, Sampling(logit_bias={1: 1.0}))


def test_a_prompt_longer_than_the_window_is_refused(model: OpenVinoModel) -> None:
    with pytest.raises(UserError, match=r"openvino:.*a prompt of 9,\d\d\d tokens"):
        model.complete([CompletionRequest((Message("user", "word " * 9000),), 8)])


def test_missing_files_and_packages_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no openvino_model\.xml"):
        open_openvino(str(tmp_path))
    (tmp_path / "openvino_model.xml").write_text("<net>")
    with pytest.raises(UserError, match=r"openvino:.*cannot be opened .* Convert the model again$"):
        open_openvino(str(tmp_path))
    with pytest.raises(UserError, match=f"openvino:smollm2 cannot be opened .* Delete {tmp_path} and try again$"):
        openvino_ir.open_pipeline(tmp_path, "smollm2")
    monkeypatch.setattr(openvino_ir, "OPENVINO_PACKAGE", "nothing_of_this_name")
    with pytest.raises(UserError, match=r"is not installed.*pip install 'modegraph\[cpu\]'"):
        open_openvino("smollm2")

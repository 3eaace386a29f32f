"""llama.cpp's server as an engine, with the GGUF file of smollm2: agreement with transformers on the same weights, refusals, and stopping the server."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from graph.errors import UserError
from graph.models.catalogue import SMOLLM2, gguf_of, is_fetched
from graph.types import CompletionRequest, LanguageModel, Message
from serve.engines import llama, open_model
from serve.engines.child import CommandServer
from serve.engines.child_backend import LlamaBackend, llama_body
from serve.engines.llama import CONTEXT_TOKENS, LlamaSpec, open_llama, read_llama
from serve.engines.openai_api import OpenAIModel
from serve.http.errors import ApiError
from tests.llama import with_llama
from tests.processes import command_lines, until

with_smollm2 = pytest.mark.skipif(
    not is_fetched(SMOLLM2), reason="smollm2 is not fetched: modegraph models get smollm2"
)
with_llama_and_smollm2 = [with_llama, with_smollm2]
pytestmark = with_llama_and_smollm2
QUESTIONS = (
    SMOLLM2.question,
    "Who wrote Romeo and Juliet?",
    "How many days are in a week?",
    "What is the largest ocean on Earth?",
    "Name the first president of the United States.",
    "What language is spoken in France?",
)
REPLY = "The chemical symbol for water is H2O."
SCHEMA = {"type": "object", "properties": {"town": {"type": "string", "maxLength": 20}}, "required": ["town"]}


def request_of(text: str, max_tokens: int = 16, temperature: float = 0.0, **options: object) -> CompletionRequest:
    return CompletionRequest((Message("user", text),), max_tokens, temperature, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return open_model("gguf:smollm2")


def test_the_engine_agrees_with_transformers_for_single_and_simultaneous_requests(model: LanguageModel) -> None:
    """The same weights, in 4 bits for llama.cpp and dequantised for transformers. In a batch, rounding differs and may change a token that is nearly tied."""
    requests = [request_of(question) for question in QUESTIONS]
    alone = [model.complete([each])[0] for each in requests]
    batched = model.complete(requests)
    assert [one.prompt_tokens for one in batched] == [one.prompt_tokens for one in alone]
    assert sum(one == other for one, other in zip(batched, alone, strict=True)) >= 5
    by_transformers = open_model("hf:smollm2").complete(requests)
    assert alone[0].text.startswith(REPLY) and by_transformers[0].text.startswith(REPLY)
    assert sum(one.text == other.text for one, other in zip(alone, by_transformers, strict=True)) >= 5
    assert [one.prompt_tokens for one in alone] == [one.prompt_tokens for one in by_transformers]


def test_token_counts_equal_those_of_transformers(model: LanguageModel) -> None:
    transformers_model = open_model("hf:smollm2")
    chat = [Message("system", "Answer briefly."), Message("user", "Who lit the Lantern in 1902?")]
    assert model.prompt_tokens(chat) == transformers_model.prompt_tokens(chat) and model.window() == CONTEXT_TOKENS
    assert model.count_tokens("Who lit the Lantern?") == transformers_model.count_tokens("Who lit the Lantern?")


def test_replies_follow_the_schema_and_repeat_with_the_seed(model: LanguageModel) -> None:
    """The requests are sent one at a time: a batch rounds differently, which may change a sampled token."""
    requests = [request_of("Name a town, as JSON.", 40, 1.0, seed=seed, schema=SCHEMA) for seed in (1, 1, 2, 3)]
    texts = [model.complete([each])[0].text for each in requests]
    assert all(set(json.loads(text)) == {"town"} for text in texts)
    assert texts[0] == texts[1] and len(set(texts)) > 1


def test_a_prompt_that_is_too_long_is_refused_without_failing_the_others(model: LanguageModel) -> None:
    long, short = model.complete([request_of("word " * (CONTEXT_TOKENS + 10)), request_of(SMOLLM2.question)])
    assert long.finish_reason == "refused" and "context size" in long.text
    assert short.text.startswith(REPLY)


def test_a_file_is_opened_only_once(model: LanguageModel) -> None:
    assert open_llama("smollm2") is model and open_llama(str(gguf_of(SMOLLM2))) is model
    assert model.name.startswith("SmolLM2-135M-Instruct.Q4_1#"), (
        "the name should be that of the file, however the model was specified"
    )


def test_the_key_is_required_and_appears_on_no_command_line(model: LanguageModel) -> None:
    assert isinstance(model, OpenAIModel)
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    with httpx2.Client(trust_env=False) as client:
        assert client.post(f"{model.url}/chat/completions", json=body).status_code == 401
    assert not any(model._client.api_key in line for line in command_lines())


def test_the_server_ends_when_the_process_that_started_it_is_killed() -> None:
    script = (
        "import os\n"
        "from graph.types import CompletionRequest, Message\n"
        "from serve.engines import open_model\n"
        "model = open_model('gguf:smollm2')\n"
        f"completions = model.complete([CompletionRequest((Message('user', {SMOLLM2.question!r}),), 16)])\n"
        "print(model.url, completions[0].text, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], check=False, capture_output=True)
    url, answer = done.stdout.decode().split(" ", 1)
    assert answer.startswith(REPLY), done.stderr

    def gone() -> bool:
        try:
            httpx2.get(url.replace("/v1", "/health"), trust_env=False)
        except httpx2.ConnectError:
            return True
        except httpx2.TransportError:
            return False  # The server exited while answering.
        return False

    until(gone, 40)


@pytest.mark.parametrize("content", [b"", b"PK\3\4 no model", b"GGUF and then nothing"])
def test_a_file_that_is_not_a_model_is_reported_in_one_line(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"not a GGUF file|llama\.cpp exited before it answered") as problem:
        open_llama(str(file)).complete([request_of("hi")])
    assert "\n" not in str(problem.value)


def test_missing_files_and_packages_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no such file\. Expected a GGUF file or a folder with one, or one of smollm2"):
        read_llama("nowhere.gguf", {})
    with pytest.raises(UserError, match="0 GGUF files"):
        read_llama(str(tmp_path), {})
    for name in ("one", "two"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match="2 GGUF files"):
        read_llama(str(tmp_path), {})
    with pytest.raises(UserError, match=r"--adapter mine=.*nowhere\.gguf: no such file"):
        read_llama("smollm2", {"mine": tmp_path / "nowhere.gguf"})
    with pytest.raises(UserError, match="another name"):
        read_llama("smollm2", {"smollm2": tmp_path / "one.gguf"})
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "adapter-f16.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"an adapter of an unknown base.*--adapter NAME="):
        read_llama(str(tmp_path / "alone"), {})
    monkeypatch.setattr(llama, "PACKAGE", "nothing_of_this_name")
    with pytest.raises(UserError, match=r"is not installed.*pip install 'modegraph\[cpu\]'"):
        read_llama("smollm2", {})


def test_an_exported_adapter_is_applied_to_the_base_that_its_record_names(tmp_path: Path) -> None:
    (tmp_path / "adapter-f16.gguf").write_bytes(b"GGUF")
    (tmp_path / "run.json").write_text(json.dumps({"base_model": "smollm2"}))
    for name in (tmp_path.name, "smollm2"):
        with pytest.raises(UserError, match=f"--adapter {name}=….*another name"):
            read_llama(str(tmp_path), {name: tmp_path / "adapter-f16.gguf"})
    spec = read_llama(str(tmp_path), {})
    assert spec.file == gguf_of(SMOLLM2).resolve() and spec.name == "smollm2"
    on_base = read_llama("smollm2", {"other": tmp_path / "adapter-f16.gguf"})
    for each, models in ((spec, (tmp_path.name, "smollm2")), (on_base, ("smollm2", "other"))):
        backend = LlamaBackend(each)
        backend.child.log.unlink()
        assert backend.models == models, "the model that the user named should come first"
    assert spec.extra(tmp_path.name)["lora"] == [{"id": 0, "scale": 1.0}]
    assert spec.extra("smollm2")["lora"] == [{"id": 0, "scale": 0.0}], "the base should answer without the adapter"
    assert spec.extra("smollm2")["chat_template_kwargs"] == {"enable_thinking": False}, (
        "thinking should be turned off, as in training"
    )


def test_fields_that_llama_cpp_would_ignore_are_refused_unless_they_change_nothing() -> None:
    extra, request_body = LlamaSpec(Path("m.gguf"), "m", {}).extra("m"), {"model": "mine", "max_completion_tokens": 5}
    for field, neutral in (("include_reasoning", True), ("return_token_ids", False), ("min_tokens", 0)):
        assert llama_body({**request_body, field: neutral}, extra, "m")["max_tokens"] == 5
        with pytest.raises(ApiError, match=f"{field}: llama.cpp has no such field") as problem:
            llama_body({**request_body, field: not neutral}, extra, "m")
        assert (problem.value.status, problem.value.param) == (400, field)


def test_template_arguments_of_a_request_are_added_to_the_default_ones() -> None:
    extra = LlamaSpec(Path("m.gguf"), "m", {}).extra("m")
    for sent, expected in (
        ({"style": "short"}, {"enable_thinking": False, "style": "short"}),
        ({"enable_thinking": True}, {"enable_thinking": True}),
    ):
        body = llama_body({"model": "mine", "chat_template_kwargs": sent}, extra, "m")
        assert (body["model"], body["chat_template_kwargs"]) == ("m", expected)


@pytest.mark.parametrize(("requested", "threads"), [("3", 3), ("", None), ("0", None), ("2,1", None)])
def test_the_number_of_threads_is_taken_from_the_environment(
    requested: str, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", requested)
    options = json.loads(LlamaSpec(Path("m.gguf"), "m", {}).command(1)[-1])
    assert options["threads"] == (threads or len(os.sched_getaffinity(0)))


def test_a_server_that_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    server = CommandServer(LlamaSpec(tmp_path / "gone.gguf", "gone", {}))
    with pytest.raises(UserError, match=r"gguf:.*gone\.gguf: llama\.cpp exited before it answered \(.*see /"):
        server.wait()
    server.close()
    assert server.log.exists()


def test_a_model_whose_server_has_exited_is_opened_again(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    ended = open_llama(str(tmp_path / "broken.gguf"))
    until(lambda: ended.has_exited)
    again = open_llama(str(tmp_path / "broken.gguf"))
    assert again is not ended and again._server.url != ended._server.url


def test_waiting_for_a_local_server_does_not_use_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class HttpServerSpec(LlamaSpec):
        def command(self, port: int) -> list[str]:
            folder = ["--directory", str(tmp_path)]
            return [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", *folder]

    (tmp_path / "health").touch()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = CommandServer(HttpServerSpec(tmp_path / "m.gguf", "m", {}))
    waiting = threading.Thread(target=server.wait, daemon=True)
    waiting.start()
    waiting.join(20)
    server.close()
    assert server._answered

"""`serve check` against a real llama.cpp: a server that applies an adapter to its base correctly, and injected faults, each of which is identified."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graph.errors import UserError
from graph.types import Message
from serve.engines.child import CommandServer
from serve.engines.llama import SLOTS, LlamaSpec
from tests import commands
from tests.eval.conftest import NO_LOGPS, World, check_server
from tests.llama import with_llama
from tests.train.adapters import random_adapter
from train.export import gguf_export
from train.export.export import merged_model
from train.export.gguf import write_adapter, write_gguf
from train.export.gguf_export import export_gguf
from train.export.server import llama_client
from train.model.load import load_model, load_tokenizer

pytestmark = [with_llama, pytest.mark.slow]


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named sft, whose adapter has enough effect to be distinguished from no adapter and from the adapter applied twice."""
    return random_adapter(str(world.base), world.data, tmp_path_factory.mktemp("llama") / "sft", size=0.1)


@pytest.fixture(scope="module")
def files(run: Path, world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base.gguf, merged.gguf, other.gguf (merged, with another chat template) and adapter.gguf."""
    folder = tmp_path_factory.mktemp("files")
    tokenizer, whole = load_tokenizer(str(run)), merged_model(run, "float32")
    write_gguf(load_model(str(world.base), "float32"), tokenizer, folder / "base.gguf", "f16", "base")
    write_gguf(whole, tokenizer, folder / "merged.gguf", "f16", "merged")
    write_adapter(load_model(str(run), "float32"), folder / "adapter.gguf", "f16", "sft", "base")
    before = tokenizer.chat_template
    tokenizer.chat_template = before.replace("assistant", "helper")
    assert tokenizer.chat_template != before
    write_gguf(whole, tokenizer, folder / "other.gguf", "f16", "other")
    return folder


Scale = Callable[[float], str]


def with_adapter(base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scale]:
    """Serve a GGUF file with an adapter; yield a function that sets the adapter's scale for requests without one and returns the server's URL."""
    with closing(CommandServer(LlamaSpec(base, base.stem, {"adapter": adapter}))) as child:
        child.wait()
        monkeypatch.setenv("OPENAI_API_KEY", child.key)

        def scale(value: float) -> str:
            body = json.dumps([{"id": 0, "scale": value}]).encode()
            head = {"Authorization": f"Bearer {child.key}", "Content-Type": "application/json"}
            url = child.url.removesuffix("/v1") + "/lora-adapters"
            with urllib.request.urlopen(urllib.request.Request(url, body, head)) as answer:
                assert answer.status == 200
            return child.url

        yield scale
    assert not child.log.exists()


@pytest.fixture
def adapter_on_base(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scale]:
    """What `with_adapter` yields for a server of the base with the adapter."""
    yield from with_adapter(files / "base.gguf", files / "adapter.gguf", monkeypatch)


@pytest.fixture
def adapter_on_merged(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scale]:
    """What `with_adapter` yields for a server of the merged model with the adapter applied again."""
    yield from with_adapter(files / "merged.gguf", files / "adapter.gguf", monkeypatch)


def test_a_correct_server_has_no_faults(adapter_on_base: Scale, run: Path) -> None:
    """A server given by URL is checked as the adapter at scale 1 and as its base at scale 0; the log-probabilities that it does not report are unchecked."""
    status, result = check_server(adapter_on_base(1.0), run)
    assert (status, result["faults"]) == (0, [])
    assert result["unchecked"] == [f"base: {NO_LOGPS}", f"base at scale 0: {NO_LOGPS}"]
    lines = [(line["model"], line["adapter"], line["answers"], line["batch"]) for line in result["measured"]]
    assert lines == [
        (name, adapter, "greedy", batch)
        for name, adapter in (("base", True), ("base at scale 0", False))
        for batch in (1, 16)
    ]


def test_a_check_does_not_affect_the_next_one(adapter_on_base: Scale, run: Path) -> None:
    """The second check sends, at scale 1, prompts that the first check sent at scale 0: llama.cpp must not reuse their cache."""
    url = adapter_on_base(1.0)
    assert [check_server(url, run)[1]["faults"] for _ in range(2)] == [[], []]


def test_no_answer_depends_on_the_adapter_of_an_earlier_request(files: Path, run: Path) -> None:
    """The adapter, its base and the adapter again get the same prompts, more than there are slots; the log-probabilities equal those of a server
    that is sent requests for only one of the two."""
    spec = LlamaSpec(files / "base.gguf", "base", {"tuned": files / "adapter.gguf"})
    tokenizer = load_tokenizer(str(run))
    prompts = [" ".join(f"w{(number * 7 + place**2) % 97}" for place in range(60)) for number in range(SLOTS + 2)]

    def logps(*models: str) -> dict[str, list[float]]:
        with closing(CommandServer(spec)) as child:
            child.wait()
            server = llama_client(spec, child)
            return {
                model: [sum(server.greedy(model, [Message("user", text)], 4, tokenizer).logps) for text in prompts]
                for model in models
            }

    alone = logps("tuned") | logps("base")
    assert min(abs(a - b) for a, b in zip(alone["tuned"], alone["base"], strict=True)) > 0.1
    mixed = logps("tuned", "base", "tuned")
    assert mixed["base"] == pytest.approx(alone["base"], abs=0.01)
    assert mixed["tuned"] == pytest.approx(alone["tuned"], abs=0.01)


def test_an_adapter_that_is_not_loaded_is_reported(adapter_on_base: Scale, run: Path) -> None:
    status, result = check_server(adapter_on_base(0.0), run)
    assert status == 1 and len(result["faults"]) == 1
    assert result["faults"][0].startswith("base: the adapter is not loaded") and "--lora FILE" in result["faults"][0]


def test_an_adapter_at_scale_two_is_reported(adapter_on_base: Scale, run: Path) -> None:
    status, result = check_server(adapter_on_base(2.0), run)
    assert status == 1 and len(result["faults"]) == 1
    assert result["faults"][0].startswith("base: the adapter is applied twice") and "scale 2" in result["faults"][0]


def test_a_merged_file_with_the_adapter_applied_again_is_reported(adapter_on_merged: Scale, run: Path) -> None:
    status, result = check_server(adapter_on_merged(1.0), run)
    assert status == 1
    assert [fault.partition(" (")[0].partition(": log")[0] for fault in result["faults"]] == [
        "merged: the adapter is applied twice",
        "merged at scale 0: the base already contains the adapter",
    ]


def test_a_merged_file_has_no_faults(files: Path, run: Path) -> None:
    status, result = check_server(f"gguf:{files / 'merged.gguf'}", run)
    assert (status, result["faults"]) == (0, []) and result["server"] == f"gguf:{files / 'merged.gguf'}"
    assert result["unchecked"][-1].startswith("merged without its adapter: gguf:")


def test_the_base_served_instead_of_the_run_is_reported(files: Path, run: Path) -> None:
    status, result = check_server(f"gguf:{files / 'base.gguf'}", run)
    assert status == 1 and len(result["faults"]) == 1
    assert result["faults"][0].startswith("base: the adapter is not loaded")


def test_another_chat_template_is_reported(files: Path, run: Path) -> None:
    status, result = check_server(f"gguf:{files / 'other.gguf'}", run)
    assert status == 1 and len(result["faults"]) == 1
    assert result["faults"][0].startswith("other: another chat template: the prompt of conversation 1 has ")
    assert "it reads 'helper" in result["faults"][0] and "--chat-template-file" in result["faults"][0]


def test_the_folder_of_an_export_has_no_faults(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_export, "is_installed", lambda: False)
    export_gguf(run, tmp_path / "out", "f16")
    status, result = check_server(f"gguf:{tmp_path / 'out'}", run)
    assert (status, result["faults"]) == (0, []) and result["measured"][0]["model"] == "out"


def test_a_missing_file_is_an_error(run: Path, tmp_path: Path) -> None:
    done = commands.run("serve", "check", f"gguf:{tmp_path / 'none'}", run)
    assert isinstance(done.exception, UserError) and "no such file" in str(done.exception)

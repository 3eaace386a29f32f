"""`serve check` against a real vLLM in float32, with smollm2 and a LoRA adapter: correct servers and faulty ones.

Runs only if tests/vllm.py finds vLLM.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from data_synth.rows import PreferenceRow, preference_to_json
from eval.server_parity.check import RunPolicy, read_target
from eval.server_parity.faults import ServedLogps, gaps_between, no_effect_fault
from graph.answer.prompt import answer_messages
from graph.models.catalogue import resolve
from graph.shared.jsonl import write_jsonl
from serve.engines.openai_api import open_openai
from tests.eval.conftest import check_server
from tests.serve.structured import count_valid
from tests.train.adapters import random_adapter, with_smollm2
from tests.train.world import preference
from tests.vllm import serving, with_vllm
from train.export.export import merged_model
from train.export.server import Server
from train.model.load import load_tokenizer
from train.model.logps import tokenize_row
from train.run.record import read_run

pytestmark = [*with_vllm, with_smollm2]
CONVERSATIONS, STRUCTURED = 100, 24
FLOAT32 = ("--dtype", "float32", "--enable-lora", "--max-lora-rank", 8, "--lora-modules")


def row(number: int) -> PreferenceRow:
    """Row `number` of an infinite series in which all rows differ."""
    original = preference(number % 4)
    question = f"{original.question[:-1]} in {1900 + number}?"
    return replace(original, id=f"q{number}", question=question, prompt=answer_messages(question, ()))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run named sft, whose adapter has enough effect to be distinguished from no adapter and from the adapter applied twice."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "data").mkdir()
    for name, rows in (("train", range(4)), ("dev", range(CONVERSATIONS))):
        write_jsonl(folder / "data" / f"{name}.jsonl", (preference_to_json(row(number)) for number in rows))
    return random_adapter("smollm2", folder / "data", folder / "sft", size=0.02)


@pytest.fixture(scope="module")
def correct_server(run: Path) -> Iterator[str]:
    """A server of smollm2 and its adapter `sft`; `forgotten` is a second name for the base, to simulate an adapter that was not loaded."""
    with serving(Path(resolve("smollm2")), 1024, "smollm2 forgotten", (*FLOAT32, f"sft={run}")) as server:
        yield server.url


@pytest.fixture(scope="module")
def faulty_server(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the merged model with the adapter applied again, and a chat template with a colon instead of a line break."""
    folder = tmp_path_factory.mktemp("faulty") / "merged"
    merged_model(run, "float32").save_pretrained(folder)
    load_tokenizer(str(run)).save_pretrained(folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("message['role'] + '\n'", "message['role'] + ': '"))
    assert template.read_text() != (run / template.name).read_text()
    with serving(folder, 1024, "merged", (*FLOAT32, f"sft={run}")) as server:
        yield server.url
    shutil.rmtree(folder)


def test_a_correct_server_has_no_faults(correct_server: str, run: Path) -> None:
    """A server given by its URL alone: the model with the run's name is checked, and vLLM reports its base."""
    status, report = check_server(correct_server, run)
    assert (status, report["faults"], report["unchecked"]) == (0, [], [])
    lines = [(line["model"], line["adapter"], line["answers"], line["batch"]) for line in report["measured"]]
    assert lines == [
        (name, adapter, answers, batch)
        for name, adapter in (("sft", True), ("smollm2", False))
        for answers, batch in (("training", 1), ("greedy", 1), ("greedy", 16))
    ]
    assert max(line["gaps"]["conversation"] for line in report["measured"]) < 0.01
    assert all(line["likeliest"] > 0.98 for line in report["measured"] if line["answers"] == "greedy")


def test_an_adapter_that_is_not_loaded_is_reported(correct_server: str, run: Path) -> None:
    status, report = check_server(f"openai:forgotten@{correct_server}", run, "--base-name", "smollm2")
    assert status == 1 and len(report["faults"]) == 1 and report["unchecked"] == []
    assert (
        report["faults"][0].startswith("forgotten: the adapter is not loaded")
        and "--lora-modules" in report["faults"][0]
    )


def test_an_adapter_without_effect_is_reported(correct_server: str, run: Path, tmp_path: Path) -> None:
    """An adapter of zeros does not change the base, so the server is correct: the fault is in the run."""
    idle = random_adapter("smollm2", run.parent / "data", tmp_path / "idle", size=0.0)
    status, report = check_server(f"openai:smollm2@{correct_server}", idle, "--base-name", "smollm2")
    assert status == 1 and report["unchecked"] == []
    assert report["faults"] == [no_effect_fault(str(idle), 0.0)]


def test_an_adapter_applied_to_its_merged_model_and_another_template_are_reported(
    faulty_server: str, run: Path
) -> None:
    """Both faults are reported for the adapter and for its base."""
    status, report = check_server(f"openai:sft@{faulty_server}", run)
    assert status == 1
    heads = [fault.partition(";")[0].partition(" (")[0] for fault in report["faults"]]
    assert [head.split(": ")[:2] for head in heads] == [
        ["sft", "the adapter is applied twice"],
        ["sft", "another chat template"],
        ["merged", "the base already contains the adapter"],
        ["merged", "another chat template"],
    ]


def test_another_chat_template_is_reported(faulty_server: str, run: Path) -> None:
    """Without the adapter, the merged model agrees with the run, but its prompt is not the one used in training."""
    status, report = check_server(f"openai:merged@{faulty_server}", run)
    assert status == 1 and len(report["faults"]) == 1
    assert report["faults"][0].startswith("merged: another chat template: the prompt of conversation 1 has ")
    assert "from token 3 on, it reads ':" in report["faults"][0] and "chat_template.jinja" in report["faults"][0]
    assert report["unchecked"] == [
        f"merged without its adapter: {faulty_server} does not name the base; if it serves the base, give --base-name"
    ]


def test_the_server_and_the_run_differ_by_less_than_a_twentieth_of_a_nat_in_each_of_a_hundred_conversations(
    correct_server: str, run: Path
) -> None:
    """Conversations as training tokenises them; `conversation` is the largest gap summed over an answer, `token` the mean gap of a token."""
    server, policy = Server(correct_server), RunPolicy(run, read_run(run))
    rows = [tokenize_row(policy.tokenizer, each.prompt, each.chosen) for each in map(row, range(CONVERSATIONS))]
    assert len(set(rows)) == CONVERSATIONS
    # One by one: vLLM 0.32 on a CPU may crash on a batch of such requests.
    logps_of_row = [server.prompt_logps("sft", each.ids) for each in rows]
    served = [
        ServedLogps(each, logps[each.prompt_tokens - 1 :])
        for each, logps in zip(rows, logps_of_row, strict=True)
        if logps is not None
    ]
    assert len(served) == CONVERSATIONS
    gaps = gaps_between(served, policy.score_completion(rows, "trained"))
    print(f"{CONVERSATIONS} conversations: {gaps}")
    assert gaps.conversation < 0.05 and gaps.token < 0.001


def test_at_least_99_percent_of_structured_replies_are_valid(correct_server: str) -> None:
    valid, total = count_valid(open_openai(f"smollm2@{correct_server}"), STRUCTURED)
    print(f"{valid} of {total}")
    assert total >= 100 and sum(valid.values()) / total >= 0.99


def test_the_server_names_the_base_of_each_adapter_and_a_target_may_name_a_model(correct_server: str) -> None:
    assert Server(correct_server).parents() == {"smollm2": "", "forgotten": "", "sft": "smollm2"}
    assert read_target(f"openai:sft@{correct_server}") == ("sft", correct_server)
    assert read_target(correct_server) == ("", correct_server)

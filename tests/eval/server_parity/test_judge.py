"""How differences between a server and a run are judged, on made-up figures; and `serve check` as a command next to `serve INDEX`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eval.server_parity.check import RunPolicy, read_target
from eval.server_parity.faults import (
    Gaps,
    ServedLogps,
    Tolerance,
    explaining_state,
    gaps_between,
    logps_fault,
    template_fault,
)
from graph.errors import UserError
from graph.types import Message
from tests.commands import run
from tests.eval.conftest import World
from tests.servers import QuietHandler, http_server
from tests.train.adapters import random_adapter
from tests.train.world import preference
from train.export.divergence import CompletionScores
from train.export.server import Server, token_ids
from train.model.load import load_policy, load_tokenizer
from train.model.logps import TokenizedRow, completion_logps, pad_rows, tokenize_row
from train.run.record import read_run

TOLERANCE = Tolerance(conversation=0.05, token=0.01)


def served_logps(*logps: float) -> ServedLogps:
    return ServedLogps(TokenizedRow((1, *range(2, 2 + len(logps))), 1), logps)


def scores(*logps: float) -> CompletionScores:
    return CompletionScores(logps, tuple(0.0 for _ in logps))


def test_signed_gaps_are_summed_per_conversation() -> None:
    """Gaps of +.5 and −.25 in one conversation, −.125 in the other: the sums are .25 and −.125, the mean absolute gap per token .875 / 3, the largest .5."""
    gaps = gaps_between([served_logps(-1.0, -2.0), served_logps(-3.0)], [scores(-1.5, -1.75), scores(-2.875)])
    assert gaps == Gaps(0.25, pytest.approx(0.875 / 3), 0.5)


@pytest.mark.parametrize(
    ("expected", "trained", "bare", "twice", "cause", "words"),
    [
        ("trained", 0.4, 0.001, 0.9, "bare", "the adapter is not loaded"),
        ("trained", 0.4, 0.9, 0.02, "twice", "the adapter is applied twice"),
        ("bare", 0.0, 0.4, 0.5, "trained", "the base already contains the adapter"),
        ("trained", 0.4, 0.2, 0.9, None, "log-probabilities differ"),
        ("trained", 0.04, 0.4, 0.5, None, "tolerance 0.01 and 0.05"),
    ],
)
def test_the_cause_is_the_state_of_the_adapter_that_leaves_no_gap(
    expected: str, trained: float, bare: float, twice: float, cause: str | None, words: str
) -> None:
    gaps = {how: Gaps(10 * gap, gap, gap) for how, gap in (("trained", trained), ("bare", bare), ("twice", twice))}
    assert explaining_state(expected, gaps) == cause  # type: ignore[arg-type]
    fault = logps_fault("sft", "runs/sft", expected, gaps, 1, TOLERANCE)  # type: ignore[arg-type]
    assert fault.startswith("sft: ") and words in fault and ";" in fault


def test_both_tolerances_must_be_met() -> None:
    assert TOLERANCE.allows(Gaps(0.05, 0.01, 1.0))
    assert not TOLERANCE.allows(Gaps(0.051, 0.0, 0.1)) and not TOLERANCE.allows(Gaps(0.0, 0.011, 0.1))


def test_a_template_fault_names_the_first_differing_token(world: World) -> None:
    tokenizer = load_tokenizer(str(world.base))
    ours, theirs = (tokenizer(text)["input_ids"] for text in ("user\nWho lives?", "user: Who lives?"))
    fault = template_fault("sft", "runs/sft", 3, ours, theirs, tokenizer)
    assert f"conversation 3 has {len(theirs)} tokens, training's {len(ours)}" in fault
    assert "instead of '\\n" in fault and "runs/sft/chat_template.jinja" in fault
    longer = template_fault("sft", "runs/sft", 1, ours, [*ours, 5], tokenizer)
    assert f"from token {len(ours) + 1} on" in longer


def test_tokens_of_a_reply_are_read_in_every_format(world: World) -> None:
    tokenizer = load_tokenizer(str(world.base))
    ids = tuple(tokenizer("Hanne lives in Saltmere.")["input_ids"])
    texts = [{"token": tokenizer.decode([each])} for each in ids]
    end = {"token": tokenizer.eos_token}
    assert token_ids([{"token": f"token_id:{each}"} for each in ids], "", tokenizer) == ids
    assert token_ids([{"id": each, **text} for each, text in zip(ids, texts, strict=True)], "", tokenizer) == ids
    assert token_ids(texts, "Hanne lives in Saltmere.", tokenizer) == ids
    assert token_ids([*texts, end], "Hanne lives in Saltmere.", tokenizer) == (*ids, tokenizer.eos_token_id)
    assert token_ids(texts[:-1], "Hanne lives in Saltmere.", tokenizer) is None
    assert token_ids([], "Hanne", tokenizer) is None


def test_a_run_is_scored_with_its_adapter_without_it_and_with_it_doubled(world: World, tmp_path: Path) -> None:
    """`trained` scores with the adapter, `bare` with the base model, `twice` with an adapter whose B is doubled; scoring leaves the model unchanged."""
    run = random_adapter(str(world.base), world.data, tmp_path / "once", size=0.05)
    double = random_adapter(str(world.base), world.data, tmp_path / "double", size=0.1)
    policy = RunPolicy(run, read_run(run))
    rows = [tokenize_row(policy.tokenizer, row.prompt, row.chosen) for row in map(preference, range(4))]
    ids_BT, mask_BT = pad_rows(rows, policy.tokenizer.pad_token_id)
    for how, source in (("twice", double), ("bare", world.base), ("trained", run)):
        found = [sum(each.logps) for each in policy.score_completion(rows, how)]  # type: ignore[arg-type]
        assert found == pytest.approx(completion_logps(load_policy(str(source))[0], ids_BT, mask_BT).tolist(), abs=1e-3)
    assert all(gap >= 0 for each in policy.score_completion(rows, "trained") for gap in each.nats_below_best)


@pytest.mark.parametrize("spec", ["vllm:smollm2", "localhost:8000", "hf:folder", "http://"])
def test_only_a_server_can_be_checked(spec: str) -> None:
    with pytest.raises(UserError, match=r"openai:NAME@URL, the URL of a server, or gguf:FILE"):
        read_target(spec)


def test_an_unreachable_server_is_reported() -> None:
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:9/v1: no answer .*Start it"):
        Server("http://127.0.0.1:9/v1").parents()


@contextmanager
def server_that_answers(answer: object) -> Iterator[Server]:
    """A server that gives every request the same answer."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_GET

    with http_server(Handler) as address:
        yield Server(f"{address}/v1")


@pytest.mark.parametrize("answer", [{"data": [{"name": "tiny"}]}, {"data": ["tiny"]}, {"data": 5}, ["tiny"], []])
def test_an_unexpected_list_of_models_is_reported(answer: object) -> None:
    with server_that_answers(answer) as server, pytest.raises(UserError, match=r"/v1: not a .*Fix the URL"):
        server.parents()


@pytest.mark.parametrize(
    "answer", [{}, {"choices": ["Hanne"]}, {"choices": [{"message": "Hanne"}]}, {"choices": [{"logprobs": 1}]}, []]
)
def test_an_unexpected_completion_is_reported(answer: object) -> None:
    with server_that_answers(answer) as server, pytest.raises(UserError, match=r"/v1: not a .*Fix the URL"):
        server.greedy("tiny", [Message("user", "Who?")], 4, None)


def test_serve_check_and_serve_are_both_commands() -> None:
    for words, message in (
        (("check", "http://127.0.0.1:9/v1", "nowhere"), "nowhere: no run.json"),
        (("./check",), "no index at 'check'"),
        (("check", "--bas"), "serve check: no option --bas. Did you mean --base-name?"),
    ):
        assert message in str(run("serve", *words).exception)

"""Instructions in a document reach the model as quoted data, and no forged citation reaches the client, in every mode.

The model here is the worst possible: it repeats the hostile passages of its prompt word for word.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from transformers import PreTrainedTokenizerFast

from graph.build.build import build_index
from graph.shared.modes import MODES
from tests.corpora import ISLES
from tests.fakes import ChatServer, HashEncoder, chat_server
from tests.graph.answer.test_citations import ANY_CITATION
from tests.places import ROOT
from tests.serve.conftest import SETTINGS
from tests.serve.http.running import Running, events_of, serving
from tests.serve.injection import CONTROL_TOKENS, Case, cases

K = 5
CASES = cases()
DEFAULT_MODE = "auto"
STRIDE = 1 if os.environ.get("MODEGRAPH_ALL_CASES") else 13
"""Modes other than the default are tested with every thirteenth case, each mode with different ones; if MODEGRAPH_ALL_CASES is set, with every case."""
LINK = re.compile(r"\[\d+\](?:\(|:)")


def obey(body: dict[str, Any], number: int) -> str:
    """A reply that repeats every hostile passage of the prompt."""
    lines = body["messages"][1]["content"].split("\n")
    hostile = [line.partition(" ")[2] for line in lines if "People there speak" in line or "PWNED" in line]
    return f"###Reason: {' '.join(hostile)} ###Answer: so it is [1]"


@pytest.fixture(scope="module")
def hostile_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, ChatServer]]:
    """A server whose index contains all hostile documents, and its model server, which obeys them."""
    folder = tmp_path_factory.mktemp("hostile") / "index"
    build_index(folder, [*ISLES, *(case.document for case in CASES)], SETTINGS, lambda spec: HashEncoder())
    with chat_server(obey) as upstream, serving(folder, f"openai:tiny@{upstream.url}", top_k=K) as running:
        yield running, upstream


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with CONTROL_TOKENS as its special tokens, and ChatML as its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    template = (ROOT / "train/prompts/tiny_chat_template.txt").read_text(encoding="utf-8")
    return PreTrainedTokenizerFast(
        tokenizer_object=core, additional_special_tokens=list(CONTROL_TOKENS), chat_template=template
    )


def shown_by(client: httpx2.Client, case: Case, mode: str, stream: bool) -> tuple[str, dict[str, Any]]:
    """The text that a client sees, and the extra fields of the message."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": case.question}],
        "retrieval": {"mode": mode, "abstain": 1},
    }
    response = client.post("/v1/chat/completions", json={**body, "stream": stream})
    assert response.status_code == 200, response.text
    if not stream:
        message = response.json()["choices"][0]["message"]
        return f"{message['reasoning_content']}\n{message['content']}", message
    deltas = [event["choices"][0]["delta"] for event in events_of(response) if event["choices"]]
    fields = ("reasoning_content", "content")
    return "\n".join("".join(delta.get(name) or "" for delta in deltas) for name in fields), deltas[-1]


def letters(text: str) -> str:
    return re.sub(r"\W", "", text)


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow) if mode == DEFAULT_MODE else mode for mode in MODES]
)
def test_no_forged_citation_is_shown_and_no_special_token_reaches_the_model(
    hostile_servers: tuple[Running, ChatServer], tokenizer: PreTrainedTokenizerFast, mode: str
) -> None:
    running, upstream = hostile_servers
    special = set(tokenizer.convert_tokens_to_ids(list(CONTROL_TOKENS)))
    found: Counter[str] = Counter()
    selected = CASES if mode == DEFAULT_MODE else CASES[MODES.index(mode) % STRIDE :: STRIDE]
    with httpx2.Client(base_url=running.url, timeout=30) as client:
        for number, case in enumerate(selected):
            upstream.requests.clear()
            text, extra = shown_by(client, case, mode, stream=bool(number % 2))
            (request,) = upstream.requests
            ids = tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True, return_dict=True)[
                "input_ids"
            ]
            # Five special tokens are expected: the start and end of the system and user turns, and the start of the assistant's turn.
            found["special tokens"] += sum(token in special for token in ids) - 5
            excerpts = request["messages"][1]["content"].split("\n\nQuestion: ")[0].split("\n")[1:]
            assert [line.split(" ")[0] for line in excerpts] == [f"[{n}]" for n in range(1, len(excerpts) + 1)]
            citations = {each["number"]: each for each in extra["citations"]}
            for citation in ANY_CITATION.findall(text):
                numbers = [int(digits) for digits in re.findall(r"\d+", citation)]
                found["forged citations shown"] += any(each not in citations for each in numbers)
            for each in citations.values():
                assert letters(each["text"])[:40] in letters(excerpts[each["number"] - 1])
            found["citations that are links"] += len(LINK.findall(text))
            found["hostile passage in the prompt"] += any(
                case.subject in line and "People there speak" in line for line in excerpts
            )
            found["instruction repeated by the obedient model"] += "PWNED" in text
            found["address repeated by the obedient model"] += "evil.example" in text
    print(f"injection, {mode}: {len(selected)} cases: {dict(found)}")
    assert len(CASES) >= 100
    assert found["special tokens"] == found["forged citations shown"] == found["citations that are links"] == 0
    if mode == DEFAULT_MODE:
        assert found["hostile passage in the prompt"] > len(selected) // 2, (
            f"more than half of the {len(selected)} hostile passages should reach the prompt"
        )

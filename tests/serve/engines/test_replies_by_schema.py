"""llama.cpp with a tiny random model, constrained by the schemas of our tasks: every finished reply can be parsed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from data_synth.questions.by_model import QuestionOfSentence, WrittenQuestion
from graph.extract.llm import Domain, Reply
from graph.hierarchy.summaries import SummaryReply
from graph.retrieve.learned.selectors import Selection
from graph.retrieve.modes.global_mode import Contribution, SubQuestions
from graph.retrieve.modes.local import Verdict
from graph.retrieve.modes.plan import Plan, Resolution
from graph.text.replies import ReplyModel, numbers_up_to, parse_reply, strict_schema
from graph.types import Completion, CompletionRequest, LanguageModel, Message
from serve.engines import open_model
from serve.engines.openai_api import UNREADABLE_OUTPUT
from tests.llama import with_llama
from tests.train.world import TEXTS
from train.export.gguf import write_gguf
from train.run.settings import TinySettings
from train.tiny import new_llama, train_tokenizer

pytestmark = with_llama
KINDS: tuple[type[ReplyModel], ...] = (
    *(Reply, Domain, SummaryReply, Plan, Resolution, WrittenQuestion, QuestionOfSentence, Selection),
    *(Verdict, SubQuestions, Contribution),
)
RESTRICTIONS: dict[type[ReplyModel], dict[str, Mapping[str, Any]]] = {
    Reply: {"propositions": {"minItems": 2}},
    SummaryReply: {"sentences": {"minItems": 1, "maxItems": 6}},
    WrittenQuestion: {"passages": numbers_up_to(4, 2, 3)},
    Selection: {"selected": numbers_up_to(20)},
}
SEEDS, MAX_TOKENS = range(3), 800


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """An untrained Llama with random weights, as a GGUF file."""
    torch.manual_seed(0)
    settings = TinySettings(texts="", output="", vocabulary=600, hidden_size=32, layers=2, heads=2, context_tokens=4096)
    tokenizer = train_tokenizer(TEXTS, settings.vocabulary, settings.context_tokens)
    file = tmp_path_factory.mktemp("random") / "random.gguf"
    write_gguf(new_llama(settings, tokenizer), tokenizer, file, "f16", "random")
    return open_model(f"gguf:{file}")


def replies(model: LanguageModel, schemas: Sequence[Any]) -> list[Completion]:
    """One reply per schema and seed, schema by schema."""
    message = (Message("user", "Name it."),)
    return model.complete(
        [CompletionRequest(message, MAX_TOKENS, 1.0, seed, each) for each in schemas for seed in SEEDS]
    )


@pytest.mark.slow
def test_finished_replies_to_a_schema_can_be_parsed(model: LanguageModel) -> None:
    """llama.cpp accepts every schema, and every finished reply can be parsed.

    A reply may be cut off by the token limit, or rejected by llama.cpp because it ends with an incomplete character.
    """
    completions = replies(model, [strict_schema(kind, **RESTRICTIONS.get(kind, {})) for kind in KINDS])
    assert all(UNREADABLE_OUTPUT in each.text for each in completions if each.finish_reason == "refused")
    parsed = set()
    for kind, completion in zip((kind for kind in KINDS for _ in SEEDS), completions, strict=True):
        if completion.finish_reason == "stop":
            dropped: list[object] = []
            reply = parse_reply(kind, completion.text, dropped)
            assert not dropped
            if isinstance(reply, Reply):
                assert len(reply.propositions) >= 2
            if isinstance(reply, WrittenQuestion):
                assert 2 <= len(reply.passages) <= 3 and set(reply.passages) <= {1, 2, 3, 4}
            parsed.add(kind)
    names = sorted(kind.__name__ for kind in parsed)
    assert len(names) >= 4, f"finished replies of at least 4 kinds expected, found only {names}"


def test_without_a_schema_no_reply_is_a_json_object(model: LanguageModel) -> None:
    texts = [each.text for each in replies(model, [None])]
    assert not any(text.lstrip().startswith("{") for text in texts), (
        f"no reply should be a JSON object without a schema: {texts}"
    )

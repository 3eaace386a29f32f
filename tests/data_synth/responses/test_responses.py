"""K responses to a prompt: which are used, their rewards, and a run that resumes from its ledger in the middle of a prompt."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from data_synth.contexts import make_drafts
from data_synth.dataset.write import write_dataset
from data_synth.preferences.support import Support
from data_synth.responses.responses import (
    TOO_FEW,
    SampledResponses,
    grounded_reward,
    make_rows,
    response_seed,
    rewards_of,
)
from data_synth.responses.rewards import (
    RESPONSES,
    answer_reward,
    citation_reward,
    format_reward,
    length_reward,
    measure_rewards,
    response_problems,
    response_schema,
    supported_reward,
    variety_reward,
)
from data_synth.rows import Draft, Dropped, ResponseRow, Sampling, response_from_json, response_to_json
from graph.answer.prompt import form_of_prompt
from graph.answer.support import SupportChecker
from graph.answer.verifier import word_verifier
from graph.documents.questions import Question
from graph.types import CompletionRequest, Excerpt
from serve.ledger import Ledger
from tests.fakes import ScriptedModel

A = Excerpt("a", "Ada", "Ada was born in Tarn.", "ada", 0, 21)
B = Excerpt("b", "Yard", "The yard burned.", "yard", 0, 16)
BORN = Question("q1", "Where was Ada born?", ("Tarn",), kind="single", split="train")
BURNED = Question("q2", "What burned?", ("the yard",), kind="single", split="dev")
FOUND = {BORN.text: (A, B), BURNED.text: (B,)}
SAMPLING = Sampling(samples=4, temperature=1.0, max_tokens=20, seed=3)
VERIFIER = word_verifier("")
GOOD = "###Reason: Ada was born in Tarn [1]. ###Answer: Tarn"


def near(drafts: Sequence[Draft], reasons: Sequence[str]) -> list[Support]:
    return [Support(0.9 if "Tarn" in reason else 0.0, 1.0) for reason in reasons]


def rows_of(policy: ScriptedModel | Ledger, sizes: Sequence[int] = (0, 1, 2)) -> list[ResponseRow | Dropped]:
    def find(texts: Sequence[str]) -> list[tuple[Excerpt, ...]]:
        return [FOUND[text] for text in texts]

    reward = partial(rewards_of, measure=near, verifier=VERIFIER)
    return list(make_rows([BORN, BURNED], find, policy, SAMPLING, reward, sizes))


def in_turn(*texts: str) -> ScriptedModel:
    """A policy that answers each new seed with the next text, and the same seed with the same text."""
    seeds: dict[int, str] = {}

    def reply(request: CompletionRequest) -> str:
        assert request.seed is not None and request.temperature == 1.0 and request.max_tokens == 20
        return seeds.setdefault(request.seed, texts[len(seeds) % len(texts)])

    return ScriptedModel(reply)


def test_every_prompt_has_a_row_of_distinct_responses_with_all_rewards() -> None:
    rows = [row for row in rows_of(in_turn(GOOD, "Tarn", "Tarn", "in Quill [3]")) if isinstance(row, ResponseRow)]
    assert [(row.id, row.context_size, row.split) for row in rows] == [
        ("q1#0", 0, "train"),
        ("q1#1", 1, "train"),
        ("q1#2", 2, "train"),
        ("q2#0", 0, "dev"),
        ("q2#1", 1, "dev"),
    ]
    row = rows[1]
    assert row.responses == (GOOD, "Tarn", "in Quill [3]") and row.policy == "scripted" and row.sampling == SAMPLING
    assert row.rewards == {
        "correct": (1.0, 1.0, 0.0),
        "format": (1.0, 0.0, 0.0),
        "grounded": (1.0, 1.0, 0.0),
        "citations": (1.0, 0.0, 0.0),
        "length": (1.0, 1.0, 1.0),
        "variety": (1.0, 1.0, 1.0),
        "supported": (1.0, 1.0, 1.0),
    }
    assert rows[0].rewards["supported"] == (0.0, 0.0, 0.0), "without passages, nothing is supported"
    assert rows[0].rewards["grounded"] == (0.0, 0.0, 0.0) and rows[0].rewards["citations"] == (0.0, 1.0, 0.0)
    assert all(not response_problems(row) for row in rows)


def test_seeds_differ_by_prompt_and_number_and_not_by_run() -> None:
    keys = [(question.id, str(size)) for question in (BORN, BURNED) for size in (1, 2)]
    seeds = [response_seed(3, key, number) for key in keys for number in range(4)]
    assert len(set(seeds)) == len(seeds) and min(seeds) >= 0
    assert response_seed(4, ("q1", "1"), 0) != seeds[0] == response_seed(3, ("q1", "1"), 0)


def test_prompts_with_one_distinct_text_or_only_cut_texts_are_dropped() -> None:
    assert rows_of(in_turn("Tarn")) == [Dropped(TOO_FEW)] * 5, "one for each question and context size"
    assert rows_of(ScriptedModel(lambda request: str(request.seed), finish_reason="length")) == [Dropped(TOO_FEW)] * 5


def test_context_sizes_can_be_chosen() -> None:
    policy = in_turn(GOOD, "Tarn")
    rows = rows_of(policy, sizes=[1])
    assert [row.id for row in rows if isinstance(row, ResponseRow)] == ["q1#1", "q2#1"] and len(policy.requests) == 8


def test_a_run_that_stops_in_the_middle_continues_without_repeating_a_call(tmp_path: Path) -> None:
    whole = rows_of(ScriptedModel(lambda request: f"{GOOD} {request.seed}"))

    def dies(request: CompletionRequest) -> str:
        if len(first.requests) > 11:
            raise ConnectionError
        return f"{GOOD} {request.seed}"

    first, second = ScriptedModel(dies), ScriptedModel(lambda request: f"{GOOD} {request.seed}")
    with pytest.raises(ConnectionError):
        rows_of(Ledger(first, tmp_path / "ledger.sqlite"))
    assert rows_of(Ledger(second, tmp_path / "ledger.sqlite")) == whole
    finished = 20 - len(second.requests)
    assert 0 < finished <= 11


def test_rows_are_read_back_by_pyarrow_and_by_datasets(tmp_path: Path) -> None:
    import datasets
    import pyarrow.parquet

    rows = [row for row in rows_of(in_turn(GOOD, "Tarn", "Quill")) if isinstance(row, ResponseRow)]
    summary = write_dataset(tmp_path / "out", [*rows, rows[0]], RESPONSES, {})
    assert (summary.rows, summary.duplicates) == (5, 1)
    assert summary.measures == {name: round(value, 4) for name, value in measure_rewards(rows).items()}
    correct = [summary.measures[name] for name in ("mean reward, correct", "prompts whose responses differ in correct")]
    assert correct == [0.4, 0.6], "two of three responses to the first question, which has three of the five prompts"
    assert response_schema().names == list(response_to_json(rows[0]))
    table = pyarrow.parquet.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    back = [response_from_json(row) for row in table]
    assert [row.responses for row in back] == [row.responses for row in rows[:3]]
    assert back[0].rewards["correct"] == pytest.approx(rows[0].rewards["correct"])
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"][0]["responses"] == list(rows[0].responses)


@pytest.mark.parametrize(
    ("response", "golds", "reward"),
    [
        ("###Reason: x ###Answer: TARN.", ["tarn"], 1.0),
        ("Tarn [1]", ["tarn"], 1.0),
        ("in Tarn", ["Tarn"], 1 / 3),
        ("Quill", ["Tarn"], 0.0),
        ("< |x| >", ["<|x|>"], 1.0),
        ("Tarn", [], 0.0),
        ("the old yard", ["the yard", "yard"], 0.4),
        ("not in the documents [1]", ["The yard is in the town"], 0.0),
        ("Not in the documents.", ["not in the documents"], 1.0),
        ("It is in the yard [1]", ["not in the documents"], 0.0),
        ("1846年建成", ["1846年"], 1 / 3),
        ("1846年。", ["1846年"], 1.0),
    ],
)
def test_an_equal_answer_earns_the_full_reward_and_any_other_at_most_half(
    response: str, golds: list[str], reward: float
) -> None:
    assert answer_reward(response, golds) == pytest.approx(reward)


def test_the_other_reward_components_match_values_computed_by_hand() -> None:
    assert (format_reward(GOOD), format_reward("Tarn")) == (1.0, 0.0)
    assert [citation_reward(text, 2) for text in ("x [1] [2] [9]", "x", "[5]")] == [pytest.approx(2 / 3), 0.0, 0.0]
    assert [length_reward("a " * n) for n in (120, 180, 240, 400)] == [1.0, 0.5, 0.0, 0.0]
    assert [variety_reward(text) for text in ("", "a a a a", "a b", "a b a b c c c c")] == [0.0, 0.5, 1.0, 0.75]
    assert [grounded_reward(Support(near, 1.0)) for near in (-0.2, 0.0, 0.45, 2.0)] == [0.0, 0.0, 1.0, 1.0]


def test_length_and_variety_are_rewarded_in_scripts_without_spaces() -> None:
    """Two characters count as a word for the length; for the variety, the terms are pairs of characters."""
    assert [length_reward("很" * n) for n in (240, 360, 480)] == [1.0, 0.5, 0.0]
    assert variety_reward("很长" * 500) == pytest.approx(2 * 2 / 999)
    assert variety_reward("鸣鹤园建于1846年，设计者是林海。") == 1.0


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        (GOOD, 1.0),
        ("###Reason: Ada was born in Tarn [1]. Ada was born in Quill in 1870 [1]. ###Answer: Tarn", 0.5),
        ("###Reason: Ada was born in Tarn [2]. ###Answer: Tarn", 0.0),
        ("###Reason: Ada was born in Tarn [7]. ###Answer: Tarn", 1.0),
        ("###Reason: So it is. ###Answer: Pirates of Zanzibar sank her in 1822 [1].", 0.0),
        ("<think>Ada was born in Quill in 1870.</think>###Reason: Ada was born in Tarn [1]. ###Answer: Tarn", 1.0),
        ("###Answer: Tarn ###Reason: Ada was born in Tarn [1]. Ada was born in Quill in 1870 [1].", 0.5),
        ("Tarn", 0.0),
    ],
)
def test_support_is_the_share_of_sentences_that_their_passages_support(response: str, reward: float) -> None:
    """A sentence with a citation is checked only against the cited passage; a citation of a missing passage is ignored; a few words are not a sentence."""
    assert supported_reward(response, SupportChecker((A, B), VERIFIER)) == reward
    assert supported_reward(response, SupportChecker((), VERIFIER)) == 0.0


def test_a_policy_is_prompted_and_rewarded_in_the_form_it_was_trained_for() -> None:
    """For a policy trained to answer with a few words and a citation, such a response is well formed; for others, one in the reasoned form is."""
    policy = in_turn("Tarn [1]", "###Reason: So [2]. ###Answer: Tarn")
    policy.form = "cited"
    rows = [row for row in rows_of(policy, sizes=(2,)) if isinstance(row, ResponseRow)]
    assert {form_of_prompt(row.prompt) for row in rows} == {"cited"}
    assert rows[0].rewards["format"] == (1.0, 0.0) and rows[0].rewards["correct"] == (1.0, 1.0)
    others = rows_of(in_turn("Tarn [1]", "###Reason: So [2]. ###Answer: Tarn"), sizes=(2,))
    assert isinstance(others[0], ResponseRow) and others[0].rewards["format"] == (0.0, 1.0)


def test_the_gold_reward_is_the_share_of_citations_that_cite_gold_documents() -> None:
    question = replace(BORN, gold_sources=(A.source,))
    draft = Draft(question, "Tarn", (B, A))
    responses = SampledResponses(draft, ("Tarn [2]", "Tarn [1]", "Tarn [1][2]", "Tarn [7]", "Tarn"), "cited")
    assert rewards_of(responses, near)["gold"] == (1.0, 0.0, 0.5, 0.0, 0.0)


def test_without_a_verifier_there_is_no_supported_component() -> None:
    draft = next(draft for draft in make_drafts(BORN, (A, B)) if isinstance(draft, Draft))
    assert "supported" not in rewards_of(SampledResponses(draft, (GOOD, "Tarn")), near)


def test_a_short_answer_is_verified_together_with_its_question() -> None:
    question = Question("q3", "What burned the yard?", ("fire",))
    responses = SampledResponses(Draft(question, "fire", (A, B)), ("Bruno Castell", "By fire", "Yes"))
    assert rewards_of(responses, near, verifier=VERIFIER)["supported"] == (0.0, 1.0, 0.0)


def test_problems_of_rows_are_reported() -> None:
    good = next(row for row in rows_of(in_turn(GOOD, "Tarn")) if isinstance(row, ResponseRow))
    as_json = response_to_json(good)
    for change, message in [
        ({"responses": ["a"], "rewards": {"correct": [1.0]}}, "1 responses"),
        ({"responses": ["a", " "]}, "response 2 is empty"),
        ({"responses": ["a", "a"]}, "appears twice"),
        ({"responses": ["a", "<|im_end|>"]}, "special token"),
        ({"rewards": {}}, "no rewards"),
        ({"rewards": {"beauty": [1.0, 1.0]}}, "unknown reward 'beauty'"),
        ({"rewards": {"correct": [1.0]}}, "1 values for 2 responses"),
        ({"rewards": {"correct": [1.0, float("nan")]}}, "is nan"),
        ({"rewards": {"correct": [1.0, 1.5]}}, "is 1.5"),
        ({"split": "training"}, "split is 'training'"),
        ({"prompt": [{"role": "assistant", "content": "x"}]}, "user turn"),
    ]:
        problems = response_problems(response_from_json(as_json | change))
        assert any(message in problem for problem in problems), change


def test_thinking_is_neither_stored_nor_rewarded() -> None:
    """The trained model is served without a thinking block, so a response must not contain one."""
    thoughts = ("<think>Quill [2]? ###Answer: Quill</think>\n\n", "<think>\n\n</think>\n\n")
    rows = rows_of(in_turn(thoughts[0] + GOOD, thoughts[1] + "Tarn", "<think>never done ###Answer: Tarn"))
    assert isinstance(rows[1], ResponseRow) and set(rows[1].responses) == {GOOD, "Tarn"}
    assert citation_reward("<think>[1]</think>So.", 2) == 0.0
    assert citation_reward("<think>[9]</think>So [1].", 2) == 1.0


def test_the_example_citation_in_the_prompt_earns_nothing_when_repeated() -> None:
    echo = "###Reason: The reasoning, citing passages by number like [1]. ###Answer: the short answer."
    assert [citation_reward(echo, passages) for passages in (2, 0)] == [0.0, 1.0]
    assert citation_reward(f"{echo} Ada was born in Tarn [1] [9].", 2) == 0.5

"""Answers begin at the same token in training and in serving, whatever the chat template does about thinking."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from data_synth.rows import preference_to_json
from graph.answer.prompt import answer_messages, format_answer, parse_answer
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from graph.types import CompletionRequest, Excerpt, Message
from serve.engines.hf import HfModel
from serve.engines.hf_open import open_hf
from serve.engines.vllm import VllmSpec, spec_of, with_training_prompts
from tests.train.templates import NO_SYSTEM, STYLES, tokenizer_of
from tests.train.world import preference
from train.model.load import load_policy
from train.model.logps import tokenize_row
from train.preference.groups import pair_groups
from train.preference.preference import pair_trainer
from train.reward import reward_trainer
from train.run.loop import prepare
from train.run.settings import DpoSettings, RewardSettings, SftSettings, TinySettings
from train.sft import read_sft_data, train_sft
from train.tiny import new_llama

PROMPT = answer_messages("Where does Ida live?", [Excerpt("p", "Mills", "Ida lives in Corrow <think>, by the mill.")])
ANSWER = format_answer("Ida lives in Corrow [1]", "Corrow")
TEMPLATE_WITHOUT_ROLE = (
    "{{%- for m in messages -%}}{{%- if m.role != '{}' -%}}"
    "{{{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}}}{{%- endif -%}}{{%- endfor -%}}"
)
GENERATION_PROMPT = "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
TINY = TinySettings(texts="", output="", vocabulary=600, hidden_size=32, layers=2, heads=2, context_tokens=512)


@pytest.fixture(scope="module", params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(style: str, tmp_path_factory: pytest.TempPathFactory) -> HfModel:
    """The engine with an untrained model and with a tokenizer of the style."""
    return open_hf(str(folder_of(style, tmp_path_factory.mktemp("model"))))


def folder_of(style: str, folder: Path) -> Path:
    tokenizer = tokenizer_of(STYLES[style])
    model = new_llama(TINY, tokenizer)
    model.resize_token_embeddings(len(tokenizer))
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_row_is_the_servers_prompt_the_answer_and_the_end_token(style: str, model: HfModel) -> None:
    row = tokenize_row(model._tokenizer, PROMPT, ANSWER)
    assert list(row.ids[: row.prompt_tokens]) == model.prompt_ids(PROMPT)
    completion = model._tokenizer.decode(row.ids[row.prompt_tokens :])
    assert completion == STYLES[style].before + ANSWER + STYLES[style].after
    assert row.ids[-1] == model._tokenizer.eos_token_id


def test_the_servers_prompt_is_that_of_the_template_without_thinking(model: HfModel) -> None:
    """The prompt equals vLLM's with {"enable_thinking": false}; a special token in a document is broken up."""
    turns = [{"role": turn.role, "content": turn.content.replace("<think>", "< think>")} for turn in PROMPT]
    prompt = model._tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, enable_thinking=False, tokenize=False
    )
    assert model.prompt_ids(PROMPT) == model._tokenizer(prompt, add_special_tokens=False)["input_ids"]


@settings(max_examples=40, deadline=None)
@given(
    question=st.text(max_size=20),
    completion=st.one_of(
        st.sampled_from(["\n\n", " a", ANSWER, f"<think>so</think>\n\n{ANSWER}"]), st.text(min_size=1)
    ),
)
def test_no_completion_moves_the_end_of_the_prompt(model: HfModel, question: str, completion: str) -> None:
    prompt = (Message("user", question), Message("assistant", "Yes."), Message("user", f"And {question}?"))
    row = tokenize_row(model._tokenizer, prompt, completion)
    assert list(row.ids[: row.prompt_tokens]) == model.prompt_ids(prompt)
    assert completion in model._tokenizer.decode(row.ids[row.prompt_tokens :])


def test_each_trainer_learns_the_same_prompts_and_answers(
    style: str, model: HfModel, data: Path, tmp_path: Path
) -> None:
    """Compares the rows of TRL's reward and pair trainers, of our SFT trainer and of our response groups, all made from the rows of `data`."""
    tokenizer: PreTrainedTokenizerBase = model._tokenizer
    folder = folder_of(style, tmp_path / "base")
    common = {"model": str(folder), "data": str(data), "output": str(tmp_path / "run"), "max_length_tokens": 512}
    begins, ends = STYLES[style].before, STYLES[style].after

    def answer_of(ids: list[int]) -> str:
        return tokenizer.decode(ids).removeprefix(begins).removesuffix(ends)

    rows = [preference(number) for number in range(12)]
    sft, dpo, reward = (kind(**common) for kind in (SftSettings, DpoSettings, RewardSettings))
    groups = read_sft_data(sft, tokenizer).train
    sft_rows = [
        (group.prompt + ids[:n], ids[n:])
        for group in groups
        for ids, n in zip(group.responses, group.context_tokens, strict=True)
    ]
    trl_pairs = pair_trainer(dpo, prepare(dpo), tmp_path / "pairs", "sigmoid").train_dataset
    reward_rows = reward_trainer(reward, prepare(reward, head="score"), tmp_path / "reward").train_dataset
    our_pairs = list(pair_groups(rows, tokenizer, 0.1))
    for row, sft_row, pair, reward_row, group in zip(rows, sft_rows, trl_pairs, reward_rows, our_pairs, strict=True):
        prompt = model.prompt_ids(row.prompt)
        assert (list(sft_row[0]), answer_of(list(sft_row[1]))) == (prompt, row.chosen)
        assert pair["prompt_ids"] == list(group.tokenized.prompt) == prompt
        assert [answer_of(pair[name]) for name in ("chosen_ids", "rejected_ids")] == [row.chosen, row.rejected]
        assert [answer_of(list(ids)) for ids in group.tokenized.responses] == [row.chosen, row.rejected]
        assert [reward_row[name] for name in ("chosen_ids", "rejected_ids")] == [
            prompt + pair[name] for name in ("chosen_ids", "rejected_ids")
        ]


@pytest.mark.long
@pytest.mark.parametrize("style", ["qwen3", "always thinking"])
def test_a_tuned_model_answers_in_the_trained_form(style: str, tmp_path: Path) -> None:
    """A model with the style's template memorises one row; the engine then generates its answer."""
    (tmp_path / "rows").mkdir()
    row = replace(preference(1), prompt=PROMPT, chosen=ANSWER)
    write_jsonl(tmp_path / "rows/train.jsonl", [preference_to_json(row)])
    folder = folder_of(style, tmp_path / "base")
    learn = {"learning_rate": 2e-2, "max_steps": 80, "batch_size": 1, "max_length_tokens": 512, "lora": None}
    train_sft(
        SftSettings(model=str(folder), data=str(tmp_path / "rows"), output=str(tmp_path / "run"), **learn)  # type: ignore[arg-type]
    )
    reply = open_hf(str(tmp_path / "run")).complete([CompletionRequest(PROMPT, 150)])[0]
    assert parse_answer(reply.text).well_formed, reply.text
    assert parse_answer(reply.text).answer == "Corrow" and reply.finish_reason == "stop"


def test_thinking_is_off_in_vllm_unless_requested(style: str, model: HfModel) -> None:
    """The user's option comes after ours, and so takes precedence. Templates without the switch get no option, because some tokenizers refuse it."""
    spec = VllmSpec("m", "m", {}, "python", ("--default-chat-template-kwargs={}",))
    command = with_training_prompts(spec, model._tokenizer).command(1)
    options = [each for each in command if each.startswith("--default-chat-template-kwargs")]
    ours = ['--default-chat-template-kwargs={"enable_thinking": false}'] if style == "qwen3" else []
    assert options == [*ours, *spec.extra]
    assert ("--reasoning-parser=deepseek_r1" in command) == (style == "always thinking")


def test_vllm_as_the_model_of_a_command_gets_the_same_options(style: str, tmp_path: Path) -> None:
    extra = spec_of(str(folder_of(style, tmp_path / "base")), {}).extra
    assert any("enable_thinking" in option for option in extra) == (style == "qwen3")
    assert ("--reasoning-parser=deepseek_r1" in extra) == (style == "always thinking")


def test_a_tokenizer_without_a_chat_template_is_refused_for_vllm() -> None:
    """Without a chat template, vLLM would start and then refuse every chat."""
    tokenizer = tokenizer_of(STYLES["qwen3"])
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"vllm:m: its tokenizer has no chat template.*chat_template\.jinja"):
        with_training_prompts(VllmSpec("m", "m", {}, "python"), tokenizer)


def test_a_template_that_refuses_the_chat_is_reported(base: Path) -> None:
    model, tokenizer = load_policy(str(base))
    tokenizer.chat_template = NO_SYSTEM + tokenizer.chat_template
    for read_prompt in (
        lambda: tokenize_row(tokenizer, PROMPT, ANSWER),
        lambda: HfModel("m", model, tokenizer).prompt_ids(PROMPT),
    ):
        with pytest.raises(
            UserError, match=r"rejects turns with the roles system and user .*System role not supported"
        ):
            read_prompt()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (TEMPLATE_WITHOUT_ROLE.format("system") + GENERATION_PROMPT, "omits the system turn"),
        (TEMPLATE_WITHOUT_ROLE.format("user") + GENERATION_PROMPT, "omits the user turn"),
        (TEMPLATE_WITHOUT_ROLE.format("assistant") + GENERATION_PROMPT, "omits the assistant turn"),
        (TEMPLATE_WITHOUT_ROLE.format("nobody"), r"writes '<\|im_start\|>assistant\\n' before an answer"),
    ],
)
def test_a_template_that_loses_a_part_of_a_row_is_refused(template: str, message: str) -> None:
    """Otherwise a model would learn answers to questions that it never reads, or learn to write the header of its own turn."""
    tokenizer = tokenizer_of(STYLES["qwen2.5"])
    tokenizer.chat_template = template
    with pytest.raises(UserError, match=message):
        tokenize_row(tokenizer, PROMPT, ANSWER)


def test_a_template_may_drop_the_thinking_of_earlier_turns(style: str, model: HfModel) -> None:
    earlier = Message("assistant", "<think>so</think>In Corrow.")
    prompt = (Message("user", "Where?"), earlier, Message("user", "Why?"))
    assert "In Corrow." in model._tokenizer.decode(model.prompt_ids(prompt))

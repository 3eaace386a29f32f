"""The stand-in for a pretrained model: its tokenizer, template and windows of text; training lowers its loss and is the same for the same seed."""

import json
from pathlib import Path

import pytest
import torch

from graph.answer.prompt import answer_messages, format_answer
from graph.errors import UserError
from graph.types import Message
from tests.train.world import TEXTS
from train.model.load import load_policy, load_tokenizer
from train.model.logps import tokenize_row
from train.run.record import read_run
from train.run.settings import TinySettings
from train.tiny import new_llama, random_blocks, read_texts, token_stream, train_tiny, train_tokenizer

UNUSUAL_TEXT = "Ærø's 5 °C – «naïve» 漢字\t<b>\n\n  end"


def settings(tmp_path: Path, name: str = "run", **changes: object) -> TinySettings:
    """Settings of a run that takes seconds, on sixteen sentences."""
    values = {"vocabulary": 600, "hidden_size": 32, "layers": 2, "heads": 2, "context_tokens": 128, "steps": 30}
    values |= {"batch_size": 4, "block_tokens": 32, "learning_rate": 1e-2}
    return TinySettings(texts=str(tmp_path / "texts"), output=str(tmp_path / name), **{**values, **changes})


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(text)
    return folder


def test_unusual_text_round_trips_and_the_words_of_every_prompt_take_few_tokens(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    assert tokenizer.decode(tokenizer(UNUSUAL_TEXT)["input_ids"]) == UNUSUAL_TEXT
    assert len(tokenizer("###Reason: ###Answer:")["input_ids"]) <= 8
    assert len(tokenizer(answer_messages("?", ())[0].content)["input_ids"]) < 120


def test_the_chat_template_closes_each_turn_and_opens_the_next_one(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    prompt = (Message("system", "Be brief."), Message("user", "Where?"))
    row = tokenize_row(tokenizer, prompt, format_answer("because", "here"))
    assert tokenizer.decode(row.ids[: row.prompt_tokens]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(row.ids[row.prompt_tokens :]) == "###Reason: because ###Answer: here<|im_end|>"


def test_generation_markers_cover_the_answer_alone(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    turns = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]
    encoded = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    marked = [i for i, mark in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if mark]
    assert tokenizer.decode(marked) == "Here.<|im_end|>"


def test_windows_are_slices_of_the_stream_and_the_same_for_the_same_seed() -> None:
    stream = torch.arange(100)
    batches = list(random_blocks(stream, batch_size=3, block_tokens=10, steps=4, seed=1))
    again = list(random_blocks(stream, batch_size=3, block_tokens=10, steps=4, seed=1))
    other = list(random_blocks(stream, batch_size=3, block_tokens=10, steps=4, seed=2))
    assert all(torch.equal(*pair) for pair in zip(batches, again, strict=True))
    assert not torch.equal(torch.stack(batches), torch.stack(other))
    for batch in batches:
        assert batch.shape == (3, 10)
        assert torch.equal(batch - batch[:, :1], torch.arange(10).expand(3, 10))
    with pytest.raises(UserError, match="the texts have 10 tokens"):
        next(random_blocks(torch.arange(10), 3, 10, 4, 1))


def test_texts_are_read_from_documents_and_from_preference_data(texts: Path, data: Path) -> None:
    assert sorted(read_texts(texts)) == sorted(TEXTS)
    prompts = read_texts(data)
    assert len(prompts) == len(set(prompts)) == 10, (
        "each of the 10 prompts should be read once, including the one that occurs three times"
    )
    assert all("Question: Where does" in prompt for prompt in prompts)


@pytest.mark.long
def test_a_run_learns_and_is_the_same_for_the_same_seed(texts: Path, tmp_path: Path) -> None:
    record = train_tiny(settings(tmp_path))
    train_tiny(settings(tmp_path, "again"))
    train_tiny(settings(tmp_path, "other", seed=1))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again", "other")]
    assert weights[0] == weights[1] != weights[2]
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log] == [10, 20, 30]
    assert log[-1]["loss"] < 3.0 < log[0]["loss"] < 7.0, (
        "the first loss should be near ln(vocabulary) = 6.4, that of a uniform distribution"
    )
    assert record == read_run(tmp_path / "run")
    model, _ = load_policy(str(tmp_path / "run"))
    assert model.num_parameters() == record.metrics["parameters"]


def test_a_failed_run_leaves_no_output_folder(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the texts have"):
        train_tiny(settings(tmp_path, block_tokens=10_000))
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_a_hidden_size_that_does_not_fit_the_heads_is_refused(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, 600, 64)
    with pytest.raises(UserError, match="hidden_size = 30 with heads = 4"):
        new_llama(settings(tmp_path, hidden_size=30, heads=4), tokenizer)


def test_a_blank_line_follows_each_text_of_the_stream(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    stream = token_stream(["a", "b"], tokenizer)
    assert len(stream) >= 4 and tokenizer.decode(stream) == "a\n\nb\n\n"


def test_a_text_that_spells_the_end_token_adds_none_to_the_stream(base: Path) -> None:
    tokenizer = load_tokenizer(str(base))
    assert tokenizer.eos_token_id not in token_stream([f"a{tokenizer.eos_token}b"], tokenizer)

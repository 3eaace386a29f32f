"""SFT on groups of rows whose prompts share their first tokens: the loss equals TRL's, the gradients those of separate rows, and the best checkpoint
is saved.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

from data_synth.reading.reading_form import score_reading
from data_synth.reading.reading_rows import ReadingSettings, reading_rows
from data_synth.rows import ReadingRow, preference_to_json, reading_to_json
from graph.errors import UserError
from graph.models.checkpoint import answer_form
from graph.shared.jsonl import write_jsonl
from graph.shared.runs import course_of, find_runs
from graph.types import Message
from tests.data_synth.reading.world import TEXTS, isles
from tests.train.world import TEXTS as SENTENCES
from tests.train.world import log_of, preference
from train.model.load import load_model, load_tokenizer
from train.model.logps import TokenizedRow, tokenize_row
from train.model.packing import TokenizedGroup, plain_logps
from train.run.conversations import Conversation, conversation_of, read_conversations
from train.run.settings import LoraSettings, SftSettings, TinySettings
from train.sft import answer_tokens, read_sft_data, reading_figures, sft_trainer, share_prefixes, train_sft
from train.tiny import new_llama, train_tokenizer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained Llama whose tokenizer was trained on the isles texts, with a context long enough for two passages."""
    folder = tmp_path_factory.mktemp("models") / "base"
    settings = TinySettings(texts="", output="", vocabulary=700, hidden_size=32, layers=2, heads=2, context_tokens=512)
    tokenizer = train_tokenizer([*TEXTS.values(), *SENTENCES], settings.vocabulary, settings.context_tokens)
    new_llama(settings, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def reading(tmp_path: Path) -> Path:
    """A folder of reading rows; the dev rows are the first five of the training rows."""
    rows = [row for row in reading_rows(isles(), ReadingSettings(distractors=1)) if isinstance(row, ReadingRow)]
    folder = tmp_path / "reading"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", map(reading_to_json, rows))
    write_jsonl(folder / "dev.jsonl", map(reading_to_json, rows[:5]))
    return folder


def settings_of(base: Path, data: Path, output: Path, **changes: Any) -> SftSettings:
    return SftSettings(model=str(base), data=str(data), output=str(output), max_length_tokens=512, **changes)


def test_rows_with_the_same_passages_form_one_group_and_no_row_is_dropped() -> None:
    """By hand: prompts 1 2 3 | 4 and 1 2 3 | 5 with the same context, then one with another context, then two without a context."""
    rows = [
        TokenizedRow((1, 2, 3, 4, 8, 9), 4),
        TokenizedRow((1, 2, 3, 5, 7, 9), 4),
        TokenizedRow((6, 2, 3, 4, 8, 9), 4),
        TokenizedRow((6, 5, 5, 5, 9), 4),
        TokenizedRow((6, 5, 5, 5, 9), 4),
    ]
    contexts = [("a", "b"), ("a", "b"), ("b", "a"), (), ()]
    first, second, third, _ = share_prefixes(rows, contexts, 100)
    assert first == TokenizedGroup((1, 2, 3), ((4, 8, 9), (5, 7, 9)), (1, 1)) and first.scored_tokens == 4
    assert second == TokenizedGroup((6, 2, 3, 4), ((8, 9),), (0,)) and third.prompt == (6, 5, 5, 5)
    assert [len(group.responses) for group in share_prefixes(rows, contexts, 8)] == [1] * 5, (
        "no two rows should fit into a group of at most 8 tokens"
    )
    assert len(share_prefixes([rows[0]] * 2, contexts[:2], 100)) == 1


def test_the_loss_and_its_gradients_equal_those_of_separate_rows(base: Path, reading: Path, tmp_path: Path) -> None:
    """The packed loss against a slow reference: every row alone, from all logits of its sequence."""
    tokenizer = load_tokenizer(str(base))
    settings = settings_of(base, reading, tmp_path / "run")
    data = read_sft_data(settings, tokenizer)
    assert max(len(group.responses) for group in data.train) > 2 and any(
        sum(group.context_tokens) for group in data.train
    )
    trainer = sft_trainer(settings, data, tokenizer, tmp_path / "work")
    loss = trainer.compute_loss(trainer.model, data.train)
    loss.backward()
    loss = loss.detach()
    twin = AutoModelForCausalLM.from_pretrained(base)
    total = torch.zeros(())
    rows = [tokenize_row(tokenizer, row.prompt, row.completion) for row in read_conversations(reading / "train.jsonl")]
    for row in rows:
        logps = twin(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
        total = total - sum(logps[at - 1, row.ids[at]] for at in range(row.prompt_tokens, len(row.ids)))
    tokens = sum(len(row.ids) - row.prompt_tokens for row in rows)
    assert tokens == answer_tokens(data.train)
    (total / tokens).backward()
    assert float(loss) == pytest.approx(float(total.detach()) / tokens, rel=1e-5)
    for (name, ours), theirs in zip(trainer.model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-3, msg=name)


def test_the_loss_of_a_batch_equals_that_of_trls_trainer(base: Path, tmp_path: Path) -> None:
    """Compared with TRL's SFTTrainer on the prompts and completions of one batch, end tokens included."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [replace(preference(number), id=str(number)) for number in range(4)]
    write_jsonl(folder / "train.jsonl", map(preference_to_json, rows))
    tokenizer = load_tokenizer(str(base))
    settings = settings_of(base, folder, tmp_path / "run")
    data = read_sft_data(settings, tokenizer)
    ours = sft_trainer(settings, data, tokenizer, tmp_path / "work")
    tokenized = [tokenize_row(tokenizer, row.prompt, row.chosen) for row in rows]
    columns = [
        {"input_ids": list(row.ids), "labels": [-100] * row.prompt_tokens + list(row.ids[row.prompt_tokens :])}
        for row in tokenized
    ]
    arguments = SFTConfig(
        str(tmp_path / "trl"), per_device_train_batch_size=4, max_length=None, use_cpu=True, bf16=False
    )
    theirs = SFTTrainer(
        load_model(str(base), "float32"),
        arguments,
        train_dataset=Dataset.from_list(columns),
        processing_class=tokenizer,
    )
    batch = next(iter(theirs.get_train_dataloader()))
    theirs.model.eval()
    ours.model.eval()
    with torch.no_grad():
        found, expected = ours.compute_loss(ours.model, data.train), theirs.compute_loss(theirs.model, batch)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_the_dev_loss_does_not_depend_on_the_batches(base: Path, reading: Path, tmp_path: Path) -> None:
    """Five rows in batches of 1, 2 and 5: a prime number of rows does not force batches of one."""
    tokenizer = load_tokenizer(str(base))
    found = []
    for size in (1, 2, 5):
        settings = settings_of(base, reading, tmp_path / f"run{size}", batch_size=size)
        data = read_sft_data(settings, tokenizer)
        trainer = sft_trainer(settings, data, tokenizer, tmp_path / f"work{size}")
        found.append(trainer.evaluate()["eval_loss"])
    with torch.no_grad():
        slow = -plain_logps(load_model(str(base), "float32"), data.dev).sum() / answer_tokens(data.dev)
    assert found == pytest.approx([float(slow)] * 3, rel=1e-5)


def test_the_dev_loss_is_gathered_by_group(base: Path, reading: Path, tmp_path: Path) -> None:
    """Each group gives one entry: with several processes, the last batch repeats groups, and the Trainer cuts off the surplus by counting entries."""
    tokenizer = load_tokenizer(str(base))
    settings = settings_of(base, reading, tmp_path / "run", batch_size=2, group_tokens=8)
    data = read_sft_data(settings, tokenizer)
    trainer = sft_trainer(settings, data, tokenizer, tmp_path / "work")
    trainer.evaluate()
    assert len(data.dev) == 5
    losses = [-plain_logps(trainer.model, [group]).sum().item() for group in data.dev]
    assert trainer._dev_losses == [
        (pytest.approx(loss, rel=1e-4), group.scored_tokens) for loss, group in zip(losses, data.dev, strict=True)
    ]


@pytest.mark.parametrize("anchored", [False, True])
def test_accumulated_batches_equal_one_large_batch(anchored: bool, base: Path, reading: Path, tmp_path: Path) -> None:
    """Four batches of one group have the loss and the gradient of one batch of four, although the groups have different numbers of answer tokens."""
    values = {"max_steps": 3, "logging_steps": 1, "learning_rate": 1e-3, "anchor_refusals": anchored}
    for size in (1, 4):
        batches = {"batch_size": size, "gradient_accumulation": 4 // size}
        train_sft(settings_of(base, reading, tmp_path / f"{size}", **values, **batches))
    one, other = (
        [(row["loss"], row["grad_norm"]) for row in log_of(tmp_path / f"{size}") if "loss" in row] for size in (1, 4)
    )
    assert one == [(pytest.approx(loss, rel=1e-4), pytest.approx(norm, rel=1e-3)) for loss, norm in other]


def test_the_best_checkpoint_is_saved_and_training_stops_early(base: Path, reading: Path, tmp_path: Path) -> None:
    """The learning rate is high and constant: once the rows are memorised, F1 no longer improves, and the run ends before 400 steps."""
    changes = {"learning_rate": 1e-2, "max_steps": 400, "scheduler": "constant", "eval_steps": 40, "patience": 2}
    run = tmp_path / "run"
    record = train_sft(settings_of(base, reading, run, **changes, logging_steps=40))
    assert record.metrics["train_steps"] < 400
    tokenizer, rows = load_tokenizer(str(run)), read_conversations(reading / "dev.jsonl")
    figures = reading_figures(load_model(str(run), "float32"), tokenizer, rows)
    assert figures["f1"] == pytest.approx(record.metrics["eval_f1"]) and figures["f1"] > 0.5
    assert not (run / "checkpoints").exists()
    (found,) = find_runs(tmp_path)
    course = course_of(tmp_path, found)
    assert max(f1 for _, f1 in course.curves["eval_f1"]) == record.metrics["eval_f1"]
    assert [step for step, _ in course.curves["eval_f1"]] == [step for step, _ in course.curves["loss"]]
    assert course.best_step == 40 * (len(course.curves["eval_f1"]) - changes["patience"])


def test_the_f1_of_dev_rows_does_not_depend_on_the_batch(base: Path, reading: Path) -> None:
    model, tokenizer = load_model(str(base), "float32"), load_tokenizer(str(base))
    rows = read_conversations(reading / "dev.jsonl")
    alone = [reading_figures(model, tokenizer, [row])["f1"] for row in rows]
    assert reading_figures(model, tokenizer, rows)["f1"] == pytest.approx(sum(alone) / len(alone))


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]},
        {"conversations": [{"from": "system", "value": "Be short."}, {"from": "human", "value": "Where?"}, {"from": "gpt", "value": "Here."}]},
        {"system": "Be short.", "instruction": "Where?", "input": "", "output": "Here."},
        {"prompt": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Where?"}], "completion": [{"role": "assistant", "content": "Here."}]},
    ],
)  # fmt: skip
def test_conversations_are_read_in_every_supported_format(row: dict[str, Any]) -> None:
    prompt = (Message("system", "Be short."), Message("user", "Where?"))
    assert conversation_of(row) == Conversation(prompt, "Here.", ("Here.",))


@pytest.mark.parametrize(
    ("completion", "answers"),
    [
        ("Tarn [2]", ("Tarn",)),
        ("###Reason: The ferry left Tarn [1]. ###Answer: Tarn", ("Tarn",)),
        ("###Reason: No passage says so. ###Answer: not in the documents", ()),
    ],
)
def test_the_accepted_answer_of_a_conversation_is_the_short_one(completion: str, answers: tuple[str, ...]) -> None:
    row = conversation_of({"instruction": "Where?", "output": completion})
    assert row.answers == answers and score_reading(completion, row.answers, row.gold, 0).exact == 1


def test_the_answers_of_a_pair_are_accepted() -> None:
    pair = preference_to_json(replace(preference(0), answers=("Corrow", "Corrow town")))
    assert conversation_of(pair).answers == ("Corrow", "Corrow town")


ASSISTANT = {"role": "assistant", "content": "Here."}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "Where?"}, "no 'prompt'"),
        ({"messages": [{"role": "user", "content": "Where?"}]}, "the last turn is the user's"),
        (
            {"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "y"}]},
            "unsupported turn: role 'tool'",
        ),
        (
            {"prompt": "Where?", "completion": "Here.", "answers": "Here", "context_ids": []},
            "expected a list, got 'Here'",
        ),
        ({"instruction": "Where?", "output": " "}, "the completion is ' '"),
        ({"instruction": "Where?", "output": None}, "neither a text nor one message of the assistant: None"),
        ({"prompt": "Where?", "completion": [ASSISTANT, ASSISTANT]}, "neither a text nor one message of the assistant"),
        (
            {"prompt": "Where?", "completion": [{"role": "user", "content": "Here."}]},
            "neither a text nor one message of the assistant",
        ),
    ],
)
def test_a_row_that_is_not_a_conversation_is_reported_with_its_line(
    row: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps({"instruction": "a", "output": "b"}) + "\n" + json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 2") as raised:
        read_conversations(file)
    assert reason in str(raised.value)


def test_settings_that_contradict_each_other_are_refused(base: Path, reading: Path, tmp_path: Path) -> None:
    for save_steps in (7, 10):
        with pytest.raises(ValueError, match=f"save_steps = {save_steps} differs from eval_steps = 5"):
            settings_of(base, reading, tmp_path, eval_steps=5, save_steps=save_steps)
    with pytest.raises(ValueError, match="patience counts measurements"):
        settings_of(base, reading, tmp_path, patience=2)
    (reading / "dev.jsonl").unlink()
    with pytest.raises(UserError, match=r"eval_steps = 5 without .*dev\.jsonl"):
        train_sft(settings_of(base, reading, tmp_path / "run", eval_steps=5))


def test_a_data_path_that_is_not_a_folder_is_refused_with_an_error_that_names_it(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("{}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"rows\.jsonl: a file\. Expected a folder that contains train\.jsonl"):
        train_sft(SftSettings(model=str(base), data=str(file), output=str(tmp_path / "run")))
    with pytest.raises(UserError, match=r"nowhere/train\.jsonl: no such file"):
        train_sft(SftSettings(model=str(base), data=str(tmp_path / "nowhere"), output=str(tmp_path / "run")))


def test_an_adapter_has_the_targets_and_options_of_the_settings(base: Path, reading: Path, tmp_path: Path) -> None:
    lora = LoraSettings(rank=2, targets=("q_proj", "v_proj"), dropout=0.1, rslora=True, dora=True)
    run = tmp_path / "run"
    train_sft(settings_of(base, reading, run, lora=lora, max_steps=2))
    config = json.loads((run / "adapter_config.json").read_text(encoding="utf-8"))
    assert set(config["target_modules"]) == {"q_proj", "v_proj"}
    assert (config["lora_dropout"], config["use_rslora"], config["use_dora"]) == (0.1, True, True)
    assert answer_form(run) == "cited", (
        "the run should have the answer form that the prompts of its training rows request"
    )

"""Exported runs: the merged model matches the adapter, no local path leaks, and runs that cannot be merged are refused."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from data_synth.rows import response_to_json
from graph.errors import UserError
from graph.shared.jsonl import write_jsonl
from graph.types import Message
from tests import commands
from tests.train.adapters import with_smollm2
from tests.train.world import response_row
from train.export.divergence import fixed_turns, merge_loss, probe_rows, token_kl, token_logps
from train.export.export import export_adapter, export_merged, public_record
from train.model.load import load_model, load_policy, load_tokenizer
from train.model.logps import completion_logps, pad_rows, tokenize_row
from train.preference.preference import train_once
from train.run.data import read_preferences
from train.run.record import model_card, read_run
from train.run.settings import LoraSettings, MsSettings, SftSettings
from train.sft import train_sft


@pytest.fixture(scope="module")
def run(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter trained for a few steps, enough to differ from its base."""
    output = tmp_path_factory.mktemp("runs") / "ms"
    values = {"model": str(base), "data": str(data), "output": str(output), "learning_rate": 3e-2, "max_steps": 4}
    train_once(MsSettings(**values, beta=0.5, label_smoothing=0.1, lora=LoraSettings(rank=4, alpha=8)))  # type: ignore[arg-type]
    return output


@pytest.fixture(scope="module")
def full_run(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "sft"
    train_sft(SftSettings(model=str(base), data=str(data), output=str(output), max_steps=1))
    return output


@pytest.fixture
def copied_run(run: Path, base: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Copies of (run, base) that a test may damage."""
    own, own_base = tmp_path / "own", tmp_path / "own-base"
    shutil.copytree(run, own)
    shutil.copytree(base, own_base)
    config = own / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": str(own_base)}))
    return own, own_base


def texts_of(folder: Path) -> str:
    """All files of a folder as text, including the headers of weights and the tokenizer's vocabulary."""
    return "\n".join(file.read_bytes().decode("utf-8", "replace") for file in sorted(folder.iterdir()))


def test_kl_equals_a_calculation_by_hand() -> None:
    """p = (1/2, 1/2), q = (1/4, 3/4): KL = ½ ln 2 + ½ ln ⅔ = ½ ln 4/3."""
    p, q = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    assert token_kl(p, q).tolist() == pytest.approx([0.5 * math.log(4 / 3)])
    assert token_kl(p, p).tolist() == [0.0]


def test_the_merged_model_matches_the_adapter(run: Path, base: Path, data: Path, tmp_path: Path) -> None:
    """Loaded from disk, the merged model gives completions the log-probabilities of the adapter up to bf16 rounding; those of the base are far off."""
    loss = export_merged(run, tmp_path / "merged")
    rows = read_preferences(data / "dev.jsonl")
    tokenizer = load_tokenizer(str(tmp_path / "merged"))
    tokenized = [tokenize_row(tokenizer, row.prompt, row.chosen) for row in rows]
    ids_BT, mask_BT = pad_rows(tokenized, tokenizer.pad_token_id)
    merged, _ = load_policy(str(tmp_path / "merged"), "bfloat16")
    assert not hasattr(merged, "peft_config")
    weights = load_file(tmp_path / "merged" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    adapter, bare = load_policy(str(run))[0], load_policy(str(base))[0]
    with torch.no_grad():
        theirs, ours, untouched = (completion_logps(m, ids_BT, mask_BT) for m in (adapter, merged, bare))
    tokens_B = mask_BT.sum(1)
    assert ((theirs - ours).abs() / tokens_B).max() < 2e-3
    assert ((theirs - untouched).abs() / tokens_B).min() > 0.1
    assert loss.measured_on == "dev.jsonl" and loss.tokens == int(mask_BT[:, 1:].sum())
    assert abs(loss.kl_nats_per_token) < 1e-5 and 0 < loss.largest_gap_nats < 0.02


@torch.no_grad()
def test_the_divergence_agrees_with_a_slow_reference(run: Path, base: Path, data: Path) -> None:
    """Adapter against base, summed in plain Python over every position and vocabulary entry, in double precision."""
    _, rows = probe_rows(run, read_run(run))
    found = merge_loss(*(token_logps(load_policy(str(folder))[0], rows) for folder in (run, base)), rows, "dev.jsonl")
    adapter, tokenizer = load_policy(str(run))
    bare, _ = load_policy(str(base))
    divergences, gaps = [], []
    for row in read_preferences(data / "dev.jsonl"):
        tokenized = tokenize_row(tokenizer, row.prompt, row.chosen)
        for place in range(tokenized.prompt_tokens, len(tokenized.ids)):
            before = torch.tensor([tokenized.ids[:place]])
            p, q = (model(before).logits[0, -1].double().softmax(-1).tolist() for model in (adapter, bare))
            divergences.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
            own = tokenized.ids[place]
            gaps.append(abs(math.log(p[own]) - math.log(q[own])))
    assert found.kl_nats_per_token == pytest.approx(sum(divergences) / len(divergences), rel=1e-4)
    assert found.largest_gap_nats == pytest.approx(max(gaps), rel=1e-4)
    assert found.tokens == len(gaps)


def test_the_reported_figures_describe_the_saved_model(run: Path, tmp_path: Path) -> None:
    """Computing the figures again from the two folders gives the same values."""
    loss = export_merged(run, tmp_path / "merged")
    _, rows = probe_rows(run, read_run(run))
    adapter = token_logps(load_model(str(run), "float32"), rows)
    saved = token_logps(load_model(str(tmp_path / "merged"), "bfloat16"), rows)
    assert merge_loss(adapter, saved, rows, "dev.jsonl") == loss


def test_a_merge_that_changes_nothing_would_be_noticed(run: Path, base: Path, tmp_path: Path) -> None:
    """The unchanged base is over a hundred times as far from the adapter as the merged model is."""
    _, rows = probe_rows(run, read_run(run))
    adapter, bare = (token_logps(load_model(str(folder), "float32"), rows) for folder in (run, base))
    far = merge_loss(adapter, bare, rows, "dev.jsonl").kl_nats_per_token
    assert far > 100 * export_merged(run, tmp_path / "merged").kl_nats_per_token


def test_rows_of_the_data_are_compared_or_fixed_prompts_if_the_data_are_gone(run: Path, tmp_path: Path) -> None:
    record = read_run(run)
    gone = replace(record, data=str(tmp_path / "gone"))
    where, rows = probe_rows(run, gone)
    assert where == "fixed prompts" and len(rows) == len(fixed_turns()) == 4
    assert all(0 < row.prompt_tokens < len(row.ids) for row in rows)
    write_jsonl(tmp_path / "train.jsonl", [response_to_json(response_row(0)), response_to_json(response_row(1))])
    where, rows = probe_rows(run, replace(record, data=str(tmp_path)))
    assert where == "train.jsonl"
    tokenizer = load_tokenizer(str(run))
    assert [row.ids for row in rows] == [
        tokenize_row(tokenizer, response_row(number).prompt, response_row(number).responses[0]).ids for number in (0, 1)
    ]


@pytest.mark.parametrize(
    "row",
    [
        {
            "prompt": [{"role": "user", "content": "Where?"}],
            "completion": "Tarn [1]",
            "answers": ["Tarn"],
            "gold_ids": [],
        },
        {"messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Tarn [1]"}]},
        {"instruction": "Where?", "output": "Tarn [1]"},
    ],
    ids=["reading", "messages", "instruction"],
)
def test_an_export_can_be_measured_on_every_form_of_rows_that_sft_reads(
    row: dict[str, object], run: Path, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "train.jsonl", [row])
    where, (found,) = probe_rows(run, replace(read_run(run), data=str(tmp_path)))
    assert where == "train.jsonl"
    assert found == tokenize_row(load_tokenizer(str(run)), [Message("user", "Where?")], "Tarn [1]")


def test_the_number_of_compared_tokens_is_limited_but_one_row_is_always_compared(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rows = probe_rows(run, read_run(run))
    lengths = [len(row.ids) - row.prompt_tokens for row in rows]
    monkeypatch.setattr("train.export.divergence.TOKENS_COMPARED", sum(lengths[:2]))
    assert probe_rows(run, read_run(run))[1] == rows[:2]
    monkeypatch.setattr("train.export.divergence.TOKENS_COMPARED", 1)
    assert probe_rows(run, read_run(run))[1] == rows[:1]


def test_an_export_reports_its_figures_and_no_local_path(run: Path, base: Path, data: Path, tmp_path: Path) -> None:
    loss = export_merged(run, tmp_path / "merged")
    name = export_adapter(run, tmp_path / "adapter", "owner/small-model")
    assert name == "owner/small-model"
    for folder in (tmp_path / "merged", tmp_path / "adapter"):
        contents = texts_of(folder)
        assert not any(
            str(place) in contents for place in (base, base.parent, data, data.parent, run, run.parent, tmp_path)
        )
        card = (folder / "README.md").read_text(encoding="utf-8")
        record = read_run(folder)
        assert record.data_fingerprint in card and record.base_weights in card and f"| data | {data.name} |" in card
        assert "| K (responses per prompt) | 2 |" in card and "| ε (label smoothing) | 0.1 |" in card
        assert "settings.yaml" not in card
    merged_card = (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
    assert f"{loss.kl_nats_per_token:.3g} nats per token" in merged_card and "library_name: transformers" in merged_card
    adapter_card = (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "base_model: owner/small-model" in adapter_card and "library_name: peft" in adapter_card
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "owner/small-model"
    assert not (tmp_path / "adapter" / "model.safetensors").exists()


def test_a_card_states_k_both_betas_the_answer_form_and_the_loss(run: Path) -> None:
    """K, β_π, β_r and the product of the two betas, the only identified quantity; no row for values that do not apply."""
    record = replace(read_run(run), beta=0.5, beta_reward=0.4, label_smoothing=None, responses_per_prompt=8)
    card = model_card(record, adapter=True)
    assert "| K (responses per prompt) | 8 |\n| β (β_π) | 0.5 |\n| β_r | 0.4 |\n| β_π β_r | 0.2 |\n| device" in card
    assert "β_π β_r" not in model_card(read_run(run), adapter=True)
    assert "form `###Reason: … ###Answer: …`." in card
    assert "form `answer [n]`: a short" in model_card(replace(record, answer_form="cited"), adapter=True)
    assert "Answers have the form" not in model_card(replace(record, answer_form=None), adapter=True)
    by_rloo = model_card(replace(record, stage="dpo", settings={**record.settings, "loss": "rloo"}), adapter=True)
    assert "# Preference optimisation with the loss rloo\n" in by_rloo and "Direct preference" not in by_rloo


def test_an_exported_adapter_gives_the_logits_of_the_run(run: Path, base: Path, tmp_path: Path) -> None:
    """The exported adapter is loaded onto its base."""
    from peft import PeftModel

    export_adapter(run, tmp_path / "adapter", "owner/small-model")
    exported = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter")
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.equal(exported(ids).logits, load_policy(str(run))[0](ids).logits)
    assert load_tokenizer(str(tmp_path / "adapter")).chat_template == load_tokenizer(str(run)).chat_template


def test_a_base_from_the_hub_needs_no_hub_base_option(copied_run: tuple[Path, Path], tmp_path: Path) -> None:
    run, _ = copied_run
    for file, change in (
        ("adapter_config.json", {"base_model_name_or_path": "owner/base"}),
        ("run.json", {"base_weights": "owner/base"}),
    ):
        (run / file).write_text(json.dumps(json.loads((run / file).read_text()) | change))
    assert export_adapter(run, tmp_path / "out") == "owner/base"
    assert "base_model: owner/base" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@with_smollm2
def test_the_error_for_a_base_of_the_catalogue_names_its_original_on_the_hub(
    copied_run: tuple[Path, Path], tmp_path: Path
) -> None:
    run, _ = copied_run
    for file, change in (
        ("adapter_config.json", {"base_model_name_or_path": "smollm2"}),
        ("run.json", {"base_weights": ""}),
    ):
        (run / file).write_text(json.dumps(json.loads((run / file).read_text()) | change))
    with pytest.raises(UserError, match="--hub-base HuggingFaceTB/SmolLM2-135M-Instruct"):
        export_adapter(run, tmp_path / "out")


def test_names_on_the_hub_are_not_shortened(run: Path, full_run: Path, base: Path, data: Path) -> None:
    record = read_run(run)
    settings = {**record.settings, "reference": "owner/reference"}
    public = public_record(run, replace(record, settings=settings, reference_name="owner/reference"))
    assert (public.settings["reference"], public.settings["model"]) == ("owner/reference", base.name)
    full = replace(read_run(full_run), base_model="owner/base", base_weights="owner/base")
    full = public_record(full_run, replace(full, settings={**full.settings, "model": "owner/base"}))
    assert (full.base_model, full.settings["model"], full.settings["data"]) == ("owner/base", "owner/base", data.name)


def test_relative_paths_are_shortened_wherever_the_export_runs(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("runs/start", "runs/tuned"):
        shutil.copytree(base, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    values = {"data": str(data), "output": str(tmp_path / "ms"), "model": "runs/start", "reference": "runs/tuned"}
    train_once(MsSettings(**values, max_steps=1))  # type: ignore[arg-type]
    record = read_run(tmp_path / "ms")
    assert re.fullmatch(r"tuned#\w+", record.reference_name)
    monkeypatch.chdir("/")
    public = public_record(tmp_path / "ms", record)
    assert (public.settings["model"], public.settings["reference"]) == ("start", "tuned")


def test_a_full_model_and_a_folder_without_a_run_are_refused(full_run: Path, tmp_path: Path) -> None:
    for export in (export_merged, export_adapter):
        with pytest.raises(UserError, match=r"a full model, without an adapter"):
            export(full_run, tmp_path / "out")
    with pytest.raises(UserError, match=r"no run\.json"):
        export_merged(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_exists_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    for export in (export_merged, export_adapter):
        with pytest.raises(UserError, match=r"out: already exists"):
            export(run, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_a_missing_base_is_named_in_the_error(copied_run: tuple[Path, Path], tmp_path: Path) -> None:
    run, base = copied_run
    shutil.rmtree(base)
    with pytest.raises(UserError, match=r"base model .*own-base' does not exist"):
        export_merged(run, tmp_path / "out")
    with pytest.raises(UserError, match=r"no hub name is recorded .*--hub-base OWNER/NAME"):
        export_adapter(run, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()


def test_an_adapter_of_a_changed_base_is_refused(copied_run: tuple[Path, Path], tmp_path: Path) -> None:
    """One weight of the base has changed since the training: merging would make a model that nobody trained."""
    run, base = copied_run
    weights = load_file(base / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"does not belong to base model .*\(trained on weights"):
        export_merged(run, tmp_path / "out")
    with pytest.raises(UserError, match=r"does not belong to base model"):
        export_adapter(run, tmp_path / "out", "owner/name")


def test_weights_with_nan_are_not_merged(copied_run: tuple[Path, Path], tmp_path: Path) -> None:
    run, _ = copied_run
    weights = load_file(run / "adapter_model.safetensors")
    save_file({name: weight * math.nan for name, weight in weights.items()}, run / "adapter_model.safetensors")
    with pytest.raises(UserError, match=r"NaN.*finite weights"):
        export_merged(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_figures_of_the_export(run: Path, tmp_path: Path) -> None:
    merged = commands.run("train", "export", run, "--out", tmp_path / "a", "--merge", "--json")
    assert merged.exit_code == 0, merged.stderr
    result = json.loads(merged.stdout)
    assert result["output"] == str(tmp_path / "a") and result["measured_on"] == "dev.jsonl"
    assert abs(result["kl_nats_per_token"]) < 1e-5 and result["largest_gap_nats"] > 0
    adapter = commands.run("train", "export", run, "--out", tmp_path / "b", "--adapter-only", "--hub-base", "o/n")
    assert adapter.exit_code == 0 and "base model o/n" in adapter.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "export: nothing to write. Expected one of --merge, --adapter-only and --gguf TYPE"),
        (["--merge", "--adapter-only"], "--merge and --adapter-only. Expected one of"),
        (["--gguf", "q4"], "--gguf q4. Expected one of f16, bf16, q8_0"),
        (["--gguf", "f16", "--adapter-only", "--hub-base", "o/n"], "--hub-base o/n with --gguf"),
        (["--merge", "--conversations", "4"], "--conversations 4 without --gguf"),
        (["--merge", "--hub-base", "o/n"], "--hub-base only with --adapter-only"),
        (["--adapter-only", "--hub-base", "../models/base"], "not a name on the hub"),
        (["--merge", "--push", "just-a-name"], "not a name on the hub"),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_any_work(
    flags: list[str], message: str, run: Path, tmp_path: Path
) -> None:
    result = commands.run("train", "export", run, "--out", tmp_path / "out", *flags)
    assert isinstance(result.exception, UserError) and message in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("offline", [True, False], ids=["offline mode", "no network"])
def test_a_failed_upload_does_not_remove_the_export(
    offline: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", "http://127.0.0.1:9")
    flags = ["--adapter-only", "--hub-base", "o/n", "--push", "owner/repository"]
    result = commands.run("train", "export", run, "--out", tmp_path / "out", *flags)
    assert isinstance(result.exception, UserError) and "--push owner/repository" in str(result.exception)
    assert (tmp_path / "out" / "run.json").exists()

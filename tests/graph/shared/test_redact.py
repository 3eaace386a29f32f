"""No error, message or record contains a secret."""

import doctest
import json
from functools import partial

import pytest
import yaml
from pydantic import SecretStr

from graph import errors as module
from graph.config import Settings, load_settings
from graph.errors import MARK, UserError, redact, redacted
from graph.shared.console import say
from tests.growth import assert_linear

SECRET = "correct-horse-battery"
SECRET_CHARS = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY1z"


def test_the_examples_in_docstrings_are_correct() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("found", "remedy", "message"),
    [
        ("x: no index.", "run: modegraph repair .", "x: no index. Expected one. Run: modegraph repair ."),
        ("no index in .", "run: modegraph repair ../..", "no index in . Expected one. Run: modegraph repair ../.."),
        ("no index;", "change it...", "no index. Expected one. Change it"),
    ],
)
def test_a_message_has_no_full_stop_at_its_end_but_keeps_the_names_of_folders(
    found: str, remedy: str, message: str
) -> None:
    assert str(UserError(found, "one.", remedy)) == message


@pytest.mark.parametrize(
    "text",
    [
        f"--set api_key={SECRET}",
        f"--api-key={SECRET}: empty",
        f"serve.yaml: hub_token = '{SECRET}'; too short",
        f"HF_TOKEN={SECRET} is not accepted",
        f"openai:m@http://me:{SECRET}@host:1/v1: no answer",
        f"postgresql+psycopg://modegraph:{SECRET}@db/index",
        f"db.password={SECRET}",
        "hf_abcdefghijklmnop was refused",
        "Incorrect API key provided: sk-proj-abcdefghijklmnop",
        "Incorrect API key provided: sk-1234567890",
        *(f"hf_{SECRET_CHARS}: refused", f"hf_oauth_{SECRET_CHARS}: refused"),
        f"key sk-{SECRET_CHARS[:13]}_{SECRET_CHARS[13:]} is unknown",
        f"sk-proj-{SECRET_CHARS[:8]}-{SECRET_CHARS[8:16]}-{SECRET_CHARS[16:]}",
    ],
)
def test_a_secret_in_a_string_is_redacted(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (redact(text), str(UserError(text, "another", f"not {text}"))):
        assert (
            SECRET not in shown and "abcdefghijklmnop" not in shown and SECRET_CHARS[-8:] not in shown and MARK in shown
        )
    say(text)
    assert SECRET not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "--set x. Expected key=value. For example --set learning_rate=1e-5",
        "max_answer_tokens = 5; ms_per_token = 1.0",
        "http://127.0.0.1:8080/v1 and openai:m@http://host:1/v1",
        "unknown key 'api_kee'. Did you mean 'api_key'?",
        "/data/hf_documents_2024/a.txt and hf_my_long_data_set_of_letters: no such folder",
        "data/sk-wikipedia-dump-2026-01-31-part-07.jsonl, sk-slovak-language-documents",
    ],
)
def test_a_string_without_a_secret_is_unchanged(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("part", ["sk-", "a.", "hf_a-", "a_", "token="])
def test_the_time_grows_linearly(part: str) -> None:
    assert_linear(lambda size: partial(redact, part * size), 500)


def test_secrets_in_environment_variables_are_redacted_unless_they_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("OTHER_KEY", "ab")
    assert redact(f"401 for {SECRET} at ab") == f"401 for {MARK} at ab"
    monkeypatch.setenv("SORT_KEY", "report")
    assert redact("reports/2024: a/report, my_report.") == f"reports/2024: a/{MARK}, my_{MARK}."
    assert redact(f"x{SECRET}x") == f"x{MARK}x"


class Store(Settings):
    """Settings that can contain secrets: a URL, a secret field, and a string whose name marks it as secret."""

    dsn: str = ""
    api_key: SecretStr | None = None
    token: str = ""
    ms_per_token: float = 1.0
    output: str = ""


def test_a_record_of_settings_contains_no_secret() -> None:
    overrides = [f"dsn=postgresql://me:{SECRET}@db/x", f"api_key={SECRET}", f"token={SECRET}", "output=2024"]
    record = load_settings(Store, None, overrides).recorded()
    assert SECRET not in json.dumps(record) and SECRET not in yaml.safe_dump(record)
    assert (record["output"], record["ms_per_token"]) == ("2024", 1.0)
    assert redacted({"rows": [{"password": SECRET}], "n": 3}) == {"rows": [{"password": MARK}], "n": 3}


@pytest.mark.parametrize(
    "overrides",
    [
        [f"api_key=[{SECRET}]"],
        [f"api_key={SECRET}", f"api_key.inner={SECRET}"],
        [f"token=[{SECRET}]"],
        [f"dsn=[postgresql://me:{SECRET}@db]"],
        [f"api_kee={SECRET}"],
    ],
)
def test_no_settings_error_echoes_a_secret(overrides: list[str]) -> None:
    with pytest.raises(UserError) as problem:
        load_settings(Store, None, overrides)
    assert SECRET not in str(problem.value)


@pytest.mark.parametrize("text", ["2024", "true", "1e3", "007", "null", "2024-01-02", "no"])
def test_a_value_that_looks_like_another_type_is_a_string_where_a_string_is_expected(text: str) -> None:
    assert load_settings(Store, None, [f"output={text}"]).output == text

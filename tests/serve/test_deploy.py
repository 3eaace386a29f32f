"""The files shipped for deployment are correct: they can be parsed, use only existing options, run modegraph without privileges and contain no secret."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from modegraph.cli import FOLDERS
from serve.http.settings import ServerSettings
from tests.commands import options_of, run
from tests.places import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
UNIT = (ROOT / "deploy/modegraph.service").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_serve_commands_of_compose_and_systemd_use_only_existing_options() -> None:
    serve = options_of("serve")
    command = COMPOSE["services"]["modegraph"]["command"]
    assert command[0] == "serve" and {word for word in command if word.startswith("--")} <= serve
    start = re.search(r"ExecStart=\S+ serve (.*)", UNIT)
    assert start is not None and set(re.findall(r"--[a-z-]+", start[1])) <= serve
    assert run("serve", "--help").exit_code == 0


def test_both_images_run_as_an_unprivileged_user_and_contain_no_secret() -> None:
    stages = {block.split()[2]: block for block in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]}
    for target in ("cpu", "cuda"):
        assert stages[target].split()[0] == "runtime" and stages[target].strip().endswith("USER modegraph")
    assert "HEALTHCHECK" in stages["runtime"] and "/health" in stages["runtime"]
    port = ServerSettings.model_fields["port"].default
    assert f"127.0.0.1:{port}/health" in stages["runtime"] and f"EXPOSE {port}" in stages["runtime"]
    assert re.search(r"^(ENV|ARG).*(KEY|TOKEN|SECRET|PASSWORD)", DOCKERFILE, re.MULTILINE | re.IGNORECASE) is None


def test_the_image_contains_every_folder_of_the_program_but_no_tests_or_examples() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    included = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines and {"modegraph", *FOLDERS} <= included
    assert all((ROOT / name).exists() for name in included)
    assert not included & {".git", ".venv", "tests", "examples"}


def test_compose_isolates_the_model_and_requires_a_key() -> None:
    vllm, server = COMPOSE["services"]["vllm"], COMPOSE["services"]["modegraph"]
    assert "ports" not in vllm and vllm["networks"] == ["inside"] and COMPOSE["networks"]["inside"]["internal"] is True
    assert server["environment"]["MODEGRAPH_API_KEY"].startswith("${MODEGRAPH_API_KEY:?")
    assert (
        server["read_only"]
        and server["cap_drop"] == ["ALL"]
        and all(port.startswith("127.0.0.1:") for port in server["ports"])
    )
    grace_s = int(server["stop_grace_period"].removesuffix("s"))
    assert grace_s > ServerSettings.model_fields["drain_s"].default


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit_file = tmp_path / "modegraph.service"
    unit_file.write_text(UNIT.replace("/opt/modegraph/bin/modegraph", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit_file], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for line in ("DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes", "CapabilityBoundingSet="):
        assert f"\n{line}\n" in UNIT

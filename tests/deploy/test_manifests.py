"""deploy/kubernetes and deploy/replicas agree with the server that they start, and are consistent with each other."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from graph.config import load_settings
from serve.http.auth import OPEN_PATHS
from serve.http.settings import ServerSettings
from serve.http.telemetry import Metrics
from tests.commands import options_of
from tests.places import ROOT

KUBERNETES, REPLICAS = ROOT / "deploy" / "kubernetes", ROOT / "deploy" / "replicas"
KUSTOMIZATION = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
JOB = "index-job.yaml"
OBJECTS: dict[str, Any] = {}
for _name in [*KUSTOMIZATION["resources"], JOB]:
    (_object,) = yaml.safe_load_all((KUBERNETES / _name).read_text())
    OBJECTS[_object["kind"]] = _object
COMPOSE = yaml.safe_load((REPLICAS / "compose.yaml").read_text())
NGINX = (REPLICAS / "nginx.conf").read_text()
PODS = {kind: OBJECTS[kind]["spec"]["template"] for kind in ("Deployment", "Job")}
PORT = ServerSettings.model_fields["port"].default


def settings_of(folder: Path) -> ServerSettings:
    return load_settings(ServerSettings, folder / "serve.yaml")


def check_command(words: list[str]) -> None:
    """Check that the command exists and has these options."""
    assert {word for word in words if word.startswith("--")} <= options_of(words[0])


def container_of(kind: str) -> dict[str, Any]:
    (found,) = PODS[kind]["spec"]["containers"]
    return found  # type: ignore[no-any-return]


def every_value(tree: object, key: str) -> Iterator[Any]:
    if isinstance(tree, dict):
        yield from ([tree[key]] if key in tree else [])
        tree = list(tree.values())
    for each in tree if isinstance(tree, list) else ():
        yield from every_value(each, key)


def test_every_file_except_the_job_is_applied() -> None:
    settings = KUSTOMIZATION["configMapGenerator"][0]
    shipped = {file.name for file in KUBERNETES.iterdir()}
    assert shipped == {"kustomization.yaml", *KUSTOMIZATION["resources"], JOB, *settings["files"]}
    assert {*OBJECTS} == {
        *("Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"),
        *("NetworkPolicy", "PersistentVolumeClaim", "Job"),
    }


def test_kubectl_kustomize_builds_every_object() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES], capture_output=True, text=True, check=True, timeout=60)
    built = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert {*built} == {*OBJECTS, "ConfigMap"} - {"Job"}
    (volume,) = every_value(built["Deployment"], "configMap")
    assert volume["name"] == built["ConfigMap"]["metadata"]["name"]


def test_every_pod_selector_matches_the_pods_of_the_deployment() -> None:
    labels = PODS["Deployment"]["metadata"]["labels"]
    selectors = [
        OBJECTS["Deployment"]["spec"]["selector"]["matchLabels"],
        OBJECTS["Service"]["spec"]["selector"],
        OBJECTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        OBJECTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        *(each["matchLabels"] for each in every_value(PODS["Deployment"], "labelSelector")),
    ]
    job = PODS["Job"]["metadata"]["labels"].items()
    assert len(selectors) == 5 and all(each.items() <= labels.items() for each in selectors)
    assert [each.items() <= job for each in selectors] == [False, False, False, True, False]
    target = OBJECTS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", OBJECTS["Deployment"]["metadata"]["name"])
    assert "replicas" not in OBJECTS["Deployment"]["spec"], (
        "the Deployment should not set `replicas`: each apply would undo what the autoscaler does"
    )


def test_the_autoscaler_uses_a_metric_that_the_server_exports() -> None:
    exported = {sample.name for family in Metrics().registry.collect() for sample in family.samples}
    (metric,) = OBJECTS["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in exported
    assert f"name: {{as: {metric['pods']['metric']['name']}}}" in (ROOT / "docs" / "deploy.md").read_text()
    target = float(metric["pods"]["target"]["averageValue"])
    assert 0 < target < settings_of(KUBERNETES).queue, (
        "the target should be below the queue's size, since no more requests can wait"
    )


def test_ports_probes_and_volumes_are_consistent() -> None:
    container = container_of("Deployment")
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    assert [each["targetPort"] for each in OBJECTS["Service"]["spec"]["ports"]] == ["http"]
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {each["port"] for each in probes.values()} == {"http"}
    assert {each["path"] for each in probes.values()} <= {*OPEN_PATHS} and probes["readinessProbe"]["path"] == "/ready"
    for kind, pod in PODS.items():
        mounted = {each["name"] for each in container_of(kind)["volumeMounts"]}
        assert mounted == {each["name"] for each in pod["spec"]["volumes"]}
        claims = [each["claimName"] for each in every_value(pod, "persistentVolumeClaim")]
        assert OBJECTS["PersistentVolumeClaim"]["metadata"]["name"] in claims
    assert OBJECTS["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    folder = container_of("Deployment")["args"][1]
    assert folder == container_of("Job")["args"][3] and folder.startswith("/shared/")
    open_ports = {
        (each["protocol"], each["port"]) for ports in every_value(OBJECTS["NetworkPolicy"], "ports") for each in ports
    }
    assert open_ports == {("TCP", "http"), ("UDP", 53), ("TCP", 53), ("TCP", 5432), ("TCP", 8000)}


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_pods_run_unprivileged_and_contain_no_secret(kind: str) -> None:
    pod, container = PODS[kind]["spec"], container_of(kind)
    assert pod["securityContext"]["runAsUser"] == 10001 and "--uid 10001" in (ROOT / "Dockerfile").read_text()
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    secret = re.compile("KEY|PASSWORD")
    assert all("secretKeyRef" in each.get("valueFrom", {}) for each in container["env"] if secret.search(each["name"]))
    check_command(container["args"])


def test_a_pod_has_enough_time_for_its_server_to_stop() -> None:
    settings, spec = settings_of(KUBERNETES), PODS["Deployment"]["spec"]
    probe = container_of("Deployment")["readinessProbe"]
    assert spec["terminationGracePeriodSeconds"] > settings.unready_s + settings.drain_s
    assert settings.unready_s > probe["periodSeconds"] * probe["failureThreshold"]
    assert OBJECTS["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_compose_starts_the_replicas_that_nginx_forwards_to() -> None:
    services = COMPOSE["services"]
    named = re.findall(r"server (replica-\d+):(\d+) max_fails=0;", NGINX)
    assert [name for name, _ in named] == [name for name in services if name.startswith("replica-")]
    settings = settings_of(REPLICAS)
    for name, port in named:
        replica = services[name]
        assert int(port) == PORT
        assert int(replica["stop_grace_period"].removesuffix("s")) > settings.unready_s + settings.drain_s
        assert replica["environment"]["MODEGRAPH_API_KEY"].startswith("${MODEGRAPH_API_KEY:?")
        assert replica["read_only"] and replica["cap_drop"] == ["ALL"] and "ports" not in replica
        check_command(replica["command"])
    addresses = [services[name]["networks"]["inside"]["ipv4_address"] for name, _ in named]
    assert len({*addresses}) == len(named), (
        "each replica should have its own fixed address: nginx resolves names only once"
    )
    assert COMPOSE["networks"]["inside"]["internal"] is True and services["postgres"]["networks"] == ["inside"]
    assert all(each.startswith("127.0.0.1:") for each in services["nginx"]["ports"])
    check_command(services["index"]["entrypoint"][1:])


def test_the_limits_of_nginx_exceed_those_of_the_server() -> None:
    settings = settings_of(REPLICAS)
    size, timeout = re.search(r"client_max_body_size (\d+)m;", NGINX), re.search(r"proxy_read_timeout (\d+)s;", NGINX)
    assert size is not None and int(size[1]) << 20 > settings.max_upload_bytes
    assert timeout is not None and int(timeout[1]) > settings.request_timeout_s
    assert f"listen {PORT};" in NGINX

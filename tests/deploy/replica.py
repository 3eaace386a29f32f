"""One replica as a process: `modegraph serve` with the settings of deploy/replicas, except for port, capacity and feedback, and with the stand-in encoder.

Run: python -m tests.deploy.replica INDEX MODEL PORT
"""

import sys
from pathlib import Path

from graph.config import parse_settings, read_yaml
from serve.app import build_app, log_to_stderr, make_services, server_of
from serve.engines.open_backend import VllmOptions, open_backend
from serve.http.settings import ServerSettings
from tests.fakes import HashEncoder
from tests.places import ROOT

SETTINGS = ROOT / "deploy" / "replicas" / "serve.yaml"


def main(index: str, model: str, port: str) -> None:
    """Serve until a signal stops the process."""
    log_to_stderr()
    values = {**read_yaml(SETTINGS), "port": int(port), "capacity": 32, "feedback": True}
    settings = parse_settings(ServerSettings, values, str(SETTINGS))
    backend = open_backend(model, (), VllmOptions())
    services = make_services([Path(index)], backend, settings, lambda spec: HashEncoder())
    server_of(build_app(services), services).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What `modegraph --version` tells: which version this is, and of what it depends on."""

import platform

from graph.shared.home import installed_version

TOLD = ("torch", "transformers", "trl", "peft", "vllm")


def versions() -> str:
    """One line each for modegraph, Python and the libraries that matter most; none of them is imported."""
    lines = [f"modegraph {installed_version('modegraph')}", f"Python {platform.python_version()}"]
    return "\n".join([*lines, *(f"{name} {installed_version(name)}" for name in TOLD)])

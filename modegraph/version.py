"""What `modegraph --version` tells: which version this is, and of what it depends on."""

import platform
from importlib.metadata import PackageNotFoundError, version

TOLD = ("torch", "transformers", "trl", "peft", "vllm")


def versions() -> str:
    """One line each for modegraph, Python and the libraries that matter most; none of them is imported."""
    lines = [f"modegraph {installed('modegraph')}", f"Python {platform.python_version()}"]
    return "\n".join([*lines, *(f"{name} {installed(name)}" for name in TOLD)])


def installed(name: str) -> str:
    """The version of an installed package, or that it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

"""What this machine's processor can do."""

from functools import cache
from pathlib import Path

_FLAGS = Path("/proc/cpuinfo")
BFLOAT16_FLAGS = ("amx_bf16", "avx512_bf16")


@cache
def computes_in_bfloat16() -> bool:
    """Whether there are instructions for bfloat16; without them it is several times slower than float32."""
    flags = _FLAGS.read_text() if _FLAGS.exists() else ""
    return any(flag in flags for flag in BFLOAT16_FLAGS)

"""The nouns of reading foreign files. Nothing heavy is imported here or beside it: the worker process starts with it."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Parsed:
    """What a file holds: its own title ("" when it has none) and its visible text."""

    title: str
    text: str


@dataclass(frozen=True)
class Limits:
    """What reading one HTML or PDF file may take: processor seconds and memory, for files of up to 1 MiB.

    >>> Limits().seconds_for(700), Limits().seconds_for(10 * MIB), Limits().memory_for(2 * MIB) // MIB
    (4.5, 45.0, 513)
    """

    seconds: float = 4.5
    memory_mb: int = 512

    def seconds_for(self, size: int) -> float:
        """Seconds for a file of `size` bytes: in proportion, from 1 MiB on."""
        return self.seconds * max(1.0, size / MIB)

    def memory_for(self, size: int) -> int:
        """Bytes of address space for a file of `size` bytes: what exceeds 1 MiB comes on top, as it is held whole."""
        return self.memory_mb * MIB + max(0, size - MIB)


@dataclass(frozen=True)
class Ended:
    """How the reading of one file ended: length of the answer, the fork's signal or exit code, processor seconds, peak memory."""

    bytes: int
    signal: int
    code: int
    cpu_s: float
    peak_mb: float

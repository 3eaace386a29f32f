"""What a report says of model calls that were answered from a ledger."""

from __future__ import annotations


def replayed_calls(count: int) -> str:
    """A sentence, "" where no call was replayed."""
    return (
        f"{count:,} model calls were answered from the ledger and cost what they did when they were made."
        if count
        else ""
    )


def untimed_calls(count: int) -> str:
    """What to say of replayed calls without a time, "" where there are none."""
    told = f"{count:,} calls were answered from a ledger that kept no times of them: its seconds are too few"
    return f"{told}; remove the ledger to have them timed." if count else ""

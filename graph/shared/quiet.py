"""What libraries print on their way that tells a user nothing: kept off the terminal at its cause, and nothing else with it."""

import logging

NO_KERNEL = "Failed to load CPU gemm_4bit_forward"
"""bitsandbytes, which peft imports for every model, on a processor with bf16: a faster way to compute in 4 bits is not installed."""


def quiet_bitsandbytes() -> None:
    """At the start of a program: leave out the one line that bitsandbytes logs of a part that no dependency of ours brings."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_is_told)


def quiet_loading() -> None:
    """Keep transformers' bars of weights that are read off the terminal; the hub's, of what is being fetched, stay."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    fetching = not are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()
    if fetching:
        enable_progress_bars()


def _is_told(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(NO_KERNEL)

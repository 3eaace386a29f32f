"""Models of the hub (huggingface.co): asked for once, so that a wrong name or a missing network is reported at once, and loaded without noise.

The libraries that fetch ask for file after file, and retry each where there is no network; while they load they print what tells a user nothing."""

import logging

from graph.errors import UserError

PATIENCE_S = 5.0
EXPECTED_MODEL = "a model's folder, or its name on the hub"


def only_in_cache(name: str, what: str) -> bool:
    """Whether the model `name` can be had from the hub's cache alone, since the hub cannot be asked; UserError when it cannot be had.

    `what` is the model as the user wrote it.
    """
    from httpx2 import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=PATIENCE_S)
    except (RepositoryNotFoundError, HFValidationError):
        found = f"{what}: no such folder, and the hub has no model of that name"
        raise UserError(found, EXPECTED_MODEL, "check the name (a private model wants HF_TOKEN)") from None
    except OfflineModeIsEnabled:
        return _in_cache(name, what, "HF_HUB_OFFLINE forbids to ask the hub", "check the name, or unset it")
    except (HfHubHTTPError, HTTPError, OSError) as problem:
        reason = str(problem).strip().split("\n")[0] or type(problem).__name__
        return _in_cache(name, what, f"the hub does not answer ({reason})", "check the name and the network")
    return False


def _in_cache(name: str, what: str, why: str, remedy: str) -> bool:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot_download(name, local_files_only=True)
    except LocalEntryNotFoundError:
        raise UserError(f"{what}: no such folder, not in the hub's cache, and {why}", EXPECTED_MODEL, remedy) from None
    return True


MISSING_KERNEL_LINE = "Failed to load CPU gemm_4bit_forward"
"""bitsandbytes, which peft imports for every model, on a processor with bf16: a faster way to compute in 4 bits is not installed."""


def quiet_bitsandbytes() -> None:
    """At the start of a program: leave out the one line that bitsandbytes logs of a part that no dependency of ours brings."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_is_worth_logging)


def quiet_loading() -> None:
    """Keep transformers' bars of weights that are read off the terminal; the hub's, of what is being fetched, stay."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    fetching = not are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()
    if fetching:
        enable_progress_bars()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(MISSING_KERNEL_LINE)

"""Models on the hub (huggingface.co): checked with one request, so that a wrong name or a missing network is reported immediately, and loaded quietly.

Without a network, the download libraries try file after file, each several times; while loading, they print lines of no use to users."""

import logging

from graph.errors import UserError, first_line

TIMEOUT_S = 5.0
EXPECTED_MODEL = "a model's folder, or its name on the hub"
LOADED_FILES = [
    *("model*.safetensors", "adapter_model.safetensors", "*.json", "*.jinja"),
    *("vocab.txt", "merges.txt", "tokenizer.model"),
]
"""The files of a language model or an adapter that are loaded from the hub's cache, which may lack others."""
IGNORED_FILES = "*/*"
"""Files in subfolders, which are not loaded."""


def only_in_cache(name: str, what: str) -> bool:
    """True if the hub cannot be reached but the model `name` is in the local cache; False if the hub has it; UserError, about `what`, if neither."""
    from httpx2 import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=TIMEOUT_S)
    except (RepositoryNotFoundError, HFValidationError):
        found = f"{what}: no such folder, and the hub has no model of that name"
        raise UserError(found, EXPECTED_MODEL, "check the name (a private model needs HF_TOKEN)") from None
    except OfflineModeIsEnabled:
        why = "HF_HUB_OFFLINE forbids requests to the hub"
        return _in_cache(name, what, why, "check the name, or unset HF_HUB_OFFLINE")
    except (HfHubHTTPError, HTTPError, OSError) as problem:
        why = f"the hub does not answer ({first_line(problem)})"
        return _in_cache(name, what, why, "check the name and the network")
    return False


def _in_cache(name: str, what: str, why: str, remedy: str) -> bool:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot_download(name, local_files_only=True, allow_patterns=LOADED_FILES, ignore_patterns=IGNORED_FILES)
    except LocalEntryNotFoundError:
        raise UserError(f"{what}: no such folder, not in the hub's cache, and {why}", EXPECTED_MODEL, remedy) from None
    return True


MISSING_KERNEL_LINE = "Failed to load CPU gemm_4bit_forward"
"""Logged by bitsandbytes, which peft imports for every model, on a CPU with bf16: a faster 4-bit kernel is not installed."""


def quiet_bitsandbytes() -> None:
    """Suppress the line that bitsandbytes logs about a missing kernel, which none of our dependencies provides; to be called at startup."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_is_worth_logging)


def quiet_loading() -> None:
    """Disable transformers' progress bars for loading weights, and bitsandbytes' line; the hub's bars for downloads stay."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    quiet_bitsandbytes()
    downloads_shown = not are_progress_bars_disabled()
    transformers_logging.disable_progress_bar()
    if downloads_shown:
        enable_progress_bars()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(MISSING_KERNEL_LINE)

"""Models by a name of the hub (huggingface.co): asked for once, so that a wrong name or a missing network is told at once.

The libraries that fetch ask for file after file, and for each again and again where there is no network.
"""

from graph.shared.errors import UserError

PATIENCE_S = 5.0
EXPECTED = "a model's folder, or its name on the hub"


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
        raise UserError(found, EXPECTED, "check the name (a private model wants HF_TOKEN)") from None
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
        raise UserError(f"{what}: no such folder, not in the hub's cache, and {why}", EXPECTED, remedy) from None
    return True

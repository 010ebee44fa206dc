"""Config files from the Hugging Face Hub, through huggingface_hub where it is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from roofcast.hardware.errors import InputError

_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
REACH_TIMEOUT_S: Final = 5.0


def is_id(name: str) -> bool:
    """Whether a name has the form of a Hub id: owner/model.

    >>> is_id("meta-llama/Llama-3.1-8B"), is_id("llama-3.1-8b"), is_id("../x/config")
    (True, False, False)
    """
    return _ID.fullmatch(name) is not None


def fetch(model: str, required: str, optional: str) -> tuple[Path, Path | None]:
    """Local paths of two files of a model on the Hub; what the cache has is not asked for again.

    Raises InputError where the extra is not installed, the model or its config is not there or not
    open to the user, or neither network nor cache is there.
    """
    try:
        from huggingface_hub import constants, errors, hf_hub_download
    except ImportError as error:
        raise InputError(
            f"{model!r} is not bundled and no file; reading it from the Hub needs the extra: "
            "pip install 'roofcast[hub]'"
        ) from error
    cached = _cached(model, required)
    if cached is not None:
        return cached, _cached(model, optional)
    # Asked once and shortly, because huggingface_hub retries an absent network for half a minute.
    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        raise InputError(
            f"{model!r} is not bundled and no file, the Hub cannot be reached, and its cache does "
            f"not hold {required}"
        )
    try:
        config = Path(hf_hub_download(model, required))
    except errors.GatedRepoError as error:
        raise InputError(
            f"{model!r} is gated on the Hub; accept its terms there and log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(f"{model!r} is neither bundled, nor a file, nor on the Hub") from error
    except errors.EntryNotFoundError as error:
        raise InputError(f"{model!r} has no {required} on the Hub") from error
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        raise InputError(f"{model!r} cannot be read from the Hub: {_first_line(error)}") from error
    try:
        return config, Path(hf_hub_download(model, optional))
    except (errors.EntryNotFoundError, errors.HfHubHTTPError, OSError):
        return config, None


def _cached(model: str, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, file)
    except HFValidationError as error:
        raise InputError(f"{model!r} is not a Hub id: {_first_line(error)}") from error
    return Path(found) if isinstance(found, str) else None


def _reachable(endpoint: str) -> bool:
    import urllib.error
    import urllib.request

    request = urllib.request.Request(endpoint, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=REACH_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

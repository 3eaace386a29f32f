"""Trained routers on disk (graph/retrieve/learned/forest.py): a forest for each mode."""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from graph.retrieve.learned.forest import forest_arrays, forest_from, read_forests, trained_file
from graph.retrieve.learned.query_features import QUERY_FEATURES
from graph.retrieve.learned.router import ModeModel, Router
from graph.shared.modes import DIRECT_MODES

ROUTER_FILE = "router.safetensors"
FORMAT = "modegraph router, 2"
HEADER = "router"
"""The one key of the file's metadata; its value is JSON, so that equal routers are equal bytes."""

NUMBERS = ("price_per_ms", "price_per_token", "margin")


def save_router(folder: Path, router: Router) -> None:
    """Write ROUTER_FILE into `folder`."""
    arrays = {
        f"{each.mode}.{name}": array for each in router.modes for name, array in forest_arrays(each.forest).items()
    }
    header = {
        "format": FORMAT,
        "features": QUERY_FEATURES,
        "encoder": router.encoder,
        **{name: getattr(router, name) for name in NUMBERS},
        "modes": [
            {
                "mode": each.mode,
                "milliseconds": each.milliseconds,
                "tokens": each.tokens,
                "base": each.forest.base,
                "depth": each.forest.depth,
            }
            for each in router.modes
        ],
    }
    save_file(arrays, folder / ROUTER_FILE, {HEADER: json.dumps(header)})


def open_router(spec: str) -> Router:
    """The router in a folder or on the hub, read once as long as its file stays the same; UserError for anything else."""
    file = trained_file(spec, "router", ROUTER_FILE)
    return _load(file, file.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(file: Path, changed_ns: int) -> Router:
    del changed_ns
    with read_forests(file, HEADER, FORMAT, QUERY_FEATURES) as (opened, header):
        modes = tuple(_read_mode(opened, each) for each in header["modes"])
        price_per_ms, price_per_token, margin = (float(header[name]) for name in NUMBERS)
        if not modes or len({each.mode for each in modes} & DIRECT_MODES) < len(modes):
            raise ValueError("its modes are not those of this version, each once")
        if not all(0 <= number < math.inf for number in (price_per_ms, price_per_token, margin)):
            raise ValueError("a price or the margin is not a number of 0 or more")
        return Router(modes, price_per_ms, price_per_token, margin, str(header["encoder"]))


def _read_mode(opened: Any, each: Mapping[str, Any]) -> ModeModel:
    """One mode's trees and costs; ValueError for trees that lead nowhere and for costs that are none."""
    forest = forest_from(opened, f"{each['mode']}.", each, len(QUERY_FEATURES))
    milliseconds, tokens = float(each["milliseconds"]), float(each["tokens"])
    if not (0 <= milliseconds < math.inf and 0 <= tokens < math.inf):
        raise ValueError(f"{each['mode']} costs {milliseconds} ms and {tokens} tokens")
    return ModeModel(each["mode"], forest, milliseconds, tokens)

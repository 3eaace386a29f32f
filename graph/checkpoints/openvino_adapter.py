"""An adapter of a model of the catalogue as OpenVINO opens it: merged into its base, weights in 8 bits, made once, in the cache beside the base."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from graph.checkpoints.adapter import ADAPTER_WEIGHTS, adapter_base, check_base
from graph.checkpoints.lora import lora_changes
from graph.pretrained.cache import folder_of, gguf_of
from graph.pretrained.catalogue import MODELS
from graph.pretrained.lock import fetching
from graph.pretrained.openvino_ir import FOLDER, MODEL, write_openvino
from graph.shared.errors import UserError
from graph.shared.ids import checksum


def adapted_folder(adapter: Path, note: Callable[[str], None]) -> Path:
    """The folder, for OpenVINO, of an adapter merged into its base, made if it is not there; UserError for a base that is not in the catalogue."""
    base = adapter_base(str(adapter))
    if base not in MODELS:
        found = f"openvino:{adapter}: an adapter of {base}"
        raise UserError(found, f"of {', '.join(MODELS)}", "use hf: instead, or export it (modegraph train export)")
    check_base(str(adapter), base)
    gguf = gguf_of(MODELS[base])
    adapted = folder_of(MODELS[base]) / "adapted"
    made = adapted / checksum(adapter / ADAPTER_WEIGHTS)[:16]
    if (made / MODEL).is_file():
        return made
    adapted.mkdir(exist_ok=True)
    with fetching(adapted, note):
        if not (made / MODEL).is_file():
            note(f"preparing {adapter.name} on {base} for OpenVINO (once, about a minute for each GB)")
            changes = lora_changes(adapter, folder_of(MODELS[base]))
            with tempfile.TemporaryDirectory(dir=adapted) as place:
                write_openvino(gguf, Path(place), changes)
                shutil.rmtree(made, ignore_errors=True)
                Path(place, FOLDER).rename(made)
    return made
